"""What can go wrong, said so that the reader knows what, where, and what to do."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches


class AllForOneError(Exception):
    """The command line prints it as one line and exits with code 2."""


class InputError(AllForOneError, ValueError):
    """Something the user gave cannot be used."""


class Diverged(AllForOneError):  # noqa: N818  (a state of the run, not a mistake of the caller)
    """The loss of `model` on the data of `client` is not a finite number."""

    def __init__(self, model: int, client: int, step: int) -> None:
        self.model, self.client, self.step = model, client, step
        super().__init__(f"the loss of client {model}'s model on client {client}'s data is not finite at step {step}")


class Inexact(AllForOneError):  # noqa: N818  (nobody's mistake)
    """A fast way fails, or was found to give something else than the plain one; the fleet has left it: ask again."""


class Notice(UserWarning):
    """What the user should know though the run goes on; the command line prints it as one line."""


def notice(text: str) -> None:
    warnings.warn(text, Notice, stacklevel=2)


def suggest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known one, and the list."""
    known = list(known)
    close = get_close_matches(str(name).lower(), [k.lower() for k in known], n=1)
    near = next((k for k in known if close and k.lower() == close[0]), None)
    return (f"did you mean '{near}'? " if near else "") + f"known: {', '.join(known)}"


@contextmanager
def blaming(what: str, remedy: str = "") -> Iterator[None]:
    """Whatever the user's own code (model, loss, data set, …) raises here becomes an error that says what failed."""
    try:
        yield
    except AllForOneError:
        raise
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), "")
        raise InputError(f"{what}: {type(error).__name__}: {reason}{'. ' if remedy else ''}{remedy}") from error


@contextmanager
def within(where: str) -> Iterator[None]:
    """What is wrong with the input here is said with its place."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


class Stopped(AllForOneError):  # noqa: N818  (not a mistake: the user pressed Ctrl-C)
    """Ctrl-C: what was done is kept."""


@contextmanager
def stoppable(again: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped(f"stopped; what was done is kept. Go on with: {again}") from None
