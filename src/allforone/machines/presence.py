"""Which sites can be asked: who did not answer is left alone for a while, and back when it answers again."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import AllForOneError, InputError


class Ended(AllForOneError):  # noqa: N818  (a state of the run)
    """The run was ended from outside: what sites did not answer then means nothing."""


@dataclass(frozen=True)
class Patience:
    """How long is waited for sites, in seconds.

    Args:
        least: sites without which a run does not go on.
        deadline: for an answer.
        meeting: for what a site says of itself before the first round, while it may be loading its data.
        returning: for who is away when a run goes on, and was there when it began.
        ping: for a sign of life.
        pause: before who was absent is tried again; twice as long after every further failure.
        longest: the longest such pause.
        wait: for `least` sites to be there, before the run is stopped.
    """

    least: int = 1
    deadline: float = 300.0
    meeting: float = 600.0
    returning: float = 20.0
    ping: float = 2.0
    pause: float = 1.0
    longest: float = 300.0
    wait: float = 3600.0

    def __post_init__(self) -> None:
        if self.least < 1:
            raise InputError(f"least_sites is {self.least}: at least 1 must be there")
        if not (self.deadline > 0 and math.isfinite(self.deadline)):
            raise InputError(f"deadline is {self.deadline}: give seconds, above 0")


@dataclass
class Absence:
    why: str
    failures: int  #: since it last took part in a whole round
    until: float  #: not tried before


class Presence:
    """Who is away, since when and why."""

    def __init__(
        self,
        names: list[str],
        patience: Patience,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.names, self.patience, self.now, self.sleep = names, patience, now, sleep
        self.away: dict[int, Absence] = {}
        self._failures: dict[int, int] = {}  # of those who are back, until they have taken part in a whole round

    def lost(self, site: int, why: str) -> None:
        """It did not answer: try it again after a pause."""
        before = self.away[site].failures if site in self.away else self._failures.pop(site, 0)
        pause = min(self.patience.longest, self.patience.pause * 2.0**before)
        self.away[site] = Absence(why, before + 1, self.now() + pause)

    def found(self, site: int) -> None:
        self._failures[site] = self.away.pop(site).failures

    def proven(self) -> None:
        """A round is done: whoever was there is forgiven."""
        self._failures.clear()

    def due(self) -> list[int]:
        """Who may be tried again now."""
        return sorted(site for site, absence in self.away.items() if absence.until <= self.now())

    def enough(self) -> bool:
        return len(self.names) - len(self.away) >= self.patience.least

    def until_next(self) -> float:
        """Seconds until somebody may be tried again."""
        return max(0.0, min(absence.until for absence in self.away.values()) - self.now())

    def said(self) -> str:
        """Who is away and why, in one line."""
        return "; ".join(f"{self.names[site]}: {absence.why}" for site, absence in sorted(self.away.items()))
