"""A fleet in which some clients lie: a wrapper around what arrives from a fleet of this process.

A gradient that is not finite or has the wrong size is refused, counted and never averaged.
"""

import math
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from ..problems.data import Batch, generator
from .attacks import ATTACKS, Attack, Seen
from .base import (
    Contact,
    Direction,
    Evaluation,
    Ledger,
    Look,
    NewLosses,
    PairStatistics,
    Round,
    Walks,
    among_present,
    everybody,
    surely,
)
from .in_process import InProcess
from .models import Models, pick
from .optimizer import Optimizer
from .pairs import look_of, looks

#: A liar's own model that has grown to this many times its first size starts anew: it is nobody's business.
LOST = 1e3


class Attacked:
    """Every pair's gradient is looked at, so it is as slow as the plain loop."""

    def __init__(self, honest: InProcess, attack: Attack) -> None:
        self.honest, self.attack = honest, attack
        self.roster, self.smoothness, self.trained = honest.roster, honest.smoothness, honest.trained
        self.batch_size = honest.batch_size
        self.liars = attack.choose(len(self.roster), honest.seed)
        self.refused = torch.zeros(len(self.roster), dtype=torch.long)
        self._first = honest.initial()
        self._stale = {k: self._first_answer(k) for k in self.liars} if attack.kind == "stale" else {}
        self._sizes = [self._first[name][0].numel() for name in self.trained]

    @property
    def ledger(self) -> Ledger:
        return self.honest.ledger._replace(refused=self.refused.clone())

    @ledger.setter
    def ledger(self, earlier: Ledger) -> None:
        self.honest.ledger = earlier
        self.refused.copy_(earlier.refused)

    @property
    def left(self) -> tuple[str, ...]:
        return self.honest.left

    @left.setter
    def left(self, earlier: tuple[str, ...]) -> None:
        self.honest.left = earlier

    def initial(self) -> Models:
        return self.honest.initial()

    def begin(self, number: int, steps: range) -> Round:
        return self.honest.begin(number, steps)

    def contacts(self) -> list[Contact]:
        return self.honest.contacts()

    def close(self) -> None:
        self.honest.close()

    def losses(self, models: Models, round: Round) -> Tensor:
        return self.honest.losses(models, round)

    def new_losses(self, models: Models, round: Round) -> NewLosses:
        return self.honest.new_losses(models, round)

    def evaluate(self, models: Models, round: Round) -> Evaluation:
        return self.honest.evaluate(models, round)

    def descend(
        self, models: Models, mix: Tensor, optimizer: Optimizer, round: Round, direction: Direction | None = None
    ) -> tuple[Models, Optimizer]:
        running = optimizer.start(models, self.trained)
        for step in round.steps:
            gradients = self.gradients(running.models, mix, round, step, self.roster.numbers)
            running.apply(direction(running.models, gradients) if direction else gradients)
        after, optimizer = running.finish()
        lost = [k for k in self.liars if not self._length(after, k) < LOST * (1 + self._length(self._first, k))]
        rows = torch.tensor(lost, dtype=torch.long)
        return {name: t.index_copy(0, rows, self._first[name][rows]) for name, t in after.items()}, optimizer

    def _length(self, models: Models, k: int) -> float:
        return math.sqrt(sum(float(models[name][k].double().square().sum()) for name in self.trained))

    def gradients(self, models: Models, mix: Tensor, round: Round, step: int, owners: Tensor | None) -> Models:
        mix = among_present(mix, round.present, owners)
        asked = (mix != 0).any(0)
        if self.attack.kind in ("mimicry", "cancelling"):  # they know their victims, whoever is asked
            asked = asked | round.present
        batches = self.honest.batches.of(asked, step)
        sent = self._sent(models, {k: [batch] for k, batch in batches.items()}, step)
        weights = self._accepted_weights(mix, {k: self._fine(columns[0]) for k, columns in sent.items()}, owners)
        total = torch.zeros(len(mix), sum(self._sizes), dtype=models[self.trained[0]].dtype)
        for k, columns in sent.items():
            if weights[:, k].any():
                heard = (weights[:, k] != 0)[:, None]
                total += weights[:, k, None].to(total.dtype) * torch.where(heard, columns[0], 0)
        shaped = zip(self.trained, total.split(self._sizes, 1), strict=True)
        gradients = {name: part.reshape(models[name].shape) for name, part in shaped}
        if owners is None or not self.honest.passes.moves_buffers:
            return {name: gradients.get(name, tensor) for name, tensor in models.items()}
        rows = torch.arange(len(mix))
        own = torch.zeros_like(mix)  # running statistics are nobody else's business
        own[rows, owners] = (mix[rows, owners] != 0).to(mix.dtype)
        return {**self.honest.gradients(models, own, round, step, owners), **gradients}

    def _accepted_weights(self, mix: Tensor, fine: dict[int, Tensor], owners: Tensor | None) -> Tensor:
        """The weights of the gradients that may be used, with the sums of `mix`; those of others are counted."""
        weights = torch.zeros_like(mix)
        for k, usable in fine.items():
            weights[:, k] = torch.where(usable, mix[:, k], 0)
            heard = (mix[:, k] != 0) if owners is None else (mix[:, k] != 0) & (owners != k)
            self.refused[k] += int((~usable & heard).sum())
        share = mix.sum(1) / weights.sum(1)
        return weights * torch.where(weights.sum(1) != 0, share, 1)[:, None]

    def compare(self, models: Models, round: Round, samples: int) -> PairStatistics:
        look = self.look(models, round, everybody(len(self.roster)), samples, 0, apart=True)
        return PairStatistics(look.distance, look.norm)

    def look(self, models: Models, round: Round, ids: Tensor, samples: int, sketch: int, apart: bool = False) -> Look:
        return self._look(models, self.honest.to_look_at(round, samples, apart), ids, round.steps.start, sketch)

    def _look(self, models: Models, batches: dict[int, list[Batch]], ids: Tensor, step: int, sketch: int) -> Look:
        sent, short = self._sent(models, batches, step, "look {}"), self.honest.sketch(sketch)
        unknown = torch.full((sum(self._sizes),), torch.nan, dtype=models[self.trained[0]].dtype)

        usable = {k: torch.stack([self._fine(column) for column in columns]).all(0) for k, columns in sent.items()}

        def gradients(i: int, k: int) -> list[Tensor] | None:
            if k not in sent:
                return None
            return [column[i] if usable[k][i] else unknown for column in sent[k]]

        rows = [looks((gradients(i, k) for k in ids[i].tolist()), gradients(i, i) or [], short) for i in sent]
        return look_of(rows, batches, ids, short.size)

    def walks(self, models: Models, ids: Tensor, optimizer: Optimizer, round: Round, parts: int) -> Iterator[Walks]:
        """What liars make of a gradient they make of the way they went, turned round."""
        for walks in self.honest.walks(models, ids, optimizer, round, parts):
            told = -walks.ways
            asked = {k: ((ids[walks.rows] == k) & (walks.rows != k)[:, None]).nonzero() for k in self.liars}
            truthful = ~torch.isin(ids[walks.rows], torch.tensor(self.liars)) & told.isfinite().all(3).all(2)
            victims = torch.where(truthful[..., None, None], told, 0).sum(1) / truthful.sum(1)[:, None, None]
            for k, places in asked.items():
                for part in range(parts):
                    r, c = places.unbind(1)
                    own = told[r, c, part]
                    pace = optimizer.lr * len(round.steps)
                    first = pace * self._stale[k].expand_as(own) if k in self._stale else own
                    random = generator(self.honest.seed, k, round.steps.start, part, "attack")
                    seen = Seen(own, victims[r, part], first, random, self.liars.index(k), round.steps.start)
                    lie = ATTACKS[self.attack.kind](seen)
                    fine = self._fine(lie)
                    self.refused[k] += int((~fine).sum()) if part == 0 else 0
                    usable = lie if lie.shape == own.shape else torch.full_like(own, torch.nan)
                    told[r, c, part] = torch.where(fine[:, None], usable, torch.nan)
            yield walks._replace(ways=-told)

    def _sent(
        self, models: Models, batches: dict[int, list[Batch]], step: int, purpose: str = "update"
    ) -> dict[int, list[Tensor]]:
        """What each client answers at every model, for each of its batches: [models, P]."""
        answers = {
            k: [self.honest.answers(models, k, batch, step, purpose.format(part)) for part, batch in enumerate(parts)]
            for k, parts in batches.items()
        }
        truthful = [columns for k, columns in answers.items() if k not in self.liars]
        for k in set(self.liars) & set(answers):
            for part, own in enumerate(answers[k]):
                victims = torch.stack([columns[part] for columns in truthful]).mean(0) if truthful else own
                first = self._stale.get(k, own).expand_as(own)
                random = generator(self.honest.seed, k, step, part, "attack")
                seen = Seen(own, victims, first, random, self.liars.index(k), step)
                answers[k][part] = ATTACKS[self.attack.kind](seen)
        return answers

    def _first_answer(self, k: int) -> Tensor:
        """[1, P], the gradient of a client on its first batch, at the initial model."""
        own, batch = pick(self._first, torch.tensor([k])), self.honest.batches.uncounted(k, 0)
        return surely(partial(self.honest.answers, own, k, batch, 0))

    def _fine(self, answer: Tensor) -> Tensor:
        """[models], whether the answer may be used at all."""
        if answer.shape[1] != sum(self._sizes):
            return torch.zeros(len(answer), dtype=torch.bool)
        return answer.isfinite().all(1)
