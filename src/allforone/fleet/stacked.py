"""The fast fleet of this process: one pass for each model, on all cores; small models all at once (`vmap`)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import AllForOneError
from ..problems import Problem
from ..problems.data import Batch
from . import exactness
from .base import Answer, Direction, Look
from .fast_passes import FastPasses
from .in_process import InProcess, Participation
from .models import Models, flat, pick, row
from .optimizer import Optimizer
from .pairs import look_of, looks
from .vectorised import Plan, Vectorised, check_losses
from .workers import one_core


class Stacked(InProcess):
    compiled = False

    def __init__(
        self, problem: Problem, *, seed: int, batch_size: int | None = None, participation: Participation = 1.0
    ) -> None:
        super().__init__(problem, seed=seed, batch_size=batch_size, participation=participation)
        self.fast = FastPasses(self.passes, problem.clients, self.batch_size)
        self.small = Vectorised(self.passes.module, problem.loss, self.trained, self.compiled)

    def descended(
        self, models: Models, mix: Tensor, optimizer: Optimizer, steps: range, direction: Direction | None
    ) -> tuple[Models, Optimizer]:
        if not self._all_at_once((mix != 0).any(0)):
            return super().descended(models, mix, optimizer, steps, direction)
        running, plan = optimizer.start(models, self.trained), self.small.plan(mix)
        self.passes.train_mode()
        losses: list[Tensor] = []
        with one_core():
            for step, (inputs, targets) in zip(steps, self.batches.stacked(plan.asked, steps), strict=True):
                gradients, loss = self._at_once(self.small.gradients, running.models, plan, inputs, targets)
                self._compare(running.models, mix, plan, (inputs, targets), step, gradients)
                running.apply(direction(running.models, gradients) if direction else gradients)
                losses.append(loss)
        check_losses(losses, plan, steps, self.roster.numbers)
        return running.finish()

    def mixed_gradients(self, models: Models, mix: Tensor, step: int, owners: Tensor | None) -> Models:
        asked = (mix != 0).any(0)
        if self._all_at_once(asked):
            return self._mixed_at_once(models, mix, step, owners)
        batches = {k: self.arranged(batch) for k, batch in self.batches.of(asked, step).items()}
        result = {name: torch.zeros_like(t) if name in self.trained else t.clone() for name, t in models.items()}

        def add(module: nn.Module, m: int) -> None:
            model, weights = row(models, m), _weights(mix[m])
            owner = None if owners is None else int(owners[m])
            found = self.fast.mixed(module, model, owner, weights, batches, step)
            if m == compared:
                self.fast.compare(module, model, m if owner is None else owner, weights, batches, step, found)
            for name, value in found.items():
                result[name][m] = value

        ahead, compared = range(len(mix)), exactness.due(step, len(mix))
        self.passes.workers.each(add, ahead, meanwhile=lambda: self.batches.draw_ahead(asked, step + 1))
        return result

    def _mixed_at_once(self, models: Models, mix: Tensor, step: int, owners: Tensor | None) -> Models:
        plan, steps = self.small.plan(mix), range(step, step + 1)
        self.passes.train_mode()
        with one_core():
            inputs, targets = next(self.batches.stacked(plan.asked, steps))
            result, loss = self._at_once(self.small.gradients, models, plan, inputs, targets)
            self._compare(models, mix, plan, (inputs, targets), step, result)
        check_losses([loss], plan, steps, owners)
        return {name: value if name in self.trained else value.clone() for name, value in result.items()}

    def looked(self, models: Models, batches: dict[int, list[Batch]], step: int, sketch: int) -> Look:
        clients, short = list(batches), self.sketch(sketch)
        if self.fast.vectorises and len({len(x) for parts in batches.values() for x, _ in parts}) == 1:
            self.passes.train_mode()
            with one_core():
                inputs, targets = _stacked(batches)
                some = pick(models, torch.tensor(clients))
                rows = self._at_once(self.small.look, some, inputs, targets, step, short)
            return look_of(zip(*rows, strict=True), batches, len(self.roster), short.size)
        arranged = {k: [self.arranged(part) for part in parts] for k, parts in batches.items()}

        def of_row(module: nn.Module, i: int) -> tuple[Tensor, ...]:
            def gradients(k: int) -> list[Tensor]:
                return [
                    self._gradient(module, row(models, i), i, k, batch, step, f"look {part}")
                    for part, batch in enumerate(arranged[k])
                ]

            own = gradients(i)  # two clients' gradients in memory, never N
            return looks(own, (gradients(k) if k != i else own for k in clients), short)

        return look_of(self.passes.workers.each(of_row, clients), batches, len(self.roster), short.size)

    def answers(self, models: Models, client: int, batch: Batch, step: int, purpose: str = "update") -> Tensor:
        count = len(models[self.trained[0]])
        if self.fast.vectorises:
            plan = self.small.plan(torch.ones(count, 1, dtype=torch.float64))
            self.passes.train_mode()
            with one_core():
                alone = batch[0][None], batch[1][None]
                gradients, losses = self._at_once(self.small.gradients, models, plan, *alone)
            check_losses([losses], plan, range(step, step + 1), None)
            return torch.cat([gradients[name].flatten(1) for name in self.trained], 1)
        arranged = self.arranged(batch)

        def of_row(module: nn.Module, m: int) -> Tensor:
            return self._gradient(module, row(models, m), client, client, arranged, step, purpose)

        return torch.stack(self.passes.workers.each(of_row, range(count)))

    def _gradient(
        self, module: nn.Module, model: Models, owner: int, client: int, batch: Batch, step: int, purpose: str
    ) -> Tensor:
        """[P], the gradient of one client at one model."""
        found = self.fast.mixed(module, model, owner, {client: 1.0}, {client: batch}, step, purpose)
        return flat(found[name] for name in self.trained)

    def _at_once(self, ask: Callable[..., Answer], *given: Any) -> Answer:
        """ask(), of all models at once. Where that fails, one by one will tell whether a client's data are to blame."""
        try:
            return ask(*given)
        except AllForOneError:
            raise
        except Exception as error:
            self.fast.leave_vmap(f"the model or the loss fails with all models at once ({type(error).__name__})")

    def _compare(self, models: Models, mix: Tensor, plan: Plan, batches: Batch, step: int, found: Models) -> None:
        """Now and then, one of the models with the plain way."""
        m = exactness.due(step, len(mix))
        if m is not None:
            drawn = {k: (batches[0][place], batches[1][place]) for place, k in enumerate(plan.asked)}
            self.fast.compare(self.passes.module, row(models, m), m, _weights(mix[m]), drawn, step, row(found, m))

    def _all_at_once(self, asked: Tensor) -> bool:
        """Whether the model can be vectorised, and all asked clients give batches of the same size."""
        return self.fast.vectorises and self.batches.equally_large(asked)

    def arranged(self, batch: Batch) -> Batch:
        return self.fast.arranged(batch)


def _weights(row: Tensor) -> dict[int, float]:
    return {k: float(row[k]) for k in row.nonzero().flatten().tolist()}


def _stacked(batches: dict[int, list[Batch]]) -> Batch:
    """[clients, parts, b, …]"""
    inputs, targets = (
        torch.stack([torch.stack([batch[side] for batch in parts]) for parts in batches.values()]) for side in (0, 1)
    )
    return inputs, targets


class Compiled(Stacked):
    """Small models moreover as machine code: worth its warm-up of seconds in long runs."""

    compiled = True
