"""How a process is asked to end: the first signal lets the round be finished and saved, the second ends it at once."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from .errors import Stopped

#: Ctrl-C, the polite `kill`, and a terminal that is closed.
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Interrupted(KeyboardInterrupt):
    """Asked to end, by this signal."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        self.number = number
        super().__init__(number)


class _Process:
    """What this process knows of its end; there is one, as there is one handler for each signal."""

    asked: int | None = None  # the first signal
    patient = False  # whether a round is being done that is worth its end
    told: Callable[[], bool] | None = None  # of a worker: whether its parent wants it to end
    kept = ""  # what would be there if it ended now


@contextmanager
def signals() -> Iterator[None]:
    """The command line ends by them as this module says. Those that are ignored stay so, as under nohup."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    _Process.asked, _Process.kept = None, ""
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _on_signal(number: int, frame: FrameType | None) -> None:
    if _Process.asked is not None:
        _say(f"ended at once; {_Process.kept or 'nothing is kept'}")
        os._exit(128 + number)
    _Process.asked = number
    if not _Process.patient:
        raise Interrupted(number)
    _say("ending after this round; the same once more ends at once")


def _say(text: str) -> None:
    with suppress(OSError):  # the terminal may be gone
        os.write(2, f"\nallforone: {text}\n".encode())  # a handler may not use the streams, which may be in use


def obey(told: Callable[[], bool]) -> None:
    """In a worker: end after the current round when told so, or by a signal; a second one changes nothing."""
    _Process.told = told
    for number in SIGNALS:
        signal.signal(number, _note)


def _note(number: int, frame: FrameType | None) -> None:
    _Process.asked = number


@contextmanager
def patiently() -> Iterator[None]:
    """Here a first signal waits for the next `check`."""
    before, _Process.patient = _Process.patient, True
    try:
        yield
    finally:
        _Process.patient = before


def asked() -> int | None:
    """By which signal this process was asked to end."""
    return _Process.asked


def check() -> None:
    """Between two rounds: end here if asked to."""
    if _Process.asked is None and _Process.told and _Process.told():
        _Process.asked = signal.SIGTERM
    if _Process.asked is not None:
        raise Interrupted(_Process.asked)


def keeps(what: str) -> None:
    """Whatever happens from now on, this is kept."""
    _Process.kept = what


@contextmanager
def stoppable(again: str) -> Iterator[None]:
    """Who ends it is told what is kept, and how to go on."""
    try:
        yield
    except KeyboardInterrupt as error:
        number = error.number if isinstance(error, Interrupted) else signal.SIGINT
        kept = f"stopped; {_Process.kept}. Go on with: {again}" if _Process.kept else "stopped before the first round"
        raise Stopped(kept, 128 + number) from None
