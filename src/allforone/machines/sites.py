"""The clients as sites, each a function from bytes to bytes, wherever it is: the contract of a fleet in questions."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ..errors import Gone, InputError
from ..fleet import (
    Direction,
    Evaluation,
    Look,
    Models,
    NewLosses,
    Optimizer,
    PairStatistics,
    Proximal,
    Round,
    Walks,
    among_present,
    everybody,
    pick,
)
from ..fleet.in_process import WALKED_NUMBERS
from ..fleet.judge import NOTHING_HELD, PARTS, evaluation_of, new_losses_of
from ..fleet.optimizer import Running
from ..fleet.proximal import by_themselves
from .checking import finite_rows, first_noises, is_like, variances
from .coordinator import Coordinator
from .looking import look_of_sites
from .optimizers import of_row, pack, put_row
from .wire import Message, encode


class Sites(Coordinator):
    """A fleet of sites. What a question needs is in it, so that a site keeps nothing in between."""

    def gradients(self, models: Models, mix: Tensor, round: Round, step: int, owners: Tensor | None) -> Models:
        return self.mixed(models, among_present(mix, round.present, owners), round, step, owners)

    def descend(
        self, models: Models, mix: Tensor, optimizer: Optimizer, round: Round, direction: Direction | None = None
    ) -> tuple[Models, Optimizer]:
        """Rows that listen only to themselves go in one trip: their sites do all updates of the round."""
        mix = among_present(mix, round.present, self.roster.numbers)
        alone = by_themselves(mix, direction)
        packed = pack(optimizer, models, self.trained, None) if alone.any() else None
        questions: dict[int, bytes] = {}
        if packed:
            about = {"ask": "descend", "round": round.number, "steps": [round.steps.start, round.steps.stop]}
            for k in alone.nonzero().flatten().tolist():
                near = direction.of(k) if isinstance(direction, Proximal) else None
                own = {
                    "models": pick(models, torch.tensor([k])),
                    "optimizer": of_row(packed, k),
                    "near": {"strength": near.strength, "centre": near.centre} if near else None,
                }
                questions[k] = encode({**about, **own, "owners": [k], "scale": float(mix[k, k])})
            mix = torch.where(alone[:, None], 0, mix)
        running = optimizer.start(models, self.trained)
        for step in round.steps:
            gradients = self.mixed(running.models, mix, round, step, self.roster.numbers)
            running.apply(direction(running.models, gradients) if direction else gradients)
        for k, answer in self.answers(questions):
            self._put_model(running, k, answer)
        self._check_nobody_lost()
        return running.finish()

    def _put_model(self, running: Running, k: int, answer: Message) -> None:
        """The model and the optimizer's state that site k came to by itself."""
        try:
            put_row(running, k, answer["state"], self._as_it_should_be)
            for name, tensor in running.models.items():
                tensor[k] = self._as_it_should_be(answer["models"][name], tensor[k : k + 1])[0]
        except (KeyError, TypeError):
            self.asking.lose(k, "the model that it sent back is not finite, or of another shape")

    def _as_it_should_be(self, found: Any, place: Tensor) -> Tensor:
        if not self.trusting and not (is_like(found, tuple(place.shape), place.dtype) and found.isfinite().all()):
            raise TypeError
        return found  # type: ignore[no-any-return]

    def _check_nobody_lost(self) -> None:
        if self.asking.lost:
            raise Gone(self.asking.presence.said())

    def compare(self, models: Models, round: Round, samples: int) -> PairStatistics:
        look = self.look(models, round, everybody(len(self.roster)), samples, 0, apart=True)
        return PairStatistics(look.distance, look.norm)

    def look(self, models: Models, round: Round, ids: Tensor, samples: int, sketch: int, apart: bool = False) -> Look:
        return look_of_sites(self, models, round, ids, {"samples": samples, "sketch": sketch, "whole": apart})

    def walks(self, models: Models, ids: Tensor, optimizer: Optimizer, round: Round, parts: int) -> Iterator[Walks]:
        rows = round.present.nonzero().flatten()
        if not len(rows):
            return
        packed = pack(optimizer.fresh(), pick(models, rows[:1]), self.trained, self.makes)
        if packed is None:
            raise InputError(
                "an optimizer that is no class of torch.optim is code, which does not travel to sites: "
                "use one of torch.optim, or exchange='update'"
            )
        size = sum(models[name][0].numel() for name in self.trained)
        about = {"ask": "walk", "round": round.number, "steps": [round.steps.start, round.steps.stop], "parts": parts}
        about["optimizer"] = {**packed, "state": {}}
        read = torch.zeros(len(self.roster), dtype=torch.float64)
        asked = round.present & torch.isin(self.roster.numbers, ids[round.present])
        for k in asked.nonzero().flatten().tolist():
            member = self.roster[k]
            read[k] = len(round.steps) * (self.batch_size if member.stream else min(self.batch_size, member.size))
        for some in rows.split(max(1, WALKED_NUMBERS // (ids.shape[1] * parts * size))):
            ways, buffers, added, first = self._walked(about, models, some, ids, asked, (parts, size))
            yield Walks(some, ways, buffers, read[ids[some]], added, first)

    def _walked(
        self, about: Message, models: Models, some: Tensor, ids: Tensor, asked: Tensor, shape: tuple[int, int]
    ) -> tuple[Tensor, Models, Tensor, Tensor]:
        """[R, c, parts, P] of some rows, NaN of who was not asked or came nowhere, the buffers of their owners, and
        [R, c], the noise that was added, and that of the first update."""
        added = torch.zeros(ids[some].shape, dtype=torch.float64)
        first = torch.full_like(added, torch.nan)
        ways = torch.full((*ids[some].shape, *shape), torch.nan, dtype=models[self.trained[0]].dtype)
        buffers = {name: tensor[some] for name, tensor in models.items() if name not in self.trained}
        rows = {k: some[(ids[some] == k).any(1)] for k in asked.nonzero().flatten().tolist()}
        rows = {k: theirs for k, theirs in rows.items() if len(theirs)}
        for k, answer in self.answers(self.to_each(about, models, rows, self.roster.numbers.tolist())):
            found: Any = answer.get("ways")
            said = variances(answer.get("added"), len(rows[k])), first_noises(answer.get("first"), len(rows[k]))
            for i, variance, noise in zip(rows[k].tolist(), *said, strict=True):
                place = (some == i)[:, None] & (ids[some] == k)
                added[place], first[place] = variance, noise
            fine = torch.full((len(rows[k]),), self.trusting)
            if not self.trusting and is_like(found, (len(rows[k]), *shape), ways.dtype):
                fine = finite_rows(found)
            if not fine.all():
                self.refuse(k, int((~fine).sum()))
            if not fine[rows[k] == k].all():  # without its own way a site has none
                self.asking.lose(k, "its own walk is not finite, or of another shape")
                continue
            for i, way in zip(rows[k][fine].tolist(), found[fine] if fine.any() else (), strict=True):
                ways[(some == i)[:, None] & (ids[some] == k)] = way
            self.put_buffers(buffers, answer.get("buffers"), (some == k).nonzero().flatten().tolist())
        self._check_nobody_lost()
        return ways, buffers, added, first

    def losses(self, models: Models, round: Round) -> Tensor:
        count = len(models[self.trained[0]])
        asked = round.present.nonzero().flatten().tolist()
        about = {"ask": "losses", "round": round.number, "steps": [round.steps.start, round.steps.stop]}
        rows = {k: torch.arange(count) for k in asked}
        total = torch.full((count, len(self.roster)), torch.nan, dtype=torch.float64)
        for k, answer in self.answers(self.to_each(about, models, rows, None)):
            found = answer.get("losses")
            if is_like(found, (count,), torch.float64):
                total[:, k] = found
        return total

    def new_losses(self, models: Models, round: Round) -> NewLosses:
        held = [bool(told["held"]) for told in self.descriptions]
        if round.present.any() and not any(held) and not any(member.stream for member in self.roster):
            raise InputError(NOTHING_HELD)
        stop = round.steps.stop
        about = {"ask": "new_losses", "round": round.number, "coming": [stop, stop + len(round.steps)]}
        found = {}
        for k, answer in self.answers(self._own_models(about, models, round)):
            losses = answer.get("losses")
            if isinstance(losses, Tensor) and is_like(losses, losses.shape[:1]) and len(losses) <= PARTS:
                found[k] = losses
        return new_losses_of(found, held)

    def evaluate(self, models: Models, round: Round) -> Evaluation:
        found: dict[int, dict[str, float]] = {}
        for k, answer in self.answers(self._own_models({"ask": "evaluate", "round": round.number}, models, round)):
            names, values = answer.get("names"), answer.get("values")
            if isinstance(names, list) and is_like(values, (len(names),), torch.float64):
                found[k] = dict(zip(map(str, names), values.tolist(), strict=True))
        tested = [bool(told["tested"]) for told in self.descriptions]
        judged = evaluation_of(found, list(self.task.metrics), tested, round.present)
        return judged if self.trusting else judged._replace(known=judged.known & judged.loss.isfinite())

    def _own_models(self, about: Message, models: Models, round: Round) -> dict[int, bytes]:
        """To everybody present its own model."""
        rows = {k: torch.tensor([k]) for k in round.present.nonzero().flatten().tolist()}
        return self.to_each(about, models, rows, self.roster.numbers.tolist())
