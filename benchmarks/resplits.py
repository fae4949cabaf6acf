"""Who gains at the four hospitals of Heart disease, over many random splits of their patients.

    python -m benchmarks.resplits heart-disease                # 40 splits, features scaled apart and together
    python -m benchmarks.resplits heart-disease --splits 5     # a first look

Every rule is trained on the same patients, from the same model, with the same batches as Local, and compared with it
split by split. What was measured once is kept in --out and not measured again: delete it after a change of a rule.
"""

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from allforone.algorithms import AllForOne, FedAvg, Local, all_for_one_binary, all_for_one_continuous
from allforone.problems import heart_disease
from allforone.reports.table import Table, plain

from .judge import Averaged, Key, Make, accuracies, measure
from .shown import show
from .worlds import World, resplit

#: Samples from which the paper's rules read similarity, on this problem.
SAMPLES = 16
RULES: dict[str, Make] = {
    "Local": Local,
    "All-for-one": AllForOne,
    "binary (paper)": partial(all_for_one_binary, samples=SAMPLES),
    "continuous (paper)": partial(all_for_one_continuous, samples=SAMPLES),
    "FedAvg": FedAvg,
    "pooled": Averaged,
}
WORLDS = {
    scaling: World(f"heart-disease, scaled {scaling}", partial(resplit, scaling=scaling), "heart")
    for scaling in ("apart", "together")
}


def gains(found: dict[Key, list[float]], world: World, sizes: list[int]) -> Table:
    """Local's accuracy in percent, and how many points each rule is above it: mean and standard error over splits."""

    def by_site(rule: str) -> np.ndarray:
        """[splits, sites + 1], the last the mean over sites, weighted by their data."""
        values = np.array([found[world.name, rule, seed] for seed in world.seeds])
        return np.column_stack([values, values @ sizes / sum(sizes)])

    alone = by_site("Local")
    rows = [["Local", *(f"{mean:.1f}" for mean in alone.mean(0))]]
    for rule in [rule for rule in RULES if rule != "Local"]:
        gaps = by_site(rule) - alone
        errors = gaps.std(0, ddof=1) / len(gaps) ** 0.5
        rows.append([rule, *(f"{m:+.2f} ± {e:.2f}" for m, e in zip(gaps.mean(0), errors, strict=True))])
    sites = [client.name or "" for client in heart_disease().clients]
    return Table([f"test %, {world.name}", *sites, "all, by data"], plain(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem", choices=["heart-disease"])
    parser.add_argument("--splits", type=int, default=40)
    parser.add_argument("--scaling", choices=list(WORLDS), help="by default both")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--markdown", action="store_true", help="tables for a document")
    parser.add_argument("--out", type=Path, default=Path("out/resplits.jsonl"))
    options = parser.parse_args()
    if options.splits < 2:
        parser.error("--splits: at least 2, for a standard error")
    worlds = [
        replace(world, seeds=tuple(range(options.splits)))
        for scaling, world in WORLDS.items()
        if options.scaling in (None, scaling)
    ]
    found = measure(worlds, RULES, options.out, options.workers, accuracies)
    sizes = [client.size for client in heart_disease().clients]
    show((gains(found, world, sizes) for world in worlds), options.markdown)


if __name__ == "__main__":
    main()
