"""What the commands print."""

from typing import TYPE_CHECKING

from rich.console import Console

from ..catalogue import FORMATS

if TYPE_CHECKING:
    from ..reports.table import Table

screen = Console()


def say(text: str) -> None:
    """The text as it is: no colours, and lines as long as they are."""
    screen.print(text, soft_wrap=True, highlight=False, markup=False)


def show(table: "Table") -> None:
    screen.print(FORMATS["terminal"](table))
