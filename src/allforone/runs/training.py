"""The training loop: rounds of an algorithm on a fleet, evaluated, recorded, and kept on disk as it goes."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import polars
import torch
from torch import Tensor, nn

from ..algorithms import Algorithm, Info, State, advance
from ..errors import Diverged, InputError
from ..fleet import Evaluation, Fleet, MessageBytes, Models, Optimizer, Roster, row
from ..problems import Problem
from . import checkpoint
from .checkpoint import Checkpoint
from .config import RunConfig
from .folder import Folder
from .history import History, Record, verdicts
from .tables import Tables

#: Seconds of training that a crash may cost, at most.
CHECKPOINT_SECONDS = 20.0

OnRound = Callable[[Record], None]


@dataclass(frozen=True)
class Result:
    """What a run gives: every client its own model, and how they came to be."""

    config: RunConfig
    problem: Problem
    roster: Roster
    stacked: Models
    history: History

    @property
    def models(self) -> list[nn.Module]:
        """Client i's own model at place i."""
        return [self.model(i) for i in range(len(self.roster))]

    def model(self, client: int) -> nn.Module:
        model = copy.deepcopy(self.problem.initial_model(self.config.seed))
        model.load_state_dict(row(self.stacked, client), strict=False)
        return model.eval()

    @property
    def weights(self) -> Tensor:
        """[rounds, N, N], α_ik: who listened to whom, round by round; `tables` where that would be too large."""
        return self.tables.dense("weights").double()

    @property
    def tables(self) -> Tables:
        """Who listened to whom and why, round by round, of pairs of clients that say something; in a run's folder if
        it has one."""
        return self.history.tables

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


def train(
    config: RunConfig,
    problem: Problem,
    fleet: Fleet,
    algorithm: Algorithm,
    optimizer: Optimizer,
    folder: Folder | None = None,
    on_round: OnRound | None = None,
) -> Result:
    """Do the rounds that are left. A crash, Ctrl-C or a loss that is not finite loses nothing before it."""
    journal = Journal(folder, on_round)
    if folder and folder.checkpoint.exists():
        done = checkpoint.load(folder.checkpoint, optimizer)
        journal.history = folder.cut(done.round)
        fleet.ledger = done.ledger
    else:
        start = algorithm.init(fleet.initial(), optimizer)
        done = Checkpoint(start, 0, fleet.ledger, 0.0)
        journal.begin(done, fleet.evaluate(start.models, fleet.begin(0, range(0))))
    saved, size = time.monotonic(), MessageBytes.of(problem.initial_model(config.seed))
    try:
        for number in range(done.round + 1, (config.rounds or 0) + 1):
            done = _one_round(config, fleet, algorithm, done, number, journal, size)
            if time.monotonic() - saved > CHECKPOINT_SECONDS:
                journal.save(done)
                saved = time.monotonic()
    finally:  # also after Ctrl-C or a divergence: `done` is then the last whole round
        journal.save(done)
    if folder:
        folder.save_models(done.state.models)
    return Result(config, problem, fleet.roster, done.state.models, journal.history)


@dataclass
class Journal:
    """Where a run is written down: in memory, in its folder, and to whoever watches."""

    folder: Folder | None
    on_round: OnRound | None
    history: History = field(default_factory=History)

    @cached_property
    def defined(self) -> Tensor:
        """[N], whose loss is known of the initial model: where it is not, it may stay so, which is no divergence."""
        first = self.history.metrics.filter(polars.col("round") == 0).sort("client")
        return ~torch.tensor(first["loss"].is_null().to_list())

    def begin(self, start: Checkpoint, evaluation: Evaluation) -> None:
        """Before the first round. What cannot be saved is refused now, not after hours."""
        if self.folder:
            self.history = self.folder.clear()
        self.add(Record(0, evaluation, None, evaluation.known, start.ledger, 0.0))
        self.save(start)

    def add(self, record: Record) -> None:
        self.history.add(record)
        if self.on_round:
            self.on_round(record)

    def save(self, done: Checkpoint) -> None:
        if self.folder:
            checkpoint.save(self.folder.checkpoint, done)


def _one_round(
    config: RunConfig,
    fleet: Fleet,
    algorithm: Algorithm,
    done: Checkpoint,
    number: int,
    journal: Journal,
    size: MessageBytes,
) -> Checkpoint:
    start, inner = time.perf_counter(), config.inner or 1
    round = fleet.begin(number, range((number - 1) * inner, number * inner))
    evaluation = None
    try:
        state, info = advance(algorithm, done.state, fleet, round)
        seconds = done.seconds + time.perf_counter() - start
        _check_finite(state, fleet.trained, round.steps)
        if number % config.evaluate_every == 0 or number == config.rounds:
            evaluation = fleet.evaluate(state.models, round)
            lost = evaluation.known & ~evaluation.loss.isfinite() & journal.defined
            for client in lost.nonzero().flatten().tolist():
                raise Diverged(client, client, round.steps[-1])
    except Diverged as error:
        kept = f"; everything up to round {number - 1} is kept" + (
            f" in {journal.folder.path}" if journal.folder else ""
        )
        error.args = (f"round {number}, client {error.model}: {error}{kept}. Try a smaller step size",)
        raise
    fleet.ledger = fleet.ledger.sent(info.messages, sent_bytes(info, size))
    after = Checkpoint(state, number, fleet.ledger, seconds)
    journal.history.add_info(number, info, round.present)
    if evaluation is not None:
        journal.add(Record(number, evaluation, info, round.present, after.ledger, seconds))
    return after


def sent_bytes(info: Info, size: MessageBytes) -> int | None:
    if info.messages is None:
        return None
    return info.gradients * size.gradient + (info.messages - info.gradients) * size.model


def _check_finite(state: State, names: list[str], steps: range) -> None:
    for tensor in (state.models[name] for name in names):
        if not tensor.isfinite().all():
            client = int((~tensor.isfinite()).reshape(len(tensor), -1).any(1).nonzero()[0])
            raise Diverged(client, client, steps[-1])
