"""What a run gave at each site: all that the numbers of the leaderboard are computed from, and small enough to keep."""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars

from ..reports.style import needs_clusters
from ..runs import Comparison, FinishedRun, last_round
from ..runs.quantities import LEAST_EXCESS, Quantity

Values = npt.NDArray[np.float64]


class Outcome(NamedTuple):
    """Of one run. Values are of each site's own model on its own test data; what is not known is None."""

    seed: int
    told: bool  #: the true clusters
    last: list[float | None]  #: [N], in the last round
    validated: list[float | None] | None  #: [N], in the round that is best by validation
    validated_round: int | None  #: which one that is
    samples: float  #: drawn per client
    messages: float | None  #: of all clients together
    bytes: float | None
    seconds: float | None  #: by the clock; None of what is published, for it says more of the machine


#: By contestant, a run for each seed.
Outcomes = dict[str, list[Outcome]]


def outcomes(comparison: Comparison, quantity: Quantity) -> Outcomes:
    return {name: [_outcome(run, quantity) for run in comparison.of(name)] for name in comparison.algorithms}


def _outcome(run: FinishedRun, quantity: Quantity) -> Outcome:
    number = best_round(run)
    return Outcome(
        run.seed,
        needs_clusters(str(run.config["algorithm"]["name"])),
        _at(run, last_round(run), quantity),
        None if number is None else _at(run, number, quantity),
        number,
        _final(run, "samples") or 0.0,
        *(_final(run, column) for column in ("messages", "bytes", "seconds")),
    )


def best_round(run: FinishedRun) -> int | None:
    """The first with the least loss on what was held out, mean over sites; None where nothing was."""
    if "held_out" not in run.metrics.columns:
        return None
    means = run.metrics.group_by("round").agg(polars.col("held_out").mean()).drop_nulls().sort("held_out", "round")
    return int(means["round"][0]) if means.height else None


def _at(run: FinishedRun, number: int, quantity: Quantity) -> list[float | None]:
    rows = run.metrics.filter(polars.col("round") == number).sort("client")
    values = quantity.values(rows).cast(polars.Float64)
    shown = values.clip(LEAST_EXCESS).log10() if quantity.powers else values
    return [known(value) for value in shown.fill_null(math.nan).to_list()]


def _final(run: FinishedRun, column: str) -> float | None:
    last = run.metrics.filter(polars.col("round") == last_round(run))[column].cast(polars.Float64)
    return known(float(last.fill_null(math.nan).to_numpy().mean()))


def known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def array(values: list[float | None]) -> Values:
    """[N], NaN of what is not known."""
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)
