"""The training loop: rounds of an algorithm on a fleet, evaluated, recorded, and kept on disk as it goes."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars
from torch import Tensor, nn

from ..algorithms import Algorithm, Guarded, Local, State
from ..errors import Diverged, InputError
from ..fleet import FLEETS, Attack, Attacked, InProcess, Models, Optimizer, row
from ..problems import Problem, hold_out
from . import checkpoint
from .checkpoint import Checkpoint
from .config import RunConfig, build_algorithm, build_optimizer, load_problem, parse, resolve
from .folder import Folder
from .history import History, Round, verdicts

CHECKPOINT_SECONDS = 20.0
HELD_OUT = 0.2  # of every client's training data, where a guard watches

OnRound = Callable[[Round], None]


@dataclass(frozen=True)
class Run:
    """All parts of a run, ready to start."""

    fleet: InProcess
    algorithm: Algorithm
    optimizer: Optimizer
    rounds: int
    inner: int = 1
    evaluate_every: int = 1


@dataclass(frozen=True)
class Result:
    """What a run gives: every client its own model, and how they came to be."""

    problem: Problem
    stacked: Models
    history: History
    module: nn.Module

    @property
    def models(self) -> list[nn.Module]:
        """Client i's own model at place i."""
        return [self.model(i) for i in range(len(self.problem.clients))]

    def model(self, client: int) -> nn.Module:
        model = copy.deepcopy(self.module)
        model.load_state_dict(row(self.stacked, client), strict=False)
        return model.eval()

    @property
    def weights(self) -> Tensor:
        """[rounds, N, N], α_ik: who listened to whom, round by round."""
        return self.history.weights

    @property
    def metrics(self) -> polars.DataFrame:
        """One row per round and client."""
        return self.history.metrics

    @property
    def guard(self) -> polars.DataFrame:
        """Of a guarded run, for each client at its end: the gain over its local model on new data, with the 95 %
        interval from low to high, and whether it was given the local model."""
        found = verdicts(self.metrics)
        if found.is_empty():
            raise InputError("no guard watched this run: train with guard=True, and with another algorithm than Local")
        return found


def prepare(config: RunConfig) -> tuple[Run, RunConfig]:
    """The parts that a config names, and the config with nothing left open."""
    problem = load_problem(config.problem, config.seed)
    config = resolve(config, problem)
    return assemble(config, problem), config


def assemble(config: RunConfig, problem: Problem) -> Run:
    """The parts of a resolved config."""
    assert config.optimizer and config.rounds and config.inner
    algorithm = build_algorithm(config.algorithm)
    if config.guard:
        algorithm, problem = guarded(algorithm), hold_out(problem, HELD_OUT, config.seed)
    optimizer = build_optimizer(config.optimizer, config.scheduler, config.schedule, config.rounds, config.inner)
    options: dict[str, Any] = {name: getattr(config, name) for name in ("seed", "batch_size", "participation")}
    if config.attack:
        if config.fleet != "stacked":
            raise InputError(f"attack {config.attack} with fleet {config.fleet}: attacks are simulated by stacked only")
        fleet: InProcess = Attacked(problem, attack=Attack.parse(config.attack), **options)
    else:
        fleet = FLEETS[config.fleet](problem, **options)
    return Run(fleet, algorithm, optimizer, config.rounds, config.inner, config.evaluate_every)


def guarded(algorithm: Algorithm) -> Algorithm:
    return algorithm if isinstance(algorithm, Local | Guarded) else Guarded(algorithm)


def run_config(config: RunConfig, out: Path, on_round: OnRound | None = None) -> Result:
    """Run a config into a new folder."""
    run, config = prepare(config)
    return train(run, Folder.create(out, config.model_dump(exclude_none=True), run.fleet.problem), on_round)


def resume(path: Path, on_round: OnRound | None = None) -> Result:
    """Go on with a run where its folder left off; the result is that of a run never interrupted."""
    folder = Folder.open(path)
    run, _ = prepare(parse(folder.config, str(folder.path / "config.yaml")))
    return train(run, folder, on_round)


def train(run: Run, folder: Folder | None = None, on_round: OnRound | None = None) -> Result:
    """Run the rounds that are left. A crash, Ctrl-C or a loss that is not finite loses nothing before it."""
    fleet = run.fleet
    if folder and folder.checkpoint.exists():
        done = checkpoint.load(folder.checkpoint, run.optimizer)
        history = folder.history(done.round)
        fleet.samples.copy_(done.samples)
        fleet.dropped.copy_(done.dropped)
    else:
        start = run.algorithm.init(fleet.initial(), run.optimizer)
        done = Checkpoint(start, 0, fleet.samples.clone(), fleet.dropped.clone(), 0.0)
        history = folder.history(-1) if folder else History()
        _record(Round(0, fleet.evaluate(done.state.models), None, done.samples, 0.0), history, folder, on_round)
    saved = time.monotonic()
    try:
        for number in range(done.round + 1, run.rounds + 1):
            done = _one_round(run, done, number, history, folder, on_round)
            if time.monotonic() - saved > CHECKPOINT_SECONDS:
                _save(done, history, folder)
                saved = time.monotonic()
    finally:  # also after Ctrl-C or a divergence: `done` is then the last whole round
        _save(done, history, folder)
    if folder:
        folder.save_models(done.state.models)
    return Result(fleet.problem, done.state.models, history, fleet.module)


def _one_round(
    run: Run, done: Checkpoint, number: int, history: History, folder: Folder | None, on_round: OnRound | None
) -> Checkpoint:
    start = time.perf_counter()
    steps = range((number - 1) * run.inner, number * run.inner)
    try:
        state, info = run.algorithm.step(done.state, run.fleet, steps)
        seconds = done.seconds + time.perf_counter() - start
        _check_finite(state, run.fleet.trained, steps)
        evaluated = number % run.evaluate_every == 0 or number == run.rounds
        if evaluated:
            evaluation = run.fleet.evaluate(state.models)
            for client in (~evaluation.loss.isfinite()).nonzero().flatten().tolist():
                raise Diverged(client, client, steps[-1])
    except Diverged as error:
        kept = f"; everything up to round {number - 1} is kept" + (f" in {folder.path}" if folder else "")
        error.args = (f"round {number}, client {error.model}: {error}{kept}. Try a smaller step size",)
        raise
    after = Checkpoint(state, number, run.fleet.samples.clone(), run.fleet.dropped.clone(), seconds)
    present = run.fleet.present(steps.start)
    history.add_info(number, info, present)
    if evaluated:
        record = Round(number, evaluation, info, after.samples, seconds, present, after.dropped)
        _record(record, history, folder, on_round)
    return after


def _check_finite(state: State, names: list[str], steps: range) -> None:
    for tensor in (state.models[name] for name in names):
        if not tensor.isfinite().all():
            client = int((~tensor.isfinite()).reshape(len(tensor), -1).any(1).nonzero()[0])
            raise Diverged(client, client, steps[-1])


def _record(round: Round, history: History, folder: Folder | None, on_round: OnRound | None) -> None:
    history.add(round)
    if folder:
        folder.append([round])
    if on_round:
        on_round(round)


def _save(done: Checkpoint, history: History, folder: Folder | None) -> None:
    if folder:
        folder.save_weights(history)
        checkpoint.save(folder.checkpoint, done)
