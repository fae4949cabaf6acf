"""What each client gains by an algorithm over training alone, seed by seed: the same numbers for page and Python."""

from typing import Any, NamedTuple

import polars

from ..algorithms import Local
from ..runs import Comparison, FinishedRun, verdicts
from ..runs.quantities import LEAST_EXCESS, Quantity
from . import style


class Gain(NamedTuple):
    """Of one client; in a quantity's own units or, of what spans orders of magnitude, in powers of ten."""

    client: int
    mean: float  #: over seeds; above 0 where it is better than alone
    low: float  #: the lowest of all seeds or, of a guard, the end of its 95 % interval
    high: float
    seeds: list[tuple[int, float]]  #: each seed and its gain


def alone_in(comparison: Comparison) -> str | None:
    """The algorithm by which every client trains alone, where it is among those compared."""
    return next((name for name in comparison.algorithms if isinstance(style.made(name), Local)), None)


def gains(comparison: Comparison, name: str, quantity: Quantity) -> list[Gain]:
    """Of every client of which both are known, the largest first; none where nobody trained alone."""
    alone = alone_in(comparison)
    if alone is None or name == alone:
        return []
    found: dict[int, list[tuple[int, float]]] = {}
    others = {run.seed: _last(run, quantity) for run in comparison.of(alone)}
    for run in comparison.of(name):
        for client, value in _last(run, quantity).items():
            other = others.get(run.seed, {}).get(client)
            if other is not None:
                gain = other - value if quantity.lower_is_better else value - other
                found.setdefault(client, []).append((run.seed, gain))
    told = [
        Gain(client, sum(values) / len(values), min(values), max(values), seeds)
        for client, seeds in found.items()
        if (values := [gain for _, gain in seeds])
    ]
    return sorted(told, key=lambda gain: (-gain.mean, gain.client))


def guarded(run: FinishedRun) -> list[Gain]:
    """What a guard found at the end, in shares of the local model's loss on new data; none where none watched."""
    rows = verdicts(run.metrics).filter(polars.col("low").is_not_null()).to_dicts()
    told = [Gain(row["client"], row["gain"], row["low"], row["high"], [(run.seed, row["gain"])]) for row in rows]
    return sorted(told, key=lambda gain: (-gain.mean, gain.client))


def _last(run: FinishedRun, quantity: Quantity) -> dict[int, float]:
    """What is known of each client at the end."""
    last = run.metrics.filter(polars.col("round") == run.metrics["round"].max())
    values = quantity.values(last)
    if quantity.powers:
        values = values.clip(LEAST_EXCESS).log10()
    known = values.is_not_null() & values.is_finite()
    return dict(zip(last["client"].filter(known).to_list(), values.filter(known).to_list(), strict=True))


def packed_gains(comparison: Comparison, drawn: list[Quantity]) -> dict[str, Any]:
    """For the page: by algorithm and quantity."""
    return {
        name: {quantity.name: [_short(gain) for gain in gains(comparison, name, quantity)] for quantity in drawn}
        for name in comparison.algorithms
    }


def _short(gain: Gain) -> dict[str, Any]:
    def cut(value: float) -> float:
        return float(f"{value:.7g}")

    seeds = [{"seed": seed, "gain": cut(value)} for seed, value in gain.seeds]
    return {"client": gain.client, **{key: cut(getattr(gain, key)) for key in ("mean", "low", "high")}, "seeds": seeds}


def packed_guard(run: FinishedRun) -> list[dict[str, Any]]:
    return [_short(gain) for gain in guarded(run)]
