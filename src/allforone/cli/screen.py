"""What the commands print."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from rich.console import Console

from ..catalogue import FORMATS
from ..errors import InputError, printable

if TYPE_CHECKING:
    from ..reports.table import Table

screen = Console()


def say(text: str) -> None:
    """The text as it is: no colours, and lines as long as they are."""
    with printing():
        screen.print(text, soft_wrap=True, highlight=False, markup=False)


def show(table: "Table") -> None:
    with printing():
        screen.print(FORMATS["terminal"](table))


def complain(text: str) -> None:
    """One line on standard error, if there is one."""
    with suppress(OSError, ValueError):
        print(f"allforone: {printable(text)}", file=sys.stderr, flush=True)


@contextmanager
def printing() -> Iterator[None]:
    """A full standard output is told; what belongs into files is there by then."""
    try:
        yield
    except BrokenPipeError:
        raise  # whoever read it has seen enough
    except OSError as error:
        raise InputError(f"standard output cannot be written ({error.strerror}); all files are written") from error
