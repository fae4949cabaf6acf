"""From our numbers on Heart disease to those that the paper prints, one change at a time.

    python -m benchmarks.heart                 # the paper's three seeds
    python -m benchmarks.heart --markdown

What was measured once is kept in --out and not measured again: delete it after a change of a rule.
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from allforone.algorithms import FedAvg, Local, all_for_one_binary, all_for_one_continuous
from allforone.paper import as_published, printed
from allforone.paper.scores import Average, by_authors, by_data
from allforone.problems import Problem, heart_disease
from allforone.reports.table import Table, plain
from allforone.runs import PAPER_SEEDS

from .judge import Key, Make, accuracies, measure
from .resplits import SAMPLES
from .shown import show
from .worlds import World


def as_printed(seed: int) -> Problem:
    """With the step and the decay of the paper's table of settings."""
    made = heart_disease(seed=seed)
    return replace(made, settings=replace(made.settings, optimizer={"name": "SGD", "lr": 0.05, "weight_decay": 5e-4}))


PRINTED = World("settings as printed", as_printed, "heart", tuple(PAPER_SEEDS))
RUN = World("settings as run", heart_disease, "heart", tuple(PAPER_SEEDS))
OURS: dict[str, Make] = {
    "all-for-one-binary": partial(all_for_one_binary, samples=SAMPLES),
    "all-for-one-continuous": partial(all_for_one_continuous, samples=SAMPLES),
    "local": Local,
    "fedavg": FedAvg,
}
THEIRS: dict[str, Make] = {
    **OURS,
    "all-for-one-binary": partial(as_published.all_for_one_binary, samples=SAMPLES),
    "all-for-one-continuous": partial(as_published.all_for_one_continuous, samples=SAMPLES),
    "fedavg": as_published.FedAvg,
}
HEADS = ["test %", "binary", "continuous", "Local", "FedAvg"]


def without_the_last(sizes: torch.Tensor) -> torch.Tensor:
    """As by data, but the last client does not count."""
    return sizes * by_authors(sizes)


class Change(NamedTuple):
    """One row: which runs, and how their clients are averaged."""

    told: str
    world: World
    rules: Mapping[str, Make]
    average: Average


CHANGES = [
    Change("ours, settings as printed", PRINTED, OURS, by_data),
    Change("step 0.05 → 0.01, no decay", RUN, OURS, by_data),
    Change("VA not in the mean", RUN, OURS, without_the_last),
    Change("all others count the same", RUN, OURS, by_authors),
    Change("as published", RUN, THEIRS, by_authors),
]


def accuracy(found: Mapping[Key, list[float]], change: Change, rule: str, sizes: list[int]) -> float:
    """In percent, over clients and seeds."""
    counts = change.average(torch.tensor(sizes, dtype=torch.float64)).numpy()
    values = [found[change.world.name, kept_as(rule, change.rules[rule]), seed] for seed in change.world.seeds]
    return float((np.array(values) @ counts / counts.sum()).mean())


def kept_as(rule: str, make: Make) -> str:
    """The name under which a measurement is kept."""
    return rule if make is OURS[rule] else f"{rule}-as-published"


def changes_table(found: Mapping[Key, list[float]], sizes: list[int]) -> Table:
    """Each row has one change more than the one before: where that leads, and by how much."""
    rows, before = [], None
    for change in CHANGES:
        now = [accuracy(found, change, rule, sizes) for rule in OURS]
        gaps = [""] * len(now) if before is None else [f" ({a - b:+.1f})" for a, b in zip(now, before, strict=True)]
        rows.append([change.told, *(f"{value:.1f}{gap}" for value, gap in zip(now, gaps, strict=True))])
        before = now
    rows.append(["the paper prints", *(f"{printed.ACCURACY[rule]['heart-disease'][1]:.1f}" for rule in OURS)])
    return Table(HEADS, plain(rows))


def measured_all(path: Path, workers: int) -> dict[Key, list[float]]:
    """The accuracies of all clients in all runs."""
    found: dict[Key, list[float]] = {}
    for change in CHANGES:
        rules = {kept_as(rule, make): make for rule, make in change.rules.items()}
        found |= measure([change.world], rules, path, workers, accuracies)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--markdown", action="store_true", help="the table for a document")
    parser.add_argument("--out", type=Path, default=Path("out/heart.jsonl"))
    options = parser.parse_args()
    found = measured_all(options.out, options.workers)
    table = changes_table(found, [client.size for client in heart_disease().clients])
    show([table], options.markdown)


if __name__ == "__main__":
    main()
