"""Whether the network explains how far the paper's Mnist is from ours: Local or FedAvg at its settings, three networks.

    python -m benchmarks.mnist_networks                                    # Local, the first six of the 20 clients
    python -m benchmarks.mnist_networks --algorithm fedavg                 # all 20
    python -m benchmarks.mnist_networks --rounds 10                        # of 100: a first look

The paper says 20 thousand parameters, as ours has; the network that its authors stored has 421,642 and dropout.
"""

import argparse
from dataclasses import replace
from functools import partial
from statistics import fmean

import polars
from torch import nn

import allforone as afo
from allforone.algorithms import ALGORITHMS
from allforone.problems.mnist import mnist, network
from allforone.reports.style import label
from allforone.reports.table import Table, plain

from .shown import show


def stored(dropout: float) -> nn.Module:
    """Two convolutions of 32 and 64 channels, a full layer of 128: the one usual network of 421,642 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(64 * 7 * 7, 128),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(128, 10),
    )


NETWORKS = {
    "ours": network,
    "421,642 parameters": partial(stored, 0.0),
    "421,642, dropout of a half": partial(stored, 0.5),
}


#: Who is trained, of 20: alone each has its model whoever else is there, averaged it has not.
CLIENTS = {"local": 6, "fedavg": 20}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", choices=list(CLIENTS), default="local")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=127)
    parser.add_argument("--markdown", action="store_true", help="a table for a document")
    options = parser.parse_args()
    problem = mnist(seed=options.seed)
    problem = replace(problem, clients=problem.clients[: CLIENTS[options.algorithm]])
    rows = []
    for name, model in NETWORKS.items():
        run = afo.train(
            replace(problem, model=model),
            algorithm=ALGORITHMS[options.algorithm](),
            rounds=options.rounds,
            seed=options.seed,
            evaluate_every=options.rounds,
        )
        last = run.metrics.filter(polars.col("round") == options.rounds)
        scores = [100 * score for score in last["accuracy"]]
        rows.append([name, f"{fmean(scores):.2f}", " ".join(f"{score:.1f}" for score in scores)])
    title = f"{label(options.algorithm)} on Mnist, test %, {options.rounds} rounds"
    show([Table([title, "mean", "by client"], plain(rows))], options.markdown)


if __name__ == "__main__":
    main()
