"""The training loop: rounds of an algorithm on a fleet, evaluated, recorded, and kept on disk as it goes."""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import polars
import torch
from torch import Tensor, nn

from .. import stopping
from ..algorithms import Algorithm, Info, State, advance
from ..errors import Diverged, InputError, blaming, called
from ..fleet import Evaluation, Fleet, MessageBytes, Models, Optimizer, Roster, Round, in_round, load_row
from ..fleet.privates import private_names
from ..problems import Problem, Task, calling
from ..problems.data import Finite
from .callbacks import Beginning, Callback, Watch
from .checkpoint import Checkpoint
from .config import RunConfig
from .history import History, Record, verdicts
from .names import find_client
from .tables import Tables
from .writing import Writer

#: Seconds of training that a crash may cost, at most.
CHECKPOINT_SECONDS = 20.0


class Start(NamedTuple):
    """What a run begins from that is no common initial model."""

    models: Models  #: client i's own in row i
    step: int  #: updates that were done before, whose batches are not drawn again
    told: str  #: in words, where they are from


OnRound = Callable[[Record], None]


@dataclass(frozen=True)
class Result:
    """What a run gives: every client its own model, and how they came to be."""

    config: RunConfig
    problem: Task
    roster: Roster
    stacked: Models
    history: History

    @property
    def models(self) -> list[nn.Module]:
        """Client i's own model at place i."""
        return [self.model(i) for i in range(len(self.roster))]

    @property
    def names(self) -> list[str | None]:
        """What the clients are called, where they have names."""
        return [member.name for member in self.roster]

    def number(self, client: int | str) -> int:
        """Of a client, by its name or number."""
        return find_client(self.names, client)

    def model(self, client: int | str) -> nn.Module:
        """One client's own, by its name or number."""
        model = copy.deepcopy(self.problem.initial_model(self.config.seed))
        return load_row(model, self.stacked, self.number(client)).eval()

    @torch.no_grad()
    def predict(self, client: int | str, inputs: Any) -> Any:
        """What a client's own model answers to inputs as its data have them: its `transform` is applied, where it is
        known.

        Example:
            >>> import torch, allforone as afo
            >>> result = afo.train(afo.digits(clients=4), rounds=1)
            >>> result.predict(3, torch.zeros(2, 64)).shape
            torch.Size([2, 10])
        """
        number = self.number(client)
        model = self.model(number)
        test = self.problem.clients[number].test if isinstance(self.problem, Problem) else None
        transform = test.transform if isinstance(test, Finite) else None
        with blaming(f"{called(number, self.names[number])}: its model fails on these inputs"):
            return calling.called(model, transform(inputs) if transform else inputs)

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
    problem: Task,
    fleet: Fleet,
    algorithm: Algorithm,
    optimizer: Optimizer,
    writer: Writer | None = None,
    on_round: OnRound | None = None,
    start: Start | None = None,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Do the rounds that are left. A crash, Ctrl-C or a loss that is not finite loses nothing before it."""
    journal = Journal(writer, on_round, Watch(callbacks))
    first = _found(writer, optimizer)
    before = _go_on(first[0], fleet, journal) if first else None
    with journal.watch.over(Beginning(config, fleet.roster, before)):
        first = first or [_begin(config, fleet, algorithm, optimizer, journal, start)]
        # handed over and not kept: it would be in memory until the end
        done = _rounds(config, problem, fleet, algorithm, first.pop(), journal, start)
    given = done.state.models if journal.watch.kept is None or done.kept is None else done.kept
    models = {name: tensor.cpu() for name, tensor in given.items()}
    if writer:
        writer.finish(models)
    return Result(config, problem, fleet.roster, models, journal.history)


def _found(writer: Writer | None, optimizer: Optimizer) -> list[Checkpoint]:
    """The checkpoint to go on from, if there is one."""
    found = writer.latest(optimizer) if writer else None
    return [] if found is None else [found]


def _go_on(found: Checkpoint, fleet: Fleet, journal: "Journal") -> polars.DataFrame:
    """After the rounds of a checkpoint, whose metrics are given."""
    journal.go_on(found)
    fleet.ledger, fleet.left = found.ledger, found.left
    return journal.history.metrics


def _begin(
    config: RunConfig, fleet: Fleet, algorithm: Algorithm, optimizer: Optimizer, journal: "Journal", start: Start | None
) -> Checkpoint:
    """Before the first round."""
    begun = algorithm.init(_initial(fleet, start), optimizer)

    def judged(round: Round) -> tuple[Evaluation, Tensor | None]:
        return fleet.evaluate(begun.models, round), _held(config, fleet, begun.models, round)

    evaluation, held = in_round(fleet, 0, range(0), judged)
    return journal.begin(Checkpoint(begun, 0, fleet.ledger, 0.0), evaluation, held)


def _rounds(
    config: RunConfig,
    problem: Task,
    fleet: Fleet,
    algorithm: Algorithm,
    done: Checkpoint,
    journal: "Journal",
    start: Start | None,
) -> Checkpoint:
    """Those that are left, until a callback wants no more."""
    before, inner = start.step if start else 0, config.inner or 1
    model = problem.initial_model(config.seed)
    saved, size = time.monotonic(), MessageBytes.of(model, private_names(model, config.private or ()))
    try:
        for number in range(done.round + 1, (config.rounds or 0) + 1):
            if journal.watch.stop:
                break
            stopping.check()
            steps = range(before + (number - 1) * inner, before + number * inner)
            done = _one_round(config, fleet, algorithm, done, number, steps, journal, size)
            if time.monotonic() - saved > CHECKPOINT_SECONDS:
                journal.save(done)
                saved = time.monotonic()
    finally:  # also after a signal or a divergence: `done` is then the last whole round
        journal.save(done)
    return done


def _held(config: RunConfig, fleet: Fleet, models: Models, round: Round) -> Tensor | None:
    """[N], the loss of each client's model on what is held out to watch the run by; NaN where it is not known."""
    return fleet.new_losses(models, round).losses.nanmean(1) if config.hold_out else None


