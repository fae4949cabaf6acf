"""How far each algorithm came, and what that cost: a table of each experiment."""

import numpy as np

from ..reports.style import label
from ..reports.table import Table, plain
from ..runs.quantities import EXCESS, LEAST_EXCESS, UNKNOWN, quantities
from .experiments import AS_PUBLISHED, EXPERIMENTS
from .scores import Summary

HEADS = ("seeds", "rounds", "samples", "s", "messages", "MB")


def cost_tables(found: dict[str, list[Summary]]) -> dict[str, Table]:
    """By experiment. Means are over clients and seeds, each counting the same. Costs are means over seeds: samples
    of one client, seconds of a run, messages and megabytes of all clients together."""
    return {name: _table(EXPERIMENTS[name].title, runs) for name, runs in found.items()}


def _table(title: str, runs: list[Summary]) -> Table:
    quantity = next(each for each in quantities(runs[0]["config"].get("metrics")) if each.name in runs[0]["test"])
    rows = []
    for name in dict.fromkeys(run["algorithm"] for run in runs):
        own = [run for run in runs if run["algorithm"] == name]
        values = np.array([value for run in own for value in run["test"][quantity.name]], dtype=float)
        if quantity is EXCESS:
            values = np.log10(values.clip(min=LEAST_EXCESS))
        costs = (_mean(own, "samples"), _mean(own, "seconds"), _mean(own, "messages"), _mean(own, "bytes", 1e6))
        rows.append(
            [
                _named(name),
                f"{quantity.shown(np.nanmean(values))} ± {quantity.shown(np.nanstd(values))}",
                str(len(own)),
                f"{own[0]['rounds']}",
                *costs,
            ]
        )
    return Table(["algorithm", quantity.head, *HEADS], plain(rows), title)


def _named(name: str) -> str:
    """Local as published is Local, on another problem."""
    ours = next((ours for ours, theirs in AS_PUBLISHED.items() if theirs == name), None)
    return label(name) if ours is None else f"{label(ours)}, as published"


def _mean(runs: list[Summary], key: str, unit: float = 1.0) -> str:
    values = [run[key] for run in runs]
    if None in values:
        return UNKNOWN
    mean = float(np.mean(values)) / unit
    return f"{mean:,.0f}" if mean >= 100 or mean == 0 else f"{mean:.3g}"
