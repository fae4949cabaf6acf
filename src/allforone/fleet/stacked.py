"""The fast fleet of this process: one pass for each model, on all cores; small models all at once (`vmap`)."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import AllForOneError, Diverged, is_memory
from ..problems import Problem
from ..problems.data import Batch
from ..problems.tree import alike, rows, stacked
from . import exactness, row_by_row
from .base import Direction, Look
from .batches import Parted
from .devices import double
from .fast_passes import FastPasses
from .in_process import InProcess
from .models import Models, equal_rows, flat, pick, row
from .optimizer import Optimizer
from .pairs import look_of, looks
from .participation import Participation
from .privacy import Privacy
from .sketch import Sketch
from .vectorised import Plan, Vectorised, check_losses
from .walks import Walked, first_noise, walk
from .workers import Answer, Item, one_core


class Stacked(InProcess):
    compiled = False

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
        super().__init__(
            problem, seed=seed, batch_size=batch_size, participation=participation, device=device, privacy=privacy
        )
        self.fast = FastPasses(self.passes, problem.clients, self.batch_size)
        self.passes.move(self.device)
        self.small = Vectorised(self.passes.module, self.passes.loss, self.trained, self.compiled, self.passes.cast)

    @property
    def left(self) -> tuple[str, ...]:
        return self.fast.left

    @left.setter
    def left(self, earlier: Iterable[str]) -> None:
        self.fast.go_without(earlier)

    def descended(
        self, models: Models, mix: Tensor, optimizer: Optimizer, steps: range, direction: Direction | None
    ) -> tuple[Models, Optimizer]:
        if not self._all_at_once((mix != 0).any(0)):
            if (
                direction
                or self.private
                or sum(models[name].numel() for name in self.trained) < row_by_row.MANY_NUMBERS
            ):
                return super().descended(models, mix, optimizer, steps, direction)
            rows = row_by_row.ByRow(optimizer, models, self.trained)
            for step in steps:
                self._each_row(rows.models, mix, step, self.roster.numbers, rows.apply)
            return rows.finish()
        running, plan = optimizer.start(models, self.trained), self.small.plan(mix)
        self.passes.train_mode()
        losses: list[Tensor] = []
        with one_core():
            for step, batches in zip(steps, self.batches.stacked(plan.asked, steps), strict=True):
                gradients, loss = self._at_once(self.small.gradients, running.models, plan, batches)
                self._compare(running.models, mix, plan, batches, step, gradients)
                running.apply(direction(running.models, gradients) if direction else gradients)
                losses.append(loss)
        check_losses(losses, plan, steps, self.roster.numbers)
        return running.finish()

    def mixed_gradients(self, models: Models, mix: Tensor, step: int, owners: Tensor | None) -> Models:
        asked = (mix != 0).any(0)
        if self._all_at_once(asked):
            return self._mixed_at_once(models, mix, step, owners)
        result = {name: torch.zeros_like(t) if name in self.trained else t.clone() for name, t in models.items()}

        def put(m: int, found: Models) -> None:
            for name, value in found.items():
                result[name][m] = value

        self._each_row(models, mix, step, owners, put)
        return result

    def _each_row(
        self, models: Models, mix: Tensor, step: int, owners: Tensor | None, take: Callable[[int, Models], None]
    ) -> None:
        """take(m, Σ_k mix[m, k] g_k(θ_m)) for every model, on all cores; then its row may be changed."""
        asked = (mix != 0).any(0)
        batches = {k: self.arranged(batch) for k, batch in self.batches.of(asked, step).items()}

        def add(module: nn.Module, equal: list[int]) -> None:
            m = equal[0]
            model, weights = row(models, m), _weights(mix[m])
            owner = None if owners is None else int(owners[m])
            found = self.fast.mixed(module, model, owner, weights, batches, step)
            if compared in equal:
                self.fast.compare(module, model, m if owner is None else owner, weights, batches, step, found)
            for other in equal[1:]:
                take(other, {name: tensor.clone() for name, tensor in found.items()})
            take(m, found)

        compared = exactness.due(step, len(mix))
        groups = equal_rows(models, mix) if self.fast.concatenates else [[m] for m in range(len(mix))]
        self.passes.workers.each(add, groups, meanwhile=lambda: self.batches.draw_ahead(asked, step + 1))

    def _mixed_at_once(self, models: Models, mix: Tensor, step: int, owners: Tensor | None) -> Models:
        plan, steps = self.small.plan(mix), range(step, step + 1)
        self.passes.train_mode()
        with one_core():
            batches = next(self.batches.stacked(plan.asked, steps))
            result, loss = self._at_once(self.small.gradients, models, plan, batches)
            self._compare(models, mix, plan, batches, step, result)
        check_losses([loss], plan, steps, owners)
        return {name: value if name in self.trained else value.clone() for name, value in result.items()}

    def looked(self, models: Models, batches: dict[int, list[Batch]], ids: Tensor, steps: range, sketch: int) -> Look:
        clients, short, step = list(batches), self.sketch(sketch), steps.start
        if self.fast.vectorises and batches and alike(part for parts in batches.values() for part in parts):
            self.passes.train_mode()
            with one_core():
                rows = self._looked_at_once(models, batches, ids[clients], step, short)
                look = look_of(zip(*rows, strict=True), batches, ids, short.size)
                self._compare_look(models, batches, steps, look, short)
            return look
        arranged = {k: [self.arranged(part) for part in parts] for k, parts in batches.items()}

        def of_row(module: nn.Module, i: int) -> tuple[Tensor, ...]:
            def gradients(k: int) -> list[Tensor] | None:
                if k not in arranged:
                    return None
                return [
                    self._gradient(module, row(models, i), i, k, batch, step, f"look {part}")
                    for part, batch in enumerate(arranged[k])
                ]

            own = gradients(i)  # two clients' gradients in memory, never N
            assert own is not None
            return looks((own if k == i else gradients(k) for k in ids[i].tolist()), own, short)

        return look_of(self.passes.workers.each(of_row, clients), batches, ids, short.size)

    def _looked_at_once(
        self, models: Models, batches: dict[int, list[Batch]], ids: Tensor, step: int, short: Sketch
    ) -> list[Tensor]:
        clients = torch.tensor(list(batches))
        place = torch.full((len(self.roster) + 1,), -1)  # of who does not answer, the last: it is not looked at
        place[clients] = torch.arange(len(clients))
        own, columns = torch.arange(len(clients)), place[ids]
        shown = stacked([stacked(parts) for parts in batches.values()])  # [clients, parts, b, …]
        losses, *found = self._at_once(self.small.look, pick(models, clients), own, columns, shown, short)
        for m, c, _ in (~losses.isfinite()).nonzero().tolist():
            raise Diverged(int(clients[m]), int(clients[place[ids[m, c]]]), step)
        silent = ~torch.isin(ids, clients)
        return [t.masked_fill(silent.view(*ids.shape, *[1] * (t.dim() - 2)), torch.nan) for t in found]

    def _compare_look(
        self, models: Models, batches: dict[int, list[Batch]], steps: range, look: Look, short: Sketch
    ) -> None:
        """Now and then, what one client says at one of the models with the plain way."""
        if (turn := exactness.turn(steps)) is None:
            return
        i = list(batches)[turn % len(batches)]
        c = turn % look.ids.shape[1]
        k = int(look.ids[i, c])
        if k not in batches:
            return

        def plainly(exactly: bool) -> tuple[Tensor, float]:
            given = (row(models, i), batches[k])
            model, parts = exactness.in_double(given) if exactly else given
            found = [
                flat(self.passes.gradient(model, i, k, part, steps.start, f"look {number}")[0].values())
                for number, part in enumerate(parts)
            ]
            together = torch.cat([short(torch.stack(found)).flatten(), torch.stack(found).mean(0).norm()[None]])
            return together, float(together.norm())

        found = torch.cat([look.halves[i, c].flatten(), look.norm[i, c].sqrt()[None]])
        self.fast.check(
            found, plainly, steps.start, "looks at all models at once give another gradient than one by one"
        )

    def _compare_walk(
        self, models: Models, rows: Tensor, ids: Tensor, optimizer: Optimizer, batches: dict[int, Parted], steps: range
    ) -> None:
        """Now and then, the first update of one client's walk with the plain way: later ones grow apart by rounding."""
        if (turn := exactness.turn(steps)) is None or (i := turn % len(self.roster)) not in rows:
            return
        r, c = rows.tolist().index(i), turn % ids.shape[1]
        if (k := int(ids[r, c])) not in batches:
            return
        first = {client: parted[:1] for client, parted in batches.items()}
        way = self._walked(models, rows, ids, optimizer, first, steps[:1]).ways[r, c]

        def gradient(model: Models, batch: Batch, step: int, purpose: str) -> Models:
            found, buffers = self.passes.gradient(model, i, k, batch, step, purpose)
            return {**found, **buffers}

        def plainly(exactly: bool) -> tuple[Tensor, float]:
            given = (row(models, i), first[k])
            model, parted = exactness.in_double(given) if exactly else given
            way = walk(gradient, model, self.trained, optimizer, parted, steps[:1]).ways
            return way, float(double(way).norm())

        if way.isfinite().all():
            told = "walks from all models at once begin otherwise than one by one"
            self.fast.check(way, plainly, steps.start, told)

    def walked(
        self, models: Models, rows: Tensor, ids: Tensor, optimizer: Optimizer, batches: dict[int, Parted], steps: range
    ) -> Walked:
        self._compare_walk(models, rows, ids, optimizer, batches, steps)
        return self._walked(models, rows, ids, optimizer, batches, steps)

    def _walked(
        self, models: Models, rows: Tensor, ids: Tensor, optimizer: Optimizer, batches: dict[int, Parted], steps: range
    ) -> Walked:
        every = (part for parted in batches.values() for parts in parted for part in parts)
        if not self.fast.vectorises or not alike(every):
            return super().walked(models, rows, ids, optimizer, batches, steps)
        self.passes.train_mode()
        with one_core():
            ways, first = self._walked_at_once(models, rows, ids, optimizer, batches, steps)
        return Walked(ways, first, {name: tensor[rows] for name, tensor in models.items() if name not in self.trained})

    def _walked_at_once(
        self, models: Models, rows: Tensor, ids: Tensor, optimizer: Optimizer, batches: dict[int, Parted], steps: range
    ) -> tuple[Tensor, Tensor]:
        """[R, c, parts, P] and [R, c], the noise of the first update. Every walk is a model of its own, which asks one
        client."""
        parts, clients = len(next(iter(batches.values()))[0]), torch.tensor(list(batches))
        place = torch.full((len(self.roster) + 1,), -1)  # of who does not answer, the last: it is not looked at
        place[clients] = torch.arange(len(clients))
        columns = (parts * place[ids][..., None] + torch.arange(parts)).flatten()
        start = pick(models, rows.repeat_interleave(ids.shape[1] * parts))
        running, plan = optimizer.start(start, self.trained), self.small.one_each(columns)
        fine = torch.ones(len(columns), dtype=torch.bool, device=self.device)

        def ways(reached: Models) -> Tensor:
            made = torch.cat([(reached[name] - start[name]).flatten(1) for name in self.trained], 1)
            return made.view(*ids.shape, parts, -1)

        for number in range(len(steps)):
            several = stacked([part for parted in batches.values() for part in parted[number]])
            gradients, losses = self._at_once(self.small.gradients, running.models, plan, several)
            running.apply(gradients)
            fine &= losses.isfinite().all(1)
            if number == 0:
                first = first_noise(ways(running.models))
        found = running.finish()[0]
        fine = fine.cpu().view(*ids.shape, parts).all(2)
        for r, c in (~fine & (ids == rows[:, None])).nonzero().tolist():
            raise Diverged(int(rows[r]), int(ids[r, c]), steps.start)
        heard = (fine & torch.isin(ids, clients)).to(self.device)
        return ways(found).masked_fill(~heard[..., None, None], torch.nan), first

    def each(self, work: Callable[[nn.Module, Item], Answer], items: list[Item]) -> list[Answer]:
        return self.passes.workers.each(work, items)

    def one_gradient(
        self, module: nn.Module, owner: int, client: int, model: Models, batch: Batch, step: int, purpose: str
    ) -> Models:
        if self.private:
            found, buffers = self.private.gradient(model, owner, client, self.arranged(batch), step, purpose, module)
            return {**found, **buffers}
        arranged = {client: self.arranged(batch)}
        return self.fast.mixed(module, model, client, {client: 1.0}, arranged, step, purpose)

    def answers(self, models: Models, client: int, batch: Batch, step: int, purpose: str = "update") -> Tensor:
        count = len(models[self.trained[0]])
        if self.fast.vectorises:
            plan = self.small.plan(torch.ones(count, 1, dtype=torch.float64))
            self.passes.train_mode()
            with one_core():
                gradients, losses = self._at_once(self.small.gradients, models, plan, rows(batch, None))
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
            why = f"the model or the loss fails with all models at once ({type(error).__name__})"
            self.fast.leave(["vectorises"], "not enough memory for all models at once" if is_memory(error) else why)

    def _compare(self, models: Models, mix: Tensor, plan: Plan, batches: Batch, step: int, found: Models) -> None:
        """Now and then, one of the models with the plain way."""
        m = exactness.due(step, len(mix))
        if m is not None:
            drawn = {k: rows(batches, place) for place, k in enumerate(plan.asked)}
            self.fast.compare(self.passes.module, row(models, m), m, _weights(mix[m]), drawn, step, row(found, m))

    def _all_at_once(self, asked: Tensor) -> bool:
        """Whether the model can be vectorised, and all asked clients give batches of the same size."""
        return self.fast.vectorises and self.batches.equally_large(asked)

    def arranged(self, batch: Batch) -> Batch:
        return self.fast.arranged(super().arranged(batch))


def _weights(row: Tensor) -> dict[int, float]:
    return {k: float(row[k]) for k in row.nonzero().flatten().tolist()}


class Compiled(Stacked):
    """Small models moreover as machine code: worth its warm-up of seconds in long runs."""

    compiled = True