def _initial(fleet: Fleet, start: Start | None) -> Models:
    """The models before the first round."""
    made = fleet.initial()
    if start is None:
        return made
    other = sorted(name for name in {*made, *start.models} if _kind(made.get(name)) != _kind(start.models.get(name)))
    if other:
        raise InputError(
            f"the models to start from are others than the one that is trained: {', '.join(other)} differ; give those "
            "of the same architecture, one for each client"
        )
    return {name: start.models[name].clone().to(tensor.device) for name, tensor in made.items()}


def _kind(tensor: Tensor | None) -> Any:
    return None if tensor is None else (tensor.dtype, tensor.shape)


@dataclass
class Journal:
    """Where a run is written down: in memory, in its folder, and to whoever watches."""

    writer: Writer | None
    on_round: OnRound | None
    watch: Watch = field(default_factory=Watch)
    history: History = field(default_factory=History)
    saved: int = -1  #: the round of the last checkpoint

    @cached_property
    def defined(self) -> Tensor:
        """[N], whose loss is known of the initial model: where it is not, it may stay so, which is no divergence."""
        first = self.history.metrics.filter(polars.col("round") == 0).sort("client")
        return ~torch.tensor(first["loss"].is_null().to_list())

    def begin(self, start: Checkpoint, evaluation: Evaluation, held: Tensor | None) -> Checkpoint:
        """Before the first round. What cannot be saved is refused now, not after hours."""
        if self.writer:
            self.history = self.writer.begin()
        self.add(Record(0, evaluation, None, evaluation.known, start.ledger, 0.0, held))
        start = self.keep(start._replace(marks=self.history.marks))
        self.save(start)
        return start

    def keep(self, done: Checkpoint) -> Checkpoint:
        """With the models of this round as those to be given at the end, if a callback has just found them the best."""
        return done._replace(kept=done.state.models) if self.watch.kept == done.round else done

    def go_on(self, done: Checkpoint) -> None:
        """After the rounds of a checkpoint."""
        if self.writer:
            self.history = self.writer.go_on(done)
            self._keeps(done.round)

    def add(self, record: Record) -> None:
        self.history.add(record)
        if self.on_round:
            self.on_round(record)
        self.watch.see(record)

    def save(self, done: Checkpoint) -> None:
        """Once for each round: of two checkpoints of the same, neither would be the one before."""
        if self.writer and done.round != self.saved:
            self.history.flush()
            self.writer.save(done)
            self._keeps(done.round)

    def _keeps(self, number: int) -> None:
        self.saved = number
        if self.writer:
            stopping.keeps(f"everything up to round {number} is kept in {self.writer.path}")


def _one_round(
    config: RunConfig,
    fleet: Fleet,
    algorithm: Algorithm,
    done: Checkpoint,
    number: int,
    steps: range,
    journal: Journal,
    size: MessageBytes,
) -> Checkpoint:
    start = time.perf_counter()

    def work(round: Round) -> tuple[Round, State, Info, float, Evaluation | None, Tensor | None]:
        state, info = advance(algorithm, done.state, fleet, round)
        seconds = done.seconds + time.perf_counter() - start
        _check_finite(state, fleet.trained, round.steps)
        evaluation, held = None, None
        if number % config.evaluate_every == 0 or number == config.rounds:
            evaluation = fleet.evaluate(state.models, round)
            held = _held(config, fleet, state.models, round)
            lost = evaluation.known & ~evaluation.loss.isfinite() & journal.defined
            for client in lost.nonzero().flatten().tolist():
                raise Diverged(client, client, round.steps[-1])
        return round, state, info, seconds, evaluation, held

    try:
        round, state, info, seconds, evaluation, held = in_round(fleet, number, steps, work)
    except Diverged as error:
        kept = f"; everything up to round {number - 1} is kept" + (
            f" in {journal.writer.path}" if journal.writer else ""
        )
        error.args = (f"round {number}, client {error.model}: {error}{kept}. Try a smaller step size",)
        raise
    fleet.ledger = fleet.ledger.sent(info.messages, sent_bytes(info, size))
    after = Checkpoint(state, number, fleet.ledger, seconds, fleet.left, kept=done.kept)
    journal.history.add_info(number, info, round.present)
    journal.history.add_contacts(number, fleet.contacts())
    if evaluation is not None:
        journal.add(Record(number, evaluation, info, round.present, after.ledger, seconds, held))
    return journal.keep(after._replace(marks=journal.history.marks))


def sent_bytes(info: Info, size: MessageBytes) -> int | None:
    if info.messages is None:
        return None
    return info.gradients * size.gradient + (info.messages - info.gradients) * size.model


def _check_finite(state: State, names: list[str], steps: range) -> None:
    for tensor in (state.models[name] for name in names):
        numbers = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        ends = numbers.aminmax() if numbers.numel() else ()  # both are NaN if anything is; this takes no memory
        if not all(end.isfinite() for end in ends):
            client = int((~tensor.isfinite()).reshape(len(tensor), -1).any(1).nonzero()[0])
            raise Diverged(client, client, steps[-1])
