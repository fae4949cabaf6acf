"""What a large model takes of memory: ten clients train alone, as Local and as plain PyTorch loops do it.

python -m benchmarks memory                        # the table: each in a process of its own, whose memory is its own
python -m benchmarks.memory --case allforone Adam  # one of them
"""

import argparse
import copy
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import allforone as afo

CLIENTS, BATCH, UPDATES = 10, 16, 4
#: Rounds of a short run and of a long one: what lies between them has no start in it.
SHORT, LONG = 3, 9
OPTIMIZERS = {"SGD": partial(torch.optim.SGD, lr=1e-2), "Adam": partial(torch.optim.Adam, lr=1e-4)}


def network() -> nn.Module:
    """9.8 million parameters."""
    return nn.Sequential(nn.Linear(784, 2800), nn.ReLU(), nn.Linear(2800, 2700), nn.ReLU(), nn.Linear(2700, 10))


def data(client: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(client)
    return torch.randn(64, 784, generator=random), torch.randint(10, (64,), generator=random)


def ours(optimizer: str, rounds: int) -> None:
    clients = [afo.Client(data(k), None) for k in range(CLIENTS)]
    afo.train(
        network(),
        clients,
        loss=F.cross_entropy,
        algorithm=afo.Local(),
        rounds=rounds,
        inner=UPDATES,
        batch_size=BATCH,
        optimizer=OPTIMIZERS[optimizer],
        evaluate_every=rounds,
        progress=False,
    )


def plain(optimizer: str, rounds: int) -> None:
    """As anybody would write it."""
    first, sites = network(), [data(k) for k in range(CLIENTS)]
    models = [copy.deepcopy(first) for _ in sites]
    optimizers = [OPTIMIZERS[optimizer](model.parameters()) for model in models]
    for step in range(rounds * UPDATES):
        some = torch.arange(BATCH) + BATCH * (step % 4)
        for model, updates, (x, y) in zip(models, optimizers, sites, strict=True):
            updates.zero_grad()
            F.cross_entropy(model(x[some]), y[some]).backward()
            updates.step()


CASES = {"allforone": ours, "plain": plain}


def case(name: str, optimizer: str) -> dict[str, float]:
    """In this process."""

    def seconds(rounds: int) -> float:
        start = time.perf_counter()
        CASES[name](optimizer, rounds)
        return time.perf_counter() - start

    short = seconds(SHORT)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # of one run, as a user has it
    return {"mb": peak, "seconds": (seconds(LONG) - short) / ((LONG - SHORT) * UPDATES)}


def memory() -> Iterator[dict[str, Any]]:
    for optimizer in OPTIMIZERS:
        found = {}
        for name in CASES:
            command = [sys.executable, "-m", "benchmarks.memory", "--case", name, optimizer]
            found[name] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        ours, plain = found["allforone"], found["plain"]
        yield {
            "what": f"Local, {CLIENTS} models of 9.8 million parameters, {optimizer}",
            "against": "plain PyTorch loops",
            "peak MB, theirs": plain["mb"],
            "peak MB": ours["mb"],
            "times their memory": ours["mb"] / plain["mb"],
            "s a step, theirs": plain["seconds"],
            "s a step": ours["seconds"],
        }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs=2, metavar=("NAME", "OPTIMIZER"), required=True)
    print(json.dumps(case(*parser.parse_args().case)))
