"""What a practitioner calls: `train`, with a model, the clients, and a loss."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, NoReturn

import torch
from torch import nn

from .algorithms import Algorithm, AllForOne
from .describe import described
from .errors import InputError, short, within
from .fleet import Make, Participation, Privacy, Schedule
from .problems import Client, Loss, Metric, Precision, Problem, Settings, Task, accuracy
from .problems.base import loader_size
from .problems.client import Clients, listed
from .problems.data import Finite
from .results import Trained, carry_out, start_from
from .runs import PYTHON, Callback, Given, Record, listed_callbacks, needs_data, parse, read_result
from .runs.config import refuse_two_step_sizes


def train(
    model: nn.Module | Callable[[], nn.Module] | Problem | None = None,
    clients: Clients | None = None,
    *,
    models: Trained | None = None,
    loss: Loss | None = None,
    algorithm: Algorithm | None = None,
    rounds: int | None = None,
    inner: int | None = None,
    batch_size: int | None = None,
    optimizer: Make | None = None,
    lr: float | None = None,
    scheduler: Schedule | None = None,
    clip: float | None = None,
    precision: Precision | None = None,
    device: str | None = None,
    privacy: Privacy | None = None,
    private: str | Sequence[str] | None = None,
    alternate: int | None = None,
    schedule: str | dict[str, Any] | None = None,
    metrics: Mapping[str, Metric | Callable[..., Any]] | Literal["auto"] = "auto",
    smoothness: float | None = None,
    evaluate_every: int | None = None,
    participation: Participation | None = None,
    guard: bool | None = None,
    seed: int | None = None,
    fleet: str | dict[str, Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback | Callable[[Record], bool | None]] = (),
    progress: bool | None = None,
) -> Trained:
    """Train a model of its own for every client.

    Args:
        model: an nn.Module, or a function that makes one; or an `afo.Problem`, which has all of model, clients, loss,
            metrics and smoothness, and its own settings in the place of the defaults below.
        clients: one `afo.Client` for each site, or a dict of names to those or to (train, test).
        models: what an earlier run gave, to go on from: every client starts from its own model, found by its name, and
            the batches that follow. Where no `model` is given, problem and settings are those of that run.
        loss: (output, target) → scalar, a mean over the batch.
        algorithm: by default `AllForOne()`.
        rounds: by default 100.
        inner: updates per round with the same weights, by default 1.
        batch_size: samples per client and update; by default that of the DataLoaders given as data, else 16.
        optimizer: a function from the parameters of one model to a torch optimizer, such as
            `partial(torch.optim.Adam, lr=1e-3)`; it may group them by shape or, if its argument is called
            `named_parameters`, by name. By default SGD.
        lr: the step size of that SGD, by default 0.1.
        scheduler: a function from the optimizer to a torch scheduler, which takes one step per round.
        clip: the norm to which each client shortens every gradient that it answers with, before it is weighted and
            summed with those of others, as `torch.nn.utils.clip_grad_norm_` does.
        precision: "bf16" computes the passes of training under `torch.autocast`, parameters and updates in float32; by
            default "float32".
        device: where models are computed: "cpu", "cuda" or "cuda:1", "mps", or "auto", the fastest of these that is
            there; by default the CPU. Batches are drawn on the CPU, whatever the device; results are on the CPU.
        privacy: `afo.Privacy(clip=1.0, noise=1.0)` makes all that clients answer differentially private; the column
            `epsilon` of the metrics tells what each has spent. Losses and metrics of test data are not made private.
        private: names or patterns of parameters and buffers that never leave their owner and are trained on its data
            alone, as "head.*" or ["head", "norm1.*"]; "batchnorm" are those of all layers that normalise,
            "statistics" their buffers alone. What is not private is trained by the algorithm.
        alternate: updates that private parts take by themselves at the beginning of each round, after which they stand
            still; by default both parts take each update together.
        schedule: a step size of the theory, "constant", "horizon" or "decreasing", with the constants that are not
            known: `{"name": "decreasing", "smoothness": 4, "convexity": 0.1}`.
        metrics: name → function of all outputs and targets of a client, or `afo.Metric`; by default accuracy where the
            targets are classes.
        smoothness: β, where it is known.
        evaluate_every: rounds between two looks at the test data, by default 1.
        participation: with which probability a client is there in a round, or a function from the round's first step
            to [N], who is there; by default always.
        guard: hold out a fifth of each client's training data, train every client alone as well, and give it that model
            where collaboration hurts; `result.guard` tells.
        seed: decides the initial model, where a function makes it, and every batch; by default 127.
        fleet: "stacked", "compiled" (faster for small models in long runs), "loop" (plain) or "ray" (processes of Ray),
            with options as `{"name": "ray", "address": "ray://host:10001"}`.
        out: a new folder for the run; with resume=True one to go on from.
        resume: go on with what `out` holds; refused if anything that decides the numbers has changed.
        callbacks: who looks on: `afo.EarlyStopping()`, `afo.MLflow()`, `afo.WandB()`, your own `afo.Callback`, or a
            function of a round; True ends the run.
        progress: by default on a terminal only; False also keeps back advice.

    Returns:
        Every client's own model, who listened to whom, and how it went.

    Example:
        >>> import allforone as afo
        >>> result = afo.train(afo.digits(clients=4), rounds=2)
        >>> len(result.models), list(result.weights.shape)
        (4, [2, 4, 4])
    """
    going_on = models if model is None else None
    problem = going_on.problem if going_on else _problem(model, clients, loss, metrics, smoothness, batch_size)
    _check_parts(algorithm, optimizer, lr, privacy)
    watching = listed_callbacks(callbacks)
    told = {
        "hold_out": max((watcher.hold_out for watcher in watching if watcher.hold_out), default=None),
        "algorithm": None if algorithm is None else described(algorithm),
        "optimizer": None if lr is None else {"lr": lr},
        **{"rounds": rounds, "inner": inner, "batch_size": batch_size, "schedule": schedule, "seed": seed},
        **{"clip": clip, "precision": precision, "device": device, "fleet": fleet, "guard": guard},
        **{"evaluate_every": evaluate_every, "private": private, "alternate": alternate},
        "privacy": None if privacy is None else asdict(privacy),
        "participation": 1.0 if callable(participation) else participation,
    }
    earlier = going_on.given if going_on else Given(algorithm=AllForOne())
    given = Given(
        problem,
        algorithm or earlier.algorithm,
        optimizer or (None if lr else earlier.optimizer),
        scheduler or earlier.scheduler,
        earlier.participation if participation is None else participation,
        None if models is None else start_from(models, [client.name for client in _clients(problem)]),
        privacy=privacy or earlier.privacy,
    )
    told = {**_base(going_on), **{key: value for key, value in told.items() if value is not None}}
    refuse_two_step_sizes(lr, told.get("schedule"))
    where = None if out is None else Path(out)
    return carry_out(parse(told, "train"), given, where, resume=resume, progress=progress, callbacks=watching)


def load(folder: str | Path, model: nn.Module | Callable[[], nn.Module] | Task | None = None) -> Trained:
    """The result of a finished run from its folder, whoever wrote it: `result.save`, `afo.train(out=…)` or the
    command line.

    Args:
        folder: of the run.
        model: what was trained, where the folder alone cannot tell: of a run from Python, its model or, for what needs
            data too, its `afo.Problem`. Without it all but the models can be asked.

    Example:
        >>> afo.load("out/digits-all-for-one-127").model(3)  # doctest: +SKIP
    """
    task = model if model is None or isinstance(model, Task) else Task(model, _no_loss)
    return Trained(**vars(read_result(Path(folder), task)))


def _check_parts(algorithm: Any, optimizer: Make | None, lr: float | None, privacy: Any) -> None:
    if privacy is not None and not isinstance(privacy, Privacy):
        raise InputError(f"privacy is {short(privacy)}: give afo.Privacy(clip=1.0, noise=1.0)")
    if algorithm is not None and not isinstance(algorithm, Algorithm):
        raise InputError(
            f"algorithm is {algorithm!r}: give an object such as afo.AllForOne(); yours is an afo.Algorithm"
        )
    if lr is not None and optimizer is not None:
        raise InputError(f"lr={lr} is given beside an optimizer, which has a step size of its own: leave one out")


def _base(going_on: Trained | None) -> dict[str, Any]:
    return _settings(going_on) if going_on else {"problem": PYTHON}


def _settings(models: Trained) -> dict[str, Any]:
    """Those of an earlier run, but for what is filled in anew."""
    filled = ("identity", "metrics", "label")
    return {**{key: value for key, value in models.config.plain().items() if key not in filled}, "problem": PYTHON}


def _clients(problem: Task) -> Sequence[Client]:
    return needs_data(problem, "going on from models").clients


def _no_loss(*_: Any) -> NoReturn:
    raise InputError("the loss is not known: give afo.load the afo.Problem that was trained")


def _problem(
    model: Any,
    clients: Clients | None,
    loss: Loss | None,
    metrics: Mapping[str, Metric | Callable[..., Any]] | Literal["auto"],
    smoothness: float | None,
    batch_size: int | None,
) -> Problem:
    if isinstance(model, Problem):
        if clients is not None or loss is not None or metrics != "auto" or smoothness is not None:
            raise InputError("a Problem has its own clients, loss, metrics and smoothness: leave them out beside it")
        return model
    if clients is None or loss is None:
        raise InputError("give a model, its clients and a loss: train(model, clients, loss=…); or a Problem")
    found = listed(clients)
    if isinstance(metrics, str):
        metrics = {"accuracy": accuracy} if _has_classes(found) else {}
    return Problem(
        model,
        loss,
        metrics=metrics,  # type: ignore[arg-type]
        settings=Settings(batch_size=loader_size(found, batch_size)),
        smoothness=smoothness,
        name="problem",
        clients=found,
    )


def _has_classes(clients: list[Client]) -> bool:
    for k, client in enumerate(clients):
        if isinstance(client.test, Finite) and len(client.test):
            with within(f"client {k}, test data"):
                _, target = client.test.take(torch.tensor([0]))
            return isinstance(target, torch.Tensor) and target.dtype == torch.long and target.dim() == 1
    return False
