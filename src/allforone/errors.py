"""What can go wrong, said so that the reader knows what, where, and what to do."""

import os
import re
import reprlib
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.metadata import version

#: Characters of a message that nobody foresaw.
MOST_SAID = 300
#: Letters of a word in a message, many more than a path has; of longer ones both ends are told.
LONGEST_WORD = 400


class AllForOneError(Exception):
    """The command line prints it as one line and exits with code 2."""


class InputError(AllForOneError, ValueError):
    """Something the user gave cannot be used."""


class MissingData(InputError):  # noqa: N818  (what is wrong, as Diverged)
    """A data set that is not on this machine."""


class Diverged(AllForOneError):  # noqa: N818  (a state of the run, not a mistake of the caller)
    """The loss of `model` on the data of `client` is not a finite number."""

    def __init__(self, model: int, client: int, step: int) -> None:
        self.model, self.client, self.step = model, client, step
        super().__init__(f"the loss of client {model}'s model on client {client}'s data is not finite at step {step}")


class Inexact(AllForOneError):  # noqa: N818  (nobody's mistake)
    """A fast way fails, or was found to give something else than the plain one; the fleet has left it: ask again."""


class Gone(AllForOneError):  # noqa: N818  (a state of the fleet)
    """Some did not answer in the middle of a round; the fleet has noted it: begin the round anew, without them."""


class TooFew(AllForOneError):  # noqa: N818  (a state of the fleet)
    """Too few answer to go on; all rounds that were done are kept."""


class Notice(UserWarning):
    """What the user should know though the run goes on; the command line prints it as one line."""


def called(number: int, name: str | None) -> str:
    """A client in a message: by its number and, where it has one, its name."""
    return f"client {number} ({name})" if name else f"client {number}"


def notice(text: str) -> None:
    warnings.warn(text, Notice, stacklevel=2)


def short(value: object, most: int = 80) -> str:
    """What the user gave, as far as a line can hold it."""
    if isinstance(value, int) and value.bit_length() > 4 * most:
        return f"a number of about {value.bit_length() * 3 // 10} digits"
    text = value if isinstance(value, str) else repr(value) if not isinstance(value, list | dict) else _repr.repr(value)
    text = printable(text)
    return text if len(text) <= most else f"{text[:most]}…"


def printable(text: str) -> str:
    """Without what would move a terminal's cursor or change its colours: names come from files of other people, too."""
    return "".join(c if c.isprintable() else "?" for c in text)


_repr = reprlib.Repr()


def suggest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known one, and the list."""
    known = list(known)
    close = get_close_matches(str(name)[:80].lower(), [k.lower() for k in known], n=1)
    near = next((k for k in known if close and k.lower() == close[0]), None)
    return (f"did you mean '{near}'? " if near else "") + f"known: {', '.join(known)}"


@contextmanager
def blaming(what: str, remedy: str = "") -> Iterator[None]:
    """Whatever the user's own code (model, loss, data set, …) raises here becomes an error that says what failed."""
    try:
        yield
    except AllForOneError:
        raise
    except (Exception, SystemExit) as error:  # a file that ends the program would end it without a word
        if is_memory(error):
            raise
        reason = next(iter(_text(error).strip().splitlines()), "")
        raise InputError(f"{what}: {type(error).__name__}: {reason}{'. ' if remedy else ''}{remedy}") from error


def explained(error: BaseException) -> str:
    """What stands in one line for any exception; the details of what nobody foresaw are written to a file."""
    if isinstance(error, Stopped):
        return " ".join(str(error).split())  # with a command that is to be given as it is
    return re.sub(rf"\S{{{LONGEST_WORD},}}", lambda word: f"{word[0][:100]}…{word[0][-100:]}", _explained(error))


def _explained(error: BaseException) -> str:
    if isinstance(error, AllForOneError):
        return " ".join(str(error).split())
    if is_memory(error):
        return "not enough memory: try a smaller batch_size, fewer clients, or --workers 1"
    if isinstance(error, ValueError) and "null byte" in _text(error):
        return "a path has a NUL character in it, which no file system takes; give another"
    if isinstance(error, RuntimeError) and "Symlink loop" in _text(error):
        return f"{_text(error)}, which leads nowhere; give another path"
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}; see to it, and give the command again"
    said = f"{type(error).__name__}: {' '.join(_text(error).split())}"[:MOST_SAID]
    return f"{said}; this is a fault of allforone, not yours: please report it with {_details(error)}"


def is_memory(error: BaseException) -> bool:
    """Whether there was too little: torch and polars have no type of their own for it."""
    return isinstance(error, MemoryError) or any(s in _text(error) for s in ("allocate memory", "memory allocation"))


def _text(error: BaseException) -> str:
    """What an exception says; one of the user's own may fail at that, too."""
    try:
        return str(error)
    except Exception:
        return "(it cannot say why)"


def _details(error: BaseException) -> str:
    """Where the whole story was written."""
    story = "".join(traceback.format_exception(error))
    try:
        place, path = tempfile.mkstemp(".txt", "allforone-fault-", text=True)
        with os.fdopen(place, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"allforone {version('allforone')}: {' '.join(sys.argv)}\n\n{story}")
        return path
    except OSError:
        return f"what follows. {' '.join(story.split())}"


@contextmanager
def within(where: str) -> Iterator[None]:
    """What is wrong with the input here is said with its place."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


class Stopped(AllForOneError):  # noqa: N818  (not a mistake: the user asked for it)
    """A signal: what was done is kept."""

    def __init__(self, text: str, code: int = 130) -> None:
        super().__init__(text)
        self.code = code  #: with which the process ends
