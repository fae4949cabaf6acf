"""The same work for everybody who is compared: initial model and clients' tensors, in a file that needs torch alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

# fluke lives in an environment of its own, without allforone, which is therefore imported only where it is used.

Split = tuple[Tensor, Tensor]


class Task(NamedTuple):
    """Training sets are cut to `steps` whole batches."""

    model: nn.Module
    train: list[Split]
    test: list[Split]
    batch: int
    steps: int
    lr: float
    seed: int


def prepared(name: str, seed: int, **options: Any) -> Task:
    """A problem's. Inputs are normalised here: nobody is measured preparing data."""
    from allforone.problems import PROBLEMS
    from allforone.problems.data import Finite

    problem = PROBLEMS[name](seed=seed, **options)
    batch = problem.settings.batch_size
    steps = min(client.size for client in problem.clients) // batch  # whole batches only, as many for all: equal work
    parts: dict[str, list[Split]] = {"train": [], "test": []}
    for client in problem.clients:
        assert isinstance(client.train, Finite) and isinstance(client.test, Finite)
        parts["train"].append(client.train.take(torch.arange(steps * batch)))
        parts["test"].append(client.test.take(torch.arange(len(client.test))))
    # The step size alone: fluke's Ditto ignores every other option of the optimizer for the personal models.
    lr = problem.settings.optimizer["lr"]
    return Task(problem.initial_model(seed), **parts, batch=batch, steps=steps, lr=lr, seed=seed)


def write_tasks(tasks: Mapping[str, Task], path: Path) -> None:
    torch.save({name: task._asdict() for name, task in tasks.items()}, path)


def read_tasks(path: Path) -> dict[str, Task]:
    """By the name they were given."""
    found = torch.load(path, weights_only=False)  # modules, from a file of our own making
    return {name: Task(**parts) for name, parts in found.items()}


@torch.no_grad()
def accuracies(models: list[nn.Module], test: list[Split]) -> list[float]:
    """By client: each model on the test data of its client."""
    return [float((m.eval()(x).argmax(1) == y).double().mean()) for m, (x, y) in zip(models, test, strict=True)]
