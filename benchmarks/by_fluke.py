"""Algorithms as fluke has them, on the clients of a `Task`: runs in fluke's own environment, without allforone.

`python -m benchmarks.by_fluke TASKS` prints the accuracy of every client, by algorithm, as JSON.
"""

import copy
import json
import sys
import types
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .task import Task, accuracies, read_tasks

ROUNDS = 30
#: λ of Ditto and pFedMe.
PENALTY = 0.1
#: K of pFedMe, updates on one batch.
STEPS = 5
#: α of APFL, which fluke does not learn.
MIXTURE = 0.25
#: Of FedAMP: λ/α, α and σ. Each of nine others has a weight of at most α/σ = 0.05, less where models lie far apart.
PULL, RATE, WIDTH = 0.5, 1.0, 20.0


@dataclass(frozen=True)
class Made:
    """Where fluke has an algorithm, and what it is given beside what all are."""

    place: str
    client: dict[str, Any] = field(default_factory=dict)
    server: dict[str, Any] = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=dict)
    personal: bool = False  #: its clients are given a model of their own at the start
    split: bool = False  #: its model must have an encoder and a head
    as_trained: bool = False  #: clients would replace their models by others at the end of the run, so that is left out


def made(task: Task) -> dict[str, Made]:
    pull = {"lam": PULL * task.lr}  # it divides by the step size
    pfedme = {"lamda": PENALTY, "mu": 0.0}
    return {
        "fedavg": Made("fedavg.FedAVG"),
        "fedbn": Made("fedbn.FedBN"),
        "ditto": Made("ditto.Ditto", {"tau": 1, "lam": PENALTY}, personal=True),
        "apfl": Made("apfl.APFL", {"lam": MIXTURE}, {"tau": 1}, personal=True),
        "fedamp": Made("fedamp.FedAMP", pull, {"sigma": WIDTH, "alpha": RATE}, personal=True),
        "fedala": Made("fedala.FedALA", split=True, as_trained=True),
        "fedper": Made("fedper.FedPer", personal=True, split=True),
        "fedrep": Made("fedrep.FedRep", {"tau": 1}, personal=True, split=True),
        "pfedme": Made("pfedme.PFedMe", {"k": STEPS}, {"beta": 1.0}, pfedme, as_trained=True),
    }


def fluke(task: Task, algorithm: str, rounds: int) -> list[nn.Module]:
    from fluke import DDict, FlukeENV  # type: ignore[import-not-found]
    from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader  # type: ignore[import-not-found]

    if "fluke.nets" not in sys.modules:
        import_nets()

    environment = FlukeENV()
    environment.set_seed(task.seed)
    environment.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)  # rounds are all that is timed
    loaders = partial(FastDataLoader, num_labels=10, batch_size=task.batch)
    data = DummyDataContainer(
        [loaders(*train, shuffle=True) for train in task.train], [loaders(*test) for test in task.test], None, 10
    )
    how = made(task)[algorithm]
    client = {
        "batch_size": task.batch,
        "local_epochs": 1,
        "loss": nn.CrossEntropyLoss,
        "optimizer": {"name": "SGD", "lr": task.lr, **how.optimizer},
        "scheduler": {"step_size": 1, "gamma": 1},
        **how.client,
    }
    model = with_head(task.model) if how.split else copy.deepcopy(task.model)
    if how.personal:
        client["model"] = model
    common = model.encoder if how.personal and how.split else copy.deepcopy(model)
    settings = DDict(client=client, server={"weighted": True, **how.server}, model=common)
    module, _, name = how.place.partition(".")
    found = getattr(import_module(f"fluke.algorithms.{module}"), name)(len(task.train), DataSplitter(data), settings)
    for each in found.clients if algorithm == "fedrep" else ():
        each.model = copy.deepcopy(each.model)  # it gives all clients one and the same
    if how.as_trained:
        found.finalize = lambda: None
    found.run(rounds, 1.0)
    return theirs(found, algorithm)


def theirs(found: Any, algorithm: str) -> list[nn.Module]:
    """Each client's own model. That of FedAMP is θ_i; u_i, to which it is drawn, is what fluke calls personalized."""
    if algorithm == "fedavg":
        return [found.server.model] * len(found.clients)
    if algorithm in ("ditto", "apfl"):
        return [client.personalized_model for client in found.clients]
    return [client.model for client in found.clients]


def with_head(model: nn.Module) -> Any:
    from fluke.nets import EncoderHeadNet  # type: ignore[import-not-found]

    *body, head = copy.deepcopy(model).children()
    return EncoderHeadNet(nn.Sequential(*body), head)


def import_nets() -> None:
    """fluke.nets imports three networks of torchvision, which are not used here and would bring another torch."""
    models: Any = types.ModuleType("torchvision.models")
    models.resnet18 = models.resnet34 = models.resnet50 = None
    missing = {"torchvision": types.ModuleType("torchvision"), "torchvision.models": models}
    sys.modules.update(missing)
    import_module("fluke.nets")
    for name in missing:  # others ask whether it is there, and must hear no
        del sys.modules[name]


if __name__ == "__main__":
    torch.set_num_threads(1)
    tasks = read_tasks(Path(sys.argv[1]))
    found = {name: fluke(task, name, ROUNDS) for name, task in tasks.items()}
    print(json.dumps({name: accuracies(models, tasks[name].test) for name, models in found.items()}))
