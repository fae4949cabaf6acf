"""How a contestant did in one setting: every number of the leaderboard, from the runs that it is of."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..results.paired import paired
from ..runs.quantities import Quantity
from .contestants import ALONE
from .outcomes import Outcome, Outcomes, Values, array, known


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


def scores(runs: Outcomes, quantity: Quantity) -> dict[str, Score]:
    """By contestant, the best first."""
    alone = {run.seed: array(run.last) for run in runs.get(ALONE, [])}
    others = len([name for name in runs if name != ALONE])
    found = {name: _score(name, runs[name], alone, others, quantity) for name in runs}
    sign = 1 if quantity.lower_is_better else -1
    order = sorted(found, key=lambda name: sign * value if (value := found[name].last) is not None else math.inf)
    told = {name for name in runs if any(run.told for run in runs[name])}
    rivals = [found[name].last for name in order if name not in told]
    return {
        name: found[name]._replace(rank=None if name in told else _place(found[name].last, rivals)) for name in order
    }


def _place(value: float | None, rivals: Sequence[float | None]) -> int | None:
    """Who is as good has the same; of rivals in order."""
    return None if value is None else 1 + rivals.index(value)


def _score(name: str, runs: list[Outcome], alone: dict[int, Values], others: int, quantity: Quantity) -> Score:
    last = [array(run.last) for run in runs]
    validated = [array(run.validated) for run in runs if run.validated is not None]
    gains = [_gain(mine, alone[run.seed], quantity) for run, mine in zip(runs, last, strict=True) if run.seed in alone]
    judged = [gain[np.isfinite(gain)] for gain in gains]
    difference = paired(np.stack(gains, 1)) if gains and name != ALONE else None
    low, high = difference.interval(max(others, 1)) if difference else (math.nan, math.nan)
    finite = [values[np.isfinite(values)] for values in last]
    edges = [values.max() if quantity.lower_is_better else values.min() for values in finite if len(values)]
    return Score(
        rank=None,
        last=_mean(last),
        deviation=known(float(np.nanstd(last))) if any(map(len, finite)) else None,
        validated=_mean(validated) if len(validated) == len(runs) else None,
        validated_rounds=[run.validated_round for run in runs if run.validated_round is not None],
        worst=_mean(edges),
        worse_off=sum(int((gain < 0).sum()) for gain in judged) if judged else None,
        judged=sum(map(len, judged)),
        difference=known(difference.mean) if difference else None,
        low=known(low),
        high=known(high),
        samples=_mean([run.samples for run in runs]) or 0.0,
        messages=_mean([run.messages for run in runs]),
        bytes=_mean([run.bytes for run in runs]),
        seconds=_mean([run.seconds for run in runs]),
        seeds=[run.seed for run in runs],
    )


def _gain(mine: Values, alone: Values, quantity: Quantity) -> Values:
    """[N], by how much each site is better off than alone."""
    gain: Values = alone - mine if quantity.lower_is_better else mine - alone
    return gain


def _mean(values: Sequence[Any]) -> float | None:
    """Of all that is known; None where nothing is."""
    every = np.concatenate([np.atleast_1d(np.asarray(value, np.float64)) for value in values] or [np.empty(0)])
    finite = every[np.isfinite(every)]
    return float(finite.mean()) if len(finite) else None
