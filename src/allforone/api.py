"""What a practitioner calls: `train`, with a model, the clients, and a loss."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from .algorithms import Algorithm, AllForOne
from .describe import described
from .errors import InputError
from .fleet import Make, Participation, Schedule
from .problems import Client, Loss, Metric, Problem, accuracy
from .problems.data import Finite
from .progress import progress_of_run
from .reports import write_report
from .runs import PYTHON, Comparison, FinishedRun, Given, Result, carried, execute, export_module, parse, prepare


class Trained(Result):
    """Every client's own model, who listened to whom, and how it went."""

    def report(self, path: str | Path) -> Path:
        """Write a page that shows the run; one file that works offline.

        Example:
            >>> result.report("out/report.html")  # doctest: +SKIP
        """
        clients = [member._asdict() for member in self.roster]
        sizes = [member.size for member in self.roster]
        config = self.config.plain()
        run = FinishedRun("run", self.config.seed, carried(self.metrics), self.tables, config, sizes, clients)
        return write_report(Comparison(self.problem.name, [run], self.roster.clusters), Path(path))

    def export(self, client: int, folder: str | Path, onnx: bool = False) -> list[Path]:
        """Client `client`'s model into a new folder: its weights, a script that loads them and, if asked, ONNX.

        Example:
            >>> result.export(3, "out/client-3")  # doctest: +SKIP
        """
        title = f"Client {self.roster[client].name or client}"
        return export_module(self.model(client), self.problem, client, Path(folder), title, onnx=onnx)


def train(
    model: nn.Module | Callable[[], nn.Module] | Problem,
    clients: list[Client] | None = None,
    *,
    loss: Loss | None = None,
    algorithm: Algorithm | None = None,
    rounds: int | None = None,
    inner: int | None = None,
    batch_size: int | None = None,
    optimizer: Make | None = None,
    lr: float | None = None,
    scheduler: Schedule | None = None,
    schedule: str | dict[str, Any] | None = None,
    metrics: Mapping[str, Metric | Callable[..., Any]] | Literal["auto"] = "auto",
    smoothness: float | None = None,
    evaluate_every: int = 1,
    participation: Participation = 1.0,
    guard: bool = False,
    seed: int = 127,
    fleet: str | dict[str, Any] = "stacked",
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
) -> Trained:
    """Train a model of its own for every client.

    Args:
        model: an nn.Module, or a function that makes one; or an `afo.Problem`, which has all of model, clients, loss,
            metrics and smoothness, and its own settings in the place of the defaults below.
        clients: one `afo.Client` for each site.
        loss: (output, target) → scalar, a mean over the batch.
        algorithm: by default `AllForOne()`.
        rounds: by default 100.
        inner: updates per round with the same weights, by default 1.
        batch_size: samples per client and update, by default 16.
        optimizer: a function from the parameters of one model to a torch optimizer, such as
            `partial(torch.optim.Adam, lr=1e-3)`; it may group them by shape or, if its argument is called
            `named_parameters`, by name. By default SGD.
        lr: the step size of that SGD, by default 0.1.
        scheduler: a function from the optimizer to a torch scheduler, which takes one step per round.
        schedule: a step size of the theory, "constant", "horizon" or "decreasing", with the constants that are not
            known: `{"name": "decreasing", "smoothness": 4, "convexity": 0.1}`.
        metrics: name → function of all outputs and targets of a client, or `afo.Metric`; by default accuracy where the
            targets are classes.
        smoothness: β, where it is known.
        evaluate_every: rounds between two looks at the test data.
        participation: with which probability a client is there in a round, or a function from the round's first step
            to [N], who is there.
        guard: hold out a fifth of each client's training data, train every client alone as well, and give it that model
            where collaboration hurts; `result.guard` tells.
        seed: decides the initial model, where a function makes it, and every batch.
        fleet: "stacked", "compiled" (faster for small models in long runs) or "loop" (plain).
        out: a new folder for the run; with resume=True one to go on from.
        resume: go on with what `out` holds; refused if anything that decides the numbers has changed.
        progress: by default on a terminal only; False also keeps back advice.

    Returns:
        Every client's own model, who listened to whom, and how it went.

    Example:
        >>> import allforone as afo
        >>> result = afo.train(afo.digits(clients=4), rounds=2)
        >>> len(result.models), list(result.weights.shape)
        (4, [2, 4, 4])
    """
    problem = _problem(model, clients, loss, metrics, smoothness)
    algorithm = AllForOne() if algorithm is None else algorithm
    if not isinstance(algorithm, Algorithm):
        raise InputError(
            f"algorithm is {algorithm!r}: give an object such as afo.AllForOne(); yours is an afo.Algorithm"
        )
    if lr is not None and optimizer is not None:
        raise InputError(f"lr={lr} is given beside an optimizer, which has a step size of its own: leave one out")
    config = parse(
        {
            "problem": PYTHON,
            "algorithm": described(algorithm),
            "optimizer": None if lr is None else {"lr": lr},
            **{"rounds": rounds, "inner": inner, "batch_size": batch_size, "schedule": schedule, "seed": seed},
            **{"fleet": fleet, "guard": guard, "evaluate_every": evaluate_every},
            "participation": 1.0 if callable(participation) else participation,
        },
        "train",
    )
    given = Given(problem, algorithm, optimizer, scheduler, participation)
    run = prepare(config, given)
    advice = algorithm.advice(len(problem.clients))
    with progress_of_run(run.config.rounds or 0, run.config.metrics, progress, advice) as on_round:
        result = execute(run, None if out is None else Path(out), resume=resume, on_round=on_round)
    return Trained(**vars(result))


def _problem(
    model: Any,
    clients: list[Client] | None,
    loss: Loss | None,
    metrics: Mapping[str, Metric | Callable[..., Any]] | Literal["auto"],
    smoothness: float | None,
) -> Problem:
    if isinstance(model, Problem):
        if clients is not None or loss is not None or metrics != "auto" or smoothness is not None:
            raise InputError("a Problem has its own clients, loss, metrics and smoothness: leave them out beside it")
        return model
    if clients is None or loss is None:
        raise InputError("give a model, its clients and a loss: train(model, clients, loss=…); or a Problem")
    for place, client in enumerate(clients):
        if not isinstance(client, Client):
            raise InputError(f"clients[{place}] is a {type(client).__name__}: make it an afo.Client(train, test)")
    if smoothness is not None and not (isinstance(smoothness, int | float) and smoothness > 0):
        raise InputError(f"smoothness is {smoothness!r}: must be a number above 0")
    if isinstance(metrics, str):
        metrics = {"accuracy": accuracy} if _has_classes(clients) else {}
    return Problem(model, loss, metrics=metrics, smoothness=smoothness, name="problem", clients=clients)  # type: ignore[arg-type]


def _has_classes(clients: list[Client]) -> bool:
    if not clients or not isinstance(clients[0].test, Finite) or len(clients[0].test) == 0:
        return False
    _, target = clients[0].test.take(torch.tensor([0]))
    return target.dtype == torch.long and target.dim() == 1
