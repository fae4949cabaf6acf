"""Whom it is not worth to ask: All-for-one on digits, by the share of the error that partners may lower unasked.

    python -m benchmarks.spared                     # ten minutes on one core
    python -m benchmarks.spared --seeds 127         # a first look

At 0 everybody with a weight is asked at every update, however small that weight is.
"""

import argparse
import sys
from functools import partial
from statistics import fmean
from unittest.mock import patch

import polars
import torch

import allforone as afo
from allforone.collaboration import least_error
from allforone.problems import digits
from allforone.reports.table import Table, plain

from .shown import show

SHARES = (0.0, least_error.SPARED, 0.003, 0.03)
WORLDS = {
    "two clusters": digits,
    "two clusters, 20 images": partial(digits, samples_per_client=20),
    "Dirichlet(0.5)": partial(digits, split="dirichlet"),
    "Dirichlet(0.5), 30 images": partial(digits, split="dirichlet", samples_per_client=30),
    "shards": partial(digits, split="shards"),
    "evenly": partial(digits, split="iid"),
}


def measured(world: str, share: float, seed: int) -> tuple[float, float]:
    """Accuracy in points, mean over clients, and what a client sends and receives."""
    with patch.object(least_error, "SPARED", share):
        run = afo.train(WORLDS[world](seed=seed), algorithm=afo.AllForOne(), seed=seed)
    last = run.metrics.filter(polars.col("round") == run.metrics["round"].max())
    return 100 * fmean(last["accuracy"]), last["messages"][0] / len(last)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[127, 496, 1729])
    parser.add_argument("--markdown", action="store_true", help="a table for a document")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for world in WORLDS:
        found = [[measured(world, share, seed) for seed in options.seeds] for share in SHARES]
        means = [tuple(map(fmean, zip(*of_share, strict=True))) for of_share in found]
        rows.append([world, *(f"{accuracy:.2f}, {messages:,.0f}" for accuracy, messages in means)])
        print(*rows[-1], sep="  ", file=sys.stderr)
    heads = ["accuracy %, messages of a client", *(f"{share:g} spared" for share in SHARES)]
    show([Table(heads, plain(rows))], options.markdown)


if __name__ == "__main__":
    main()
