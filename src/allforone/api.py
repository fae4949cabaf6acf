"""What a practitioner calls: `train`, with a model, the clients, and a loss."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from .algorithms import Algorithm, AllForOne
from .errors import InputError
from .fleet import FLEETS, Optimizer
from .fleet.in_process import Participation
from .fleet.optimizer import Make, Schedule
from .problems import Client, Loss, Problem, accuracy, hold_out
from .problems.data import Finite
from .progress import follow
from .reports import write_report
from .runs import Choice, Folder, Result, Run, export_module, resolve_schedule
from .runs import train as train_run
from .runs.summary import Comparison, FinishedRun
from .runs.training import HELD_OUT, guarded
from .theory import scheduler as theory_scheduler


@dataclass(frozen=True)
class Trained(Result):
    """Every client's own model, who listened to whom, and how it went."""

    config: dict[str, Any]

    def report(self, path: str | Path) -> Path:
        """Write a page that shows the run; one file that works offline."""
        clients = [{"name": c.name, "cluster": c.cluster, "samples": c.size} for c in self.problem.clients]
        size = sum(tensor[0].numel() * tensor.element_size() for tensor in self.stacked.values())
        sizes = [client.size for client in self.problem.clients]
        run = FinishedRun("run", 0, self.metrics, self.history.tensors(), self.config, sizes, clients, size)
        return write_report(Comparison(self.problem.name, [run], self.problem.clusters), Path(path))

    def export(self, client: int, folder: str | Path, onnx: bool = False) -> list[Path]:
        """Client `client`'s model into a new folder: its weights, a script that loads them and, if asked, ONNX."""
        title = f"Client {self.problem.clients[client].name or client}"
        return export_module(self.model(client), self.problem, client, Path(folder), title, onnx=onnx)


