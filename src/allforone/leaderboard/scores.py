"""How a contestant did in one setting: every number of the leaderboard, from the runs that it is of."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars

from ..reports.style import needs_clusters
from ..results.paired import paired
from ..runs import Comparison, FinishedRun, last_round
from ..runs.quantities import LEAST_EXCESS, Quantity
from .contestants import ALONE

Values = npt.NDArray[np.float64]


class Score(NamedTuple):
    """Of one contestant; what is not known is None."""

    rank: int | None  #: by the last round; None of who is told the true clusters
    last: float | None  #: mean over sites and seeds, in the last round
    deviation: float | None  #: of that, over sites and seeds
    validated: float | None  #: the same in the round that is best by validation
    validated_rounds: list[int]  #: which round that is, seed by seed
    worst: float | None  #: of the worst site in the last round, mean over seeds
    worse_off: int | None  #: sites that did worse than alone with the same seed, over all seeds
    judged: int  #: of so many
    difference: float | None  #: by how much it is better than training alone, paired over sites and seeds
    low: float | None  #: from low to high: where all true differences of the setting lie with 95 %
    high: float | None
    samples: float  #: drawn per client, mean over seeds, as all below
    messages: float | None  #: of all clients together
    bytes: float | None
    seconds: float | None  #: by the clock; None of what is published, for it says more of the machine
    seeds: list[int]


def scores(comparison: Comparison, quantity: Quantity) -> dict[str, Score]:
    """By contestant, the best first."""
    names = comparison.algorithms
    alone = {run.seed: at(run, last_round(run), quantity) for run in comparison.of(ALONE)}
    others = len([name for name in names if name != ALONE])
    found = {name: _score(name, comparison.of(name), alone, others, quantity) for name in names}
    sign = 1 if quantity.lower_is_better else -1
    order = sorted(found, key=lambda name: sign * value if (value := found[name].last) is not None else math.inf)
    rivals = [found[name].last for name in order if not _told(comparison, name)]
    return {
        name: found[name]._replace(rank=None if _told(comparison, name) else _place(found[name].last, rivals))
        for name in order
    }


def _place(value: float | None, rivals: Sequence[float | None]) -> int | None:
    """Who is as good has the same; of rivals in order."""
    return None if value is None else 1 + rivals.index(value)


def _told(comparison: Comparison, name: str) -> bool:
    return needs_clusters(str(comparison.of(name)[0].config["algorithm"]["name"]))


def _score(name: str, runs: list[FinishedRun], alone: dict[int, Values], others: int, quantity: Quantity) -> Score:
    last = [at(run, last_round(run), quantity) for run in runs]
    rounds = [best_round(run) for run in runs]
    validated = [at(run, number, quantity) for run, number in zip(runs, rounds, strict=True) if number is not None]
    gains = [_gain(mine, alone[run.seed], quantity) for run, mine in zip(runs, last, strict=True) if run.seed in alone]
    judged = [gain[np.isfinite(gain)] for gain in gains]
    difference = paired(np.stack(gains, 1)) if gains and name != ALONE else None
    low, high = difference.interval(max(others, 1)) if difference else (math.nan, math.nan)
    known = [values[np.isfinite(values)] for values in last]
    edges = [values.max() if quantity.lower_is_better else values.min() for values in known if len(values)]
    return Score(
        rank=None,
        last=_mean(last),
        deviation=_known(float(np.nanstd(last))) if any(map(len, known)) else None,
        validated=_mean(validated) if len(validated) == len(runs) else None,
        validated_rounds=[number for number in rounds if number is not None],
        worst=_mean(edges),
        worse_off=sum(int((gain < 0).sum()) for gain in judged) if judged else None,
        judged=sum(map(len, judged)),
        difference=_known(difference.mean) if difference else None,
        low=_known(low),
        high=_known(high),
        samples=_mean([_final(run, "samples") for run in runs]) or 0.0,
        messages=_mean([_final(run, "messages") for run in runs]),
        bytes=_mean([_final(run, "bytes") for run in runs]),
        seconds=_mean([_final(run, "seconds") for run in runs]),
        seeds=[run.seed for run in runs],
    )


def at(run: FinishedRun, number: int, quantity: Quantity) -> Values:
    """[N], each site's own model on its own test data after a round; NaN where it is not known."""
    rows = run.metrics.filter(polars.col("round") == number).sort("client")
    values = quantity.values(rows).cast(polars.Float64)
    shown = values.clip(LEAST_EXCESS).log10() if quantity.powers else values
    return shown.fill_null(math.nan).to_numpy().copy()


def best_round(run: FinishedRun) -> int | None:
    """The first with the least loss on what was held out, mean over sites; None where nothing was."""
    if "held_out" not in run.metrics.columns:
        return None
    means = run.metrics.group_by("round").agg(polars.col("held_out").mean()).drop_nulls().sort("held_out", "round")
    return int(means["round"][0]) if means.height else None


def _gain(mine: Values, alone: Values, quantity: Quantity) -> Values:
    """[N], by how much each site is better off than alone."""
    gain: Values = alone - mine if quantity.lower_is_better else mine - alone
    return gain


def _final(run: FinishedRun, column: str) -> float:
    last = run.metrics.filter(polars.col("round") == last_round(run))[column].cast(polars.Float64)
    return float(last.fill_null(math.nan).to_numpy().mean())


def _mean(values: Any) -> float | None:
    """Of all that is known; None where nothing is."""
    every = np.concatenate([np.atleast_1d(value) for value in values]) if len(values) else np.empty(0)
    known = every[np.isfinite(every)]
    return float(known.mean()) if len(known) else None


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
