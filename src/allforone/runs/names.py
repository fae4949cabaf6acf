"""Which client is meant by a name or a number, and what it is called in messages."""

import operator
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..errors import AllForOneError, InputError, called, notice, short, suggest


def find_client(names: Sequence[str | None], wanted: int | str) -> int:
    """The number of a client, by its name or, where none is called so, its number from 0."""
    if not isinstance(wanted, str):
        return _numbered(names, wanted)
    known = [name or str(number) for number, name in enumerate(names)]
    if known.count(wanted) > 1:
        raise InputError(f"client '{wanted}': several are called so; their names must differ to tell them apart")
    if wanted in known:
        number = known.index(wanted)
        if wanted.isdecimal() and int(wanted) != number:
            notice(f"client '{wanted}' is taken by its name: it is number {number}")
        return number
    if wanted.isascii() and wanted.isdecimal() and len(wanted) < 10 and int(wanted) < len(names):
        return int(wanted)
    raise InputError(f"client '{short(wanted)}': the run has {len(names)}, numbered from 0; {suggest(wanted, known)}")


def _numbered(names: Sequence[str | None], wanted: int) -> int:
    try:
        number = operator.index(wanted)
    except TypeError:
        raise InputError(f"client {short(wanted)}: give its name, or its number from 0") from None
    if not 0 <= number < len(names):
        raise InputError(f"client {short(number)}: the run has {len(names)}, numbered from 0")
    return number


@contextmanager
def naming(names: Sequence[str | None]) -> Iterator[None]:
    """Errors that speak of a client by its number say its name as well."""
    try:
        yield
    except AllForOneError as error:
        if error.args and isinstance(error.args[0], str):
            error.args = (_with_names(error.args[0], names), *error.args[1:])
        raise


def _with_names(text: str, names: Sequence[str | None]) -> str:
    def said(match: re.Match[str]) -> str:
        number = int(match[1])
        return called(number, names[number]) if number < len(names) else match[0]

    return re.sub(r"\bclient (\d{1,9})\b(?! \()", said, text)