def train(
    model: nn.Module | Callable[[], nn.Module],
    clients: list[Client],
    *,
    loss: Loss,
    algorithm: Algorithm | None = None,
    rounds: int = 100,
    inner: int = 1,
    batch_size: int = 16,
    optimizer: Make | None = None,
    lr: float = 0.1,
    scheduler: Schedule | None = None,
    schedule: str | dict[str, Any] | None = None,
    metric: Loss | Literal["auto"] | None = "auto",
    smoothness: float | None = None,
    evaluate_every: int = 1,
    participation: Participation = 1.0,
    guard: bool = False,
    seed: int = 127,
    fleet: Literal["stacked", "compiled", "loop"] = "stacked",
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
) -> Trained:
    """Train a model of its own for every client.

    model: an nn.Module, or a function that makes one. loss: (output, target) → scalar, a mean over the batch.
    algorithm: `AllForOne()` unless told. optimizer: a function from parameters to a torch optimizer, such as
    `partial(torch.optim.Adam, lr=1e-3)`; SGD with step size `lr` unless told. scheduler: likewise, one step per round.
    schedule: a step size of the theory, "constant", "horizon" or "decreasing", with the constants that are not known:
    `{"name": "decreasing", "smoothness": 4, "convexity": 0.1}`.
    metric: (output, target) → scalar in [0, 1]; "auto" is accuracy where the targets are classes.
    participation: with which probability a client is there in a round, or a function step → [N] of who is there.
    guard: hold out a fifth of each client's training data, train every client alone as well, and give it that model
    where collaboration hurts; `result.guard` tells.
    out: a new folder for the run; with resume=True one to go on from. progress: unless told, on a terminal only.
    """
    for name, value in (
        ("rounds", rounds),
        ("inner", inner),
        ("batch_size", batch_size),
        ("evaluate_every", evaluate_every),
    ):
        if not isinstance(value, int) or value < 1:
            raise InputError(f"{name} is {value!r}: must be a whole number, at least 1")
    for name, number in (("lr", lr), ("smoothness", smoothness)):
        if number is not None and not (isinstance(number, int | float) and number > 0):
            raise InputError(f"{name} is {number!r}: must be a number above 0")
    for place, client in enumerate(clients):
        if not isinstance(client, Client):
            raise InputError(f"clients[{place}] is a {type(client).__name__}: make it an afo.Client(train, test)")
    algorithm = AllForOne() if algorithm is None else algorithm
    if isinstance(algorithm, type) or not (hasattr(algorithm, "init") and hasattr(algorithm, "step")):
        raise InputError(f"algorithm is {algorithm!r}: give an object such as afo.AllForOne() or afo.FedAvg()")
    if fleet not in FLEETS:
        raise InputError(f"fleet is {fleet!r}: must be one of {', '.join(FLEETS)}")
    if metric == "auto":
        metric = accuracy if _has_classes(clients) else None
    problem = Problem(clients, model, loss, metric, smoothness=smoothness)
    unguarded = algorithm
    if guard:
        algorithm, problem = guarded(algorithm), hold_out(problem, HELD_OUT, seed)
    scheduler, chosen = _scheduled(scheduler, schedule, problem, seed, batch_size, rounds, inner)
    run = Run(
        FLEETS[fleet](problem, seed=seed, batch_size=batch_size, participation=participation),
        algorithm,
        Optimizer(optimizer or partial(torch.optim.SGD, lr=lr), scheduler),
        rounds,
        inner,
        evaluate_every,
    )
    config: dict[str, Any] = {
        "problem": {
            "name": "python",
            "clients": len(clients),
            "shapes": {name: list(tensor.shape[1:]) for name, tensor in run.fleet.initial().items()},
        },
        "algorithm": {"name": type(unguarded).__name__},
        "rounds": rounds,
        "inner": inner,
        "batch_size": batch_size,
        "optimizer": _told(run.optimizer.make),
        "scheduler": None if chosen else _told(scheduler),
        "seed": seed,
        "fleet": fleet,
        "evaluate_every": evaluate_every,
        "guard": guard,
        "participation": _told(participation) if callable(participation) else participation,
    }
    if chosen:
        config["schedule"] = chosen.model_dump()
    folder = None
    if out is not None:
        folder = Folder.reopen(Path(out), config) if resume else Folder.create(Path(out), config, problem)
    with follow(rounds, progress) as on_round:
        result = train_run(run, folder, on_round)
    every = getattr(getattr(unguarded, "estimator", None), "every", None)  # not in the folder's config
    told = {**config, "algorithm": {**config["algorithm"], **({"every": every} if every else {})}}
    return Trained(result.problem, result.stacked, result.history, result.module, told)


def _scheduled(
    scheduler: Schedule | None,
    schedule: str | dict[str, Any] | None,
    problem: Problem,
    seed: int,
    batch_size: int,
    rounds: int,
    inner: int,
) -> tuple[Schedule | None, Choice | None]:
    """The scheduler of a schedule, and the schedule with all its constants."""
    if schedule is None:
        return scheduler, None
    if scheduler:
        raise InputError("both scheduler and schedule are given: each sets the step size; leave one out")
    choice = Choice(name=schedule) if isinstance(schedule, str) else Choice(**schedule)
    chosen = resolve_schedule(choice, problem, seed, batch_size)
    return theory_scheduler(str(chosen.name), chosen.options, rounds * inner, inner), chosen


def _has_classes(clients: list[Client]) -> bool:
    if not clients or not isinstance(clients[0].test, Finite) or len(clients[0].test) == 0:
        return False
    _, target = clients[0].test.take(torch.tensor([0]))
    return target.dtype == torch.long and target.dim() == 1


def _told(made: Any) -> dict[str, Any] | None:
    """What can be said of a function that makes an optimizer or a scheduler."""
    if made is None:
        return None
    name = getattr(getattr(made, "func", made), "__name__", type(made).__name__)
    options = getattr(made, "keywords", {})
    return {"name": name, **{key: value for key, value in options.items() if isinstance(value, int | float | str)}}
