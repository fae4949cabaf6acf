"""One measurement of `benchmarks.peers`: prepare the clients, or train them one way and print what it took as JSON."""

import argparse
import copy
import json
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .by_fluke import PENALTY, fluke
from .task import Split, Task, accuracies, prepared, read_tasks, write_tasks

# allforone and fluke live in environments of their own, so each is imported only where it is used.

SEED = 127
OPTIONS: dict[str, dict[str, int]] = {"digits": {}, "mnist": {"clients": 20, "samples_per_client": 300}}


def allforone(task: Task, algorithm: str, rounds: int) -> list[nn.Module]:
    from allforone.algorithms import Ditto, FedAvg

    return trained(task, Ditto(PENALTY) if algorithm == "ditto" else FedAvg(), rounds)


def trained(task: Task, algorithm: Any, rounds: int, **more: Any) -> list[nn.Module]:
    """By allforone; `algorithm` is one of its objects."""
    import allforone as afo

    clients = [afo.Client(train, test) for train, test in zip(task.train, task.test, strict=True)]
    return afo.train(
        copy.deepcopy(task.model),
        clients,
        loss=F.cross_entropy,
        rounds=rounds,
        inner=task.steps,
        algorithm=algorithm,
        batch_size=task.batch,
        lr=task.lr,
        evaluate_every=rounds,
        seed=task.seed,
        progress=False,
        **more,
    ).models


def plain(task: Task, algorithm: str, rounds: int) -> list[nn.Module]:
    """What one writes without a library: a module and an optimizer for each client, one client after the other."""
    torch.manual_seed(task.seed)
    common, sizes = copy.deepcopy(task.model), [len(y) for _, y in task.train]
    local, personal = ([copy.deepcopy(common) for _ in sizes] for _ in range(2))
    local_optimizers, personal_optimizers = (
        [torch.optim.SGD(model.parameters(), lr=task.lr) for model in models] for models in (local, personal)
    )
    for _ in range(rounds):
        for k, data in enumerate(task.train):
            local[k].load_state_dict(common.state_dict())
            epoch(local[k], local_optimizers[k], data, task.batch)
            if algorithm == "ditto":
                epoch(personal[k], personal_optimizers[k], data, task.batch, near=list(common.parameters()))
        average(local, sizes, common)
    return personal if algorithm == "ditto" else [common] * len(sizes)


def average(models: list[nn.Module], sizes: list[int], into: nn.Module) -> None:
    """Their mean, weighted by size."""
    states = [model.state_dict() for model in models]
    shares = [size / sum(sizes) for size in sizes]
    names = states[0]
    into.load_state_dict({name: sum(p * s[name] for p, s in zip(shares, states, strict=True)) for name in names})


def epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, data: Split, batch: int, near: list[nn.Parameter] | None = None
) -> None:
    inputs, targets = data
    for places in torch.randperm(len(targets)).split(batch):
        optimizer.zero_grad()
        F.cross_entropy(model(inputs[places]), targets[places]).backward()
        if near:
            with torch.no_grad():
                for own, other in zip(model.parameters(), near, strict=True):
                    assert own.grad is not None
                    own.grad.add_(own - other, alpha=PENALTY)
        optimizer.step()


WAYS: dict[str, Callable[[Task, str, int], list[nn.Module]]] = {"allforone": allforone, "fluke": fluke, "plain": plain}


def measure(who: str, task: Task, algorithm: str, rounds: int) -> dict[str, Any]:
    """What one round more costs: set-up and whatever happens once are in the short run too, and cancel out."""

    def seconds(rounds: int) -> tuple[float, list[nn.Module]]:
        start = time.perf_counter()
        models = WAYS[who](task, algorithm, rounds)
        return time.perf_counter() - start, models

    seconds(1)  # warms up
    short, _ = seconds(1)
    long, models = seconds(1 + rounds)
    passes = 2 if algorithm == "ditto" else 1  # Ditto trains the common and the personal model
    return {
        "seconds_per_round": (long - short) / rounds,
        "samples_per_round": passes * len(task.train) * task.steps * task.batch,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "accuracy": statistics.mean(accuracies(models, task.test)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("who", choices=["prepare", *WAYS])
    parser.add_argument("path", type=Path)
    parser.add_argument("what", help="prepare: the problem; else the algorithm")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, choices=(1, 2), default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.who == "prepare":
        write_tasks({"all": prepared(options.what, SEED, **OPTIONS[options.what])}, options.path)
    else:
        task = read_tasks(options.path)["all"]
        print(json.dumps(measure(options.who, task, options.what, options.rounds)))


if __name__ == "__main__":
    main()
