"""Clients that lie, for experiments: what they send, and how a fleet receives it.

A gradient that is not finite or has the wrong size is dropped, counted and never averaged.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import InputError, suggest
from ..problems.data import Batch, generator
from .base import Direction, Models, PairStatistics, pair_statistics, statistics
from .in_process import InProcess
from .optimizer import Optimizer
from .stacked import Stacked

LOST = 1e3  # times its first size, and a liar's own model starts anew


class Seen(NamedTuple):
    """What a liar knows when it answers; each [models, P]."""

    honest: Tensor  #: its gradient, had it been honest
    victims: Tensor  #: the mean of the honest clients' gradients
    first: Tensor  #: its gradient on its first batch, at the initial model
    random: torch.Generator


def _noise(seen: Seen) -> Tensor:
    drawn = torch.randn(seen.honest.shape, generator=seen.random, dtype=seen.honest.dtype)
    return 10 * _length(seen.honest) * drawn / _length(drawn)


def _mimicry(seen: Seen) -> Tensor:
    """All but honest: the mean of its victims, and a tenth of its length in a direction that is always the same."""
    ones = torch.ones_like(seen.victims)
    return seen.victims + 0.1 * _length(seen.victims) * ones / _length(ones)


def _length(rows: Tensor) -> Tensor:
    return rows.square().sum(1, keepdim=True).sqrt()


ATTACKS: dict[str, Callable[[Seen], Tensor]] = {
    "flip": lambda seen: -seen.honest,
    "flip10": lambda seen: -10 * seen.honest,
    "noise": _noise,
    "zeros": lambda seen: torch.zeros_like(seen.honest),
    "stale": lambda seen: seen.first,
    "mimicry": _mimicry,
    "nan": lambda seen: torch.full_like(seen.honest, torch.nan),
    "inf": lambda seen: torch.full_like(seen.honest, torch.inf),
    "short": lambda seen: seen.honest[:, 1:],
}


class Attack(NamedTuple):
    kind: str
    liars: int

    @classmethod
    def parse(cls, text: str) -> "Attack":
        """'flip:4' are four liars that send the opposite."""
        kind, _, count = text.partition(":")
        if kind not in ATTACKS:
            raise InputError(f"attack '{kind}': {suggest(kind, ATTACKS)}")
        if not count.isdecimal() or int(count) < 1:
            raise InputError(f"attack '{text}': say how many clients lie, as {kind}:4")
        return cls(kind, int(count))

    def choose(self, clients: int, seed: int) -> list[int]:
        """Who lies, by the seed."""
        if self.liars >= clients:
            raise InputError(f"attack {self.kind}:{self.liars}: of {clients} clients at most {clients - 1} may lie")
        return sorted(torch.randperm(clients, generator=generator(seed, "liars"))[: self.liars].tolist())


class Attacked(Stacked):
    """A fleet in which some clients lie. Every pair's gradient is looked at, so it is as slow as the plain loop."""

    def __init__(self, *args: Any, attack: Attack, **options: Any) -> None:
        super().__init__(*args, **options)
        self.attack, self.liars = attack, attack.choose(len(self.clients), self.seed)
        self._first = self.initial()

    def descended(
        self, models: Models, mix: Tensor, optimizer: Optimizer, steps: range, direction: Direction | None
    ) -> tuple[Models, Optimizer]:
        models, optimizer = InProcess.descended(self, models, mix, optimizer, steps, direction)
        for k in self.liars if len(mix) == len(self.clients) else []:  # their own models are nobody's business
            if not self._size(models, k) < LOST * (1 + self._size(self._first, k)):
                models = {
                    name: tensor.index_copy(0, torch.tensor([k]), self._first[name][k : k + 1])
                    for name, tensor in models.items()
                }
        return models, optimizer

    def _size(self, models: Models, k: int) -> float:
        return math.sqrt(sum(float(models[name][k].double().square().sum()) for name in self.trained))

    def mixed_gradients(self, models: Models, mix: Tensor, step: int) -> Models:
        asked = (mix != 0).any(0)
        if self.attack.kind == "mimicry":
            asked = asked | self.present(step)
        batches = self.batches(asked, step, "update", self.batch_size)
        sent = self.sent(models, {k: [batch] for k, batch in batches.items()}, step)
        kept = {k: self.accepted(columns[0]) for k, columns in sent.items()}
        weights = torch.zeros_like(mix)
        for k, fine in kept.items():
            weights[:, k] = torch.where(fine, mix[:, k], 0)
            others = torch.arange(len(mix)) != k if len(mix) == len(self.clients) else torch.ones(len(mix)).bool()
            self.dropped[k] += int((~fine & (mix[:, k] != 0) & others).sum())
        share = mix.sum(1) / weights.sum(1)
        weights *= torch.where(weights.sum(1) != 0, share, 1)[:, None]
        total = torch.zeros(len(mix), self.length, dtype=self.small.dtype)
        for k, columns in sent.items():
            if weights[:, k].any():
                total += weights[:, k, None].to(total.dtype) * torch.where(kept[k][:, None], columns[0], 0)
        shaped = zip(self.trained, total.split([models[n][0].numel() for n in self.trained], 1), strict=True)
        gradients = {name: part.reshape(models[name].shape) for name, part in shaped}
        if not self.moves_buffers:
            return {name: gradients.get(name, tensor) for name, tensor in models.items()}
        own = torch.eye(*mix.shape, dtype=mix.dtype) * (mix != 0)  # running statistics are nobody else's business
        return {**super().mixed_gradients(models, own, step), **gradients}

    def compare(
        self, models: Models, step: int, samples: int | None = None, among: Tensor | None = None
    ) -> PairStatistics:
        asked = self.present(step) if among is None else among
        sent = self.sent(models, self.compared(asked, step, samples), step, "compare {}")
        clients = list(sent)
        unknown = torch.full((self.length,), torch.nan, dtype=self.small.dtype)

        def gradients(i: int, k: int) -> list[Tensor]:
            fine = all(bool(self.accepted(column)[i]) for column in sent[k])
            return [column[i] if fine else unknown for column in sent[k]]

        rows = [statistics(gradients(i, i), (gradients(i, k) for k in clients)) for i in clients]
        return pair_statistics(rows, clients, len(self.clients), samples is None)

    def sent(
        self, models: Models, batches: dict[int, list[Batch]], step: int, purpose: str = "update"
    ) -> dict[int, list[Tensor]]:
        """What each client answers at every model, for each of its batches: [models, P]."""
        answers = {
            k: [self.column(models, k, batch, step, purpose.format(part)) for part, batch in enumerate(parts)]
            for k, parts in batches.items()
        }
        honest = [columns for k, columns in answers.items() if k not in self.liars]
        for k in set(self.liars) & set(answers):
            for part, own in enumerate(answers[k]):
                victims = torch.stack([columns[part] for columns in honest]).mean(0) if honest else own
                first = self.column(self._first, k, batches[k][part], step) if self.attack.kind == "stale" else own
                seen = Seen(own, victims, first[: len(own)], generator(self.seed, k, step, part, "attack"))
                answers[k][part] = ATTACKS[self.attack.kind](seen)
        return answers

    def accepted(self, answer: Tensor) -> Tensor:
        """[models], whether the answer may be used at all."""
        if answer.shape[1] != self.length:
            return torch.zeros(len(answer), dtype=torch.bool)
        return answer.isfinite().all(1)

    @property
    def length(self) -> int:
        return sum(self._first[name][0].numel() for name in self.trained)
