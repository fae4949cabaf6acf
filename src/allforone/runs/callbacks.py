"""Who looks on while a run goes, and may end it."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np
import polars

from ..errors import InputError, blaming, short
from ..fleet import Roster
from .config import RunConfig
from .history import Record


class Beginning(NamedTuple):
    """What is known of a run before its rounds."""

    config: RunConfig
    roster: Roster
    metrics: polars.DataFrame | None  #: of the rounds before, where it is gone on with


class Callback:
    """Looks on while a run goes; a subclass writes what it wants to do.

    Example:
        >>> import allforone as afo
        >>> class StopAfter(afo.Callback):
        ...     def on_round(self, round):
        ...         return round.number >= 2
        >>> len(afo.train(afo.synthetic(clients=4), rounds=10, callbacks=[StopAfter()]).weights)
        2
    """

    #: The share of every client's training data that it wants held out; then `round.held` is known.
    hold_out: float | None = None
    #: The round whose models are to be given at the end, so far; None: those of the last.
    kept: int | None = None

    def on_start(self, beginning: Beginning) -> bool | None:
        """Before the first round; True if nothing is left to do."""
        return None

    def on_round(self, round: Record) -> bool | None:
        """After each round that was evaluated, round 0 included; True ends the run here."""
        return None

    def on_end(self) -> None:
        """After the last round, however the run ended."""


class Function(Callback):
    """A plain function of a round."""

    def __init__(self, function: Callable[[Record], bool | None]) -> None:
        self.function = function

    def on_round(self, round: Record) -> bool | None:
        return self.function(round)


class EarlyStopping(Callback):
    """Ends a run when the loss on held-out data, mean over clients, no longer falls. Test data are not looked at.

    Args:
        patience: so many looks without improvement end it.
        least: what counts as an improvement, as a share of the best loss so far.
        hold_out: the share of every client's training data that is held out for it; a stream needs none, its next
            batches are new. A guard's share serves both.
        keep: "best" gives the models of the round with the least such loss, "last" those of the last.

    Example:
        >>> import allforone as afo
        >>> stop = afo.EarlyStopping(patience=3)
        >>> result = afo.train(afo.digits(clients=4), rounds=200, inner=20, callbacks=[stop])  # doctest: +SKIP
    """

    def __init__(
        self,
        patience: int = 10,
        least: float = 0.0,
        hold_out: float = 0.2,
        keep: Literal["best", "last"] = "best",
    ) -> None:
        if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
            raise InputError(f"patience is {short(patience)}: must be a whole number, at least 1")
        if not 0 < hold_out < 1:
            raise InputError(f"hold_out is {short(hold_out)}: give a share between 0 and 1")
        if keep not in ("best", "last"):
            raise InputError(f"keep is {short(keep)}: must be 'best' or 'last'")
        self.patience, self.least, self.hold_out, self.keep = patience, least, hold_out, keep
        self._forget()

    def _forget(self) -> None:
        self.best, self.waited, self.kept = math.inf, 0, None
        self.lowest = math.inf  #: of the round that is kept; `best` may lag behind it by what counts as an improvement

    def on_start(self, beginning: Beginning) -> bool:
        self._forget()
        stop = False
        if beginning.metrics is not None:
            means = (
                beginning.metrics.sort("round")
                .group_by("round", maintain_order=True)
                .agg(polars.col("held_out").mean())
            )
            for number, loss in means.iter_rows():
                stop = self._look(number, math.nan if loss is None else loss)
        return stop

    def on_round(self, round: Record) -> bool:
        assert round.held is not None
        return self._look(round.number, float(round.held.nanmean()))

    def _look(self, number: int, loss: float) -> bool:
        if self.keep == "best" and loss < self.lowest:
            self.lowest, self.kept = loss, number
        better = loss < self.best - self.least * abs(self.best) if math.isfinite(self.best) else loss < self.best
        if better:
            self.best, self.waited = loss, 0
        elif not math.isnan(loss):  # nobody was there to be asked
            self.waited += 1
        return self.waited >= self.patience


def listed(callbacks: Sequence[Any]) -> list[Callback]:
    """What the user gave, each as a callback."""
    found: list[Callback] = []
    if not isinstance(callbacks, Sequence) or isinstance(callbacks, str):
        raise InputError(f"callbacks is a {type(callbacks).__name__}: give a list of them")
    for place, given in enumerate(callbacks):
        if isinstance(given, type) or not (isinstance(given, Callback) or callable(given)):
            raise InputError(f"callbacks[{place}] is {short(given)}: give an afo.Callback, or a function of a round")
        found.append(given if isinstance(given, Callback) else Function(given))
    return found


class Watch:
    """All callbacks of a run together."""

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        self.callbacks, self.stop = callbacks, False

    @property
    def kept(self) -> int | None:
        """The round whose models are to be given at the end, so far, by the first that wants one."""
        return next((callback.kept for callback in self.callbacks if callback.kept is not None), None)

    @contextmanager
    def over(self, beginning: Beginning) -> Iterator[None]:
        """While the run goes; `stop` is set once one of them wants it to end."""
        try:
            for callback in self.callbacks:
                with blaming(f"{type(callback).__name__}.on_start fails"):
                    self.stop |= bool(callback.on_start(beginning))
            yield
        finally:
            for callback in self.callbacks:
                with blaming(f"{type(callback).__name__}.on_end fails"):
                    callback.on_end()

    def see(self, record: Record) -> None:
        for callback in self.callbacks:
            with blaming(f"{_called(callback)} fails in round {record.number}"):
                wanted = callback.on_round(record)
            if wanted is not None and not isinstance(wanted, bool | np.bool_):
                raise InputError(
                    f"{_called(callback)} returned {short(wanted)}: True ends the run, else return nothing"
                )
            self.stop |= bool(wanted)


def _called(callback: Callback) -> str:
    if isinstance(callback, Function):
        return f"the callback {getattr(callback.function, '__name__', 'function')}"
    return f"{type(callback).__name__}.on_round"
