"""All clients in this process: the contract, put together from what draws batches, what passes them, what judges."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from ..errors import Diverged, InputError, within
from ..problems import Problem, check
from ..problems.data import Batch, draw, generator, seeded
from .base import (
    Contact,
    Direction,
    Evaluation,
    Ledger,
    Look,
    NewLosses,
    PairStatistics,
    Roster,
    Round,
    Walks,
    among_present,
    everybody,
)
from .batches import Batches, Parted, Tally
from .devices import KINDS, find_device, on
from .judge import Judge
from .memory import keep_freed_memory
from .models import Models, row, stack
from .optimizer import Optimizer
from .participation import Participation, check_participation, present
from .passes import Passes
from .privacy import Privacy, Question, own_apart
from .private_passes import PrivatePasses
from .proximal import by_themselves
from .sketch import Sketch, sketch
from .spending import UNPROTECTED, Spending
from .walks import Walked, walk
from .workers import Answer, Item

#: Numbers in the displacements that are held at once.
WALKED_NUMBERS = 2**24


class InProcess(ABC):
    """A subclass says how gradients are mixed and compared, and moves the passes to the device once it has tried them.

    participation: with which probability a client is there in a round, or a function from the first step of a round to
    [N], who is there. device: "cpu", "cuda", "cuda:1", "mps", or "auto". privacy: of all that clients answer.
    """

    left: tuple[str, ...] = ()

    def __init__(
        self,
        problem: Problem,
        *,
        seed: int,
        batch_size: int | None = None,
        participation: Participation = 1.0,
        device: str = "cpu",
        privacy: Privacy | None = None,
    ) -> None:
        check_participation(participation)
        self.device = find_device(device)
        self.problem, self.seed, self.participation = problem, seed, participation
        self.batch_size = batch_size or problem.settings.batch_size
        module = checked_module(problem, seed)
        self.smoothness = problem.smoothness
        self.roster = Roster.of(problem.clients)
        self.tally = Tally(len(self.roster))
        self.batches = Batches(problem.clients, seed, self.batch_size, self.tally, self.device)
        self._ledger = Ledger(self.tally.samples, torch.zeros_like(self.tally.samples))
        with within("client 0, train data"):
            first = draw(problem.clients[0].train, self.batch_size, seed=0, client=0, step=0, purpose="try")
        settings = problem.settings
        given = module, problem.loss, seed, first
        self.private = PrivatePasses(*given, settings.precision, privacy) if privacy else None
        self.passes = self.private or Passes(*given, settings.clip, settings.precision)
        self.spending = Spending(problem.clients, seed, self.batch_size, privacy) if privacy else None
        self.trained = self.passes.trained
        self.numbers = sum(module.get_parameter(name).numel() for name in self.trained)
        self.judge = Judge(problem, problem.clients, self.batches, self.passes, self.arranged)

    @property
    def ledger(self) -> Ledger:
        now = self._ledger._replace(samples=self.tally.samples.clone())
        return self.spending.entered(now) if self.spending else now

    @ledger.setter
    def ledger(self, earlier: Ledger) -> None:
        self.tally.samples.copy_(earlier.samples)
        self._ledger = earlier._replace(refused=self._ledger.refused)
        if self.spending and earlier.answered:
            self.spending.restore(earlier.answered)

    def initial(self) -> Models:
        return stack(self.passes.module, len(self.roster))

    def begin(self, number: int, steps: range) -> Round:
        self.batches.forget_before(steps.start)
        return Round(number, steps, present(self.participation, len(self.roster), self.seed, number, steps.start))

    def gradients(self, models: Models, mix: Tensor, round: Round, step: int, owners: Tensor | None) -> Models:
        among = among_present(mix, round.present, owners)
        self.ask(models, among != 0, step)
        return self.mixed_gradients(models, among, step, owners)

    def descend(
        self, models: Models, mix: Tensor, optimizer: Optimizer, round: Round, direction: Direction | None = None
    ) -> tuple[Models, Optimizer]:
        among = among_present(mix, round.present, self.roster.numbers)
        return self.descended(models, among, optimizer, round.steps, direction)

    def descended(
        self, models: Models, mix: Tensor, optimizer: Optimizer, steps: range, direction: Direction | None
    ) -> tuple[Models, Optimizer]:
        running = optimizer.start(models, self.trained)
        alone = by_themselves(mix, direction)
        for step in steps:
            self.ask(running.models, (mix != 0) & ~alone[:, None], step, alone)
            gradients = self.mixed_gradients(running.models, mix, step, self.roster.numbers)
            running.apply(direction(running.models, gradients) if direction else gradients)
        return running.finish()

    def ask(self, models: Models, asked: Tensor, step: int, apart: Tensor | None = None) -> None:
        """Where answers are private, count the question of an update; asked: [M, N], who is asked about each model."""
        if self.spending:
            self.spending.update(self._question(models, asked, apart).number, step)

    def _question(self, models: Models, asked: Tensor, apart: Tensor | None = None) -> Question:
        nobody = torch.zeros(len(self.roster), dtype=torch.bool)
        question = Question.about(models, asked, nobody if apart is None else apart)
        if self.private:
            self.private.question = question
        return question

    def compare(self, models: Models, round: Round, samples: int) -> PairStatistics:
        look = self.look(models, round, everybody(len(self.roster)), samples, 0, apart=True)
        return PairStatistics(look.distance, look.norm)

    def look(self, models: Models, round: Round, ids: Tensor, samples: int, sketch: int, apart: bool = False) -> Look:
        if self.spending:
            count = self._question(models, *own_apart(self._asked(ids, round))).number
            if apart:
                self.spending.compare(count, round.steps.start, samples)
            else:
                self.spending.look(count, round.steps, samples)
        shown = self.to_look_at(round, samples, apart)
        found = self.looked(models, shown, ids, round.steps, sketch)
        found = found._replace(added=self._added(self.roster.numbers, ids, found.read, found.halves.shape[2]))
        return found if shown or not apart else found._replace(halves=found.halves[:, :, :1])  # nobody shows no halves

    def _asked(self, ids: Tensor, round: Round) -> Tensor:
        """[N, N], whether each of those present, a row, asks each; ids: [N, c], whom each row asks."""
        whom: Tensor = (ids[..., None] == self.roster.numbers).any(1)
        return whom & round.present & round.present[:, None]

    def _added(self, rows: Tensor, ids: Tensor, batch: Tensor, parts: int) -> Tensor:
        """[R, c], what the mean of a batch was given for privacy in the question of now."""
        if not self.private or not self.private.question:
            return torch.zeros(ids.shape, dtype=torch.float64)
        models = self.private.question.of(rows[:, None], ids)
        return self.private.privacy.variance(self.numbers, models, batch.clamp(min=1), parts)

    def walks(self, models: Models, ids: Tensor, optimizer: Optimizer, round: Round, parts: int) -> Iterator[Walks]:
        asked = round.present & torch.isin(self.roster.numbers, ids[round.present])
        batches = self.batches.in_parts(asked, round.steps, parts, 2 if self.passes.moves_buffers else 1)
        read = torch.zeros(len(self.roster), dtype=torch.float64)
        for k in batches:
            read[k] = len(round.steps) * self.batches.clients[k].batch(self.batch_size)
        rows = round.present.nonzero().flatten()
        numbers = ids.shape[1] * parts * sum(models[name][0].numel() for name in self.trained)
        for some in rows.split(max(1, WALKED_NUMBERS // numbers)) if len(rows) else ():
            if self.spending:
                here = self._asked(ids, round) & torch.isin(self.roster.numbers, some)[:, None]
                self.spending.walk(self._question(models, *own_apart(here)).number, round.steps, parts)
            found = self.walked(models, some, ids[some], optimizer.fresh(), batches, round.steps)
            each = read[ids[some]]
            added = self._added(some, ids[some], each / len(round.steps), parts)
            yield Walks(some, found.ways, found.buffers, each, added, found.first)

    def to_look_at(self, round: Round, samples: int, apart: bool = False) -> dict[int, list[Batch]]:
        """What those present show, in halves; a batch of one tells nothing to layers that compare its samples. `apart`,
        in one part that is drawn for it."""
        if apart:
            drawn = self.batches.of(round.present, round.steps.start, purpose="compare", size=samples)
            return {k: [batch] for k, batch in drawn.items()}
        return self.batches.to_look_at(round.present, round.steps, samples, 2 if self.passes.moves_buffers else 1)

    @abstractmethod
    def looked(self, models: Models, batches: dict[int, list[Batch]], ids: Tensor, steps: range, sketch: int) -> Look:
        """What clients say on these batches, each whole or in halves; NaN of clients without one."""

    def walked(
        self, models: Models, rows: Tensor, ids: Tensor, optimizer: Optimizer, batches: dict[int, Parted], steps: range
    ) -> Walked:
        """[R, c, …], how far the clients `ids` [R, c] come from the models of `rows` [R] on their batches, with the
        buffers after the walks of the rows' owners; NaN of clients without one."""
        pairs = [(r, c, int(i), k) for r, i in enumerate(rows) for c, k in enumerate(ids[r].tolist()) if k in batches]

        def work(module: nn.Module, pair: tuple[int, int, int, int]) -> Walked | None:
            _, _, i, k = pair
            gradient = partial(self.one_gradient, module, i, k)
            try:
                return walk(gradient, row(models, i), self.trained, optimizer, batches[k], steps)
            except Diverged:
                if i == k:
                    raise
                return None  # who leads astray is not followed

        size, parts = sum(models[name][0].numel() for name in self.trained), len(next(iter(batches.values()))[0])
        ways = models[self.trained[0]].new_full((*ids.shape, parts, size), torch.nan)
        first = torch.full(ids.shape, torch.nan, dtype=torch.float64)
        buffers = {name: tensor[rows] for name, tensor in models.items() if name not in self.trained}
        for (r, c, i, k), found in zip(pairs, self.each(work, pairs), strict=True):
            if found:
                ways[r, c], first[r, c] = found.ways, found.first
            if found and i == k:
                for name, value in found.buffers.items():
                    buffers[name][r] = value
        return Walked(ways, first, buffers)

    @abstractmethod
    def each(self, work: Callable[[nn.Module, Item], Answer], items: list[Item]) -> list[Answer]:
        """work(module, item) for each item, in order."""

    @abstractmethod
    def one_gradient(
        self, module: nn.Module, owner: int, client: int, model: Models, batch: Batch, step: int, purpose: str
    ) -> Models:
        """The gradient of one client at one model, and the buffers after its pass."""

    @abstractmethod
    def mixed_gradients(self, models: Models, mix: Tensor, step: int, owners: Tensor | None) -> Models:
        """`gradients` of those who are there."""

    @abstractmethod
    def answers(self, models: Models, client: int, batch: Batch, step: int, purpose: str = "update") -> Tensor:
        """[M, P], the gradient of one client on one batch at every model: what it would send."""

    def sketch(self, size: int) -> Sketch:
        """Of gradients of that many numbers."""
        return sketch(self.numbers, size)

    def losses(self, models: Models, round: Round) -> Tensor:
        if self.spending:
            raise InputError(f"privacy: {UNPROTECTED}")
        return self.judge.losses(models, round.present, round.steps)

    def new_losses(self, models: Models, round: Round) -> NewLosses:
        if self.spending:
            raise InputError(f"privacy: {UNPROTECTED}")
        stop = round.steps.stop
        return self.judge.new_losses(models, round.present, range(stop, stop + len(round.steps)))

    def evaluate(self, models: Models, round: Round) -> Evaluation:
        return self.judge.evaluate(models, round.present)

    def contacts(self) -> list[Contact]:
        return []

    def close(self) -> None:  # noqa: B027  (nothing to do is the whole of it)
        """Nothing outside of this process answers."""

    def arranged(self, batch: Batch) -> Batch:
        """The same batch where the passes are, in whatever order in memory suits them."""
        return on(self.device, batch)  # type: ignore[no-any-return]


def checked_module(problem: Problem, seed: int) -> nn.Module:
    """The initial model, once the problem has been found fit to be trained."""
    if any(torch.is_autocast_enabled(kind) for kind in KINDS):
        raise InputError(
            "torch.autocast is on around training, which threads do not inherit: enter it in the model's forward, or "
            "train with precision='bf16'"
        )
    module = copy.deepcopy(problem.initial_model(seed))  # the user's own stays as it was
    with seeded(generator(seed, "check")):
        check(problem, module)
    keep_freed_memory()
    return module
