"""One measurement of `benchmarks.peers`: prepare the clients, or train them one way and print what it took as JSON."""

import argparse
import copy
import json
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# allforone and fluke live in environments of their own, so each is imported only where it is used.

SEED, PENALTY = 127, 0.1
OPTIONS: dict[str, dict[str, int]] = {"digits": {}, "mnist": {"clients": 20, "samples_per_client": 300}}

Split = tuple[Tensor, Tensor]


class Task(NamedTuple):
    """The same for everyone: the initial model and the clients' tensors, training sets cut to `steps` whole batches."""

    model: nn.Module
    train: list[Split]
    test: list[Split]
    batch: int
    steps: int
    lr: float


def prepare(name: str, path: Path) -> None:
    """Write a task. Inputs are normalised here: nobody is measured preparing data."""
    from allforone.problems import PROBLEMS
    from allforone.problems.data import Finite

    problem = PROBLEMS[name](seed=SEED, **OPTIONS[name])
    batch = problem.settings.batch_size
    steps = min(client.size for client in problem.clients) // batch  # whole batches only, as many for all: equal work
    parts: dict[str, list[Split]] = {"train": [], "test": []}
    for client in problem.clients:
        assert isinstance(client.train, Finite) and isinstance(client.test, Finite)
        parts["train"].append(client.train.take(torch.arange(steps * batch)))
        parts["test"].append(client.test.take(torch.arange(len(client.test))))
    # The step size alone: fluke's Ditto ignores every other option of the optimizer for the personal models.
    task = Task(problem.initial_model(SEED), **parts, batch=batch, steps=steps, lr=problem.settings.optimizer["lr"])
    torch.save(task._asdict(), path)


def allforone(task: Task, algorithm: str, rounds: int) -> list[nn.Module]:
    import allforone as afo
    from allforone.algorithms import Ditto

    clients = [afo.Client(train, test) for train, test in zip(task.train, task.test, strict=True)]
    return afo.train(
        copy.deepcopy(task.model),
        clients,
        loss=F.cross_entropy,
        rounds=rounds,
        inner=task.steps,
        algorithm=Ditto(PENALTY) if algorithm == "ditto" else afo.FedAvg(),
        batch_size=task.batch,
        lr=task.lr,
        evaluate_every=rounds,
        seed=SEED,
        progress=False,
    ).models


def fluke(task: Task, algorithm: str, rounds: int) -> list[nn.Module]:
    from fluke import DDict, FlukeENV  # type: ignore[import-not-found]
    from fluke.algorithms.ditto import Ditto  # type: ignore[import-not-found]
    from fluke.algorithms.fedavg import FedAVG  # type: ignore[import-not-found]
    from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader  # type: ignore[import-not-found]

    environment = FlukeENV()
    environment.set_seed(SEED)
    environment.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)  # rounds are all that is timed
    loaders = partial(FastDataLoader, num_labels=10, batch_size=task.batch)
    data = DummyDataContainer(
        [loaders(*train, shuffle=True) for train in task.train], [loaders(*test) for test in task.test], None, 10
    )
    client = {
        "batch_size": task.batch,
        "local_epochs": 1,
        "loss": nn.CrossEntropyLoss,
        "optimizer": {"name": "SGD", "lr": task.lr},
        "scheduler": {"step_size": 1, "gamma": 1},
    }
    if algorithm == "ditto":
        client |= {"model": copy.deepcopy(task.model), "tau": 1, "lam": PENALTY}
    settings = DDict(client=client, server={"weighted": True}, model=copy.deepcopy(task.model))
    made = (Ditto if algorithm == "ditto" else FedAVG)(len(task.train), DataSplitter(data), settings)
    made.run(rounds, 1.0)
    if algorithm == "ditto":
        return [client.personalized_model for client in made.clients]
    return [made.server.model] * len(task.train)


def plain(task: Task, algorithm: str, rounds: int) -> list[nn.Module]:
    """What one writes without a library: a module and an optimizer for each client, one client after the other."""
    torch.manual_seed(SEED)
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
        states = [model.state_dict() for model in local]
        common.load_state_dict(
            {
                name: sum(size / sum(sizes) * state[name] for size, state in zip(sizes, states, strict=True))
                for name in states[0]
            }
        )
    return personal if algorithm == "ditto" else [common] * len(sizes)


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


@torch.no_grad()
def accuracy(models: list[nn.Module], test: list[Split]) -> float:
    """The mean over clients, each model on the test data of its client."""
    shares = [(model.eval()(x).argmax(1) == y).double().mean() for model, (x, y) in zip(models, test, strict=True)]
    return float(torch.stack(shares).mean())


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
    found = accuracy(models, task.test)
    passes = 2 if algorithm == "ditto" else 1  # Ditto trains the common and the personal model
    return {
        "seconds_per_round": (long - short) / rounds,
        "samples_per_round": passes * len(task.train) * task.steps * task.batch,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "accuracy": found,
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
        prepare(options.what, options.path)
    else:
        task = Task(**torch.load(options.path, weights_only=False))  # a module, from a file of our own making
        print(json.dumps(measure(options.who, task, options.what, options.rounds)))


if __name__ == "__main__":
    main()
