"""The fast fleet of this process.

Σ_k mix[m, k] g_k(θ_m) is the gradient of one weighted loss over the concatenated batches of the collaborators, so a
model costs one forward and one backward pass, whatever their number; the models share the cores. Small models are
moreover computed all at once (`vmap`). Where a layer mixes the samples of a batch (BatchNorm) or draws at random
(dropout), concatenation would change the result; there each client's batch passes on its own.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..errors import Diverged, blaming
from ..problems import Problem
from ..problems.data import Batch, draw_many
from . import exactness
from .base import Direction, Models, PairStatistics, flat, pair_statistics, row, statistics
from .in_process import InProcess, Participation
from .layout import arrange
from .optimizer import Optimizer
from .vectorised import Vectorised, check_losses
from .workers import one_core

VECTORISED_PARAMETERS = 10_000  # above, the passes cost more than calling them one by one
PASSED_SAMPLES = 256  # that go through a model at once, where they may be split: bounds the activations
DRAWN_NUMBERS = 2**20  # entries of inputs drawn ahead for small models

Piece = list[tuple[int, float, Tensor, Tensor]]  #: client, weight, inputs, targets: one pass


class Stacked(InProcess):
    compiled = False

    def __init__(
        self, problem: Problem, *, seed: int, batch_size: int | None = None, participation: Participation = 1.0
    ) -> None:
        super().__init__(problem, seed=seed, batch_size=batch_size, participation=participation)
        self.train_mode(self.module)
        trial = exactness.Trial(self.module, self.loss, row(self.initial(), 0), self.trained, self.clients)
        alone = not self.draws and not self.moves_buffers
        self.concatenates = alone and trial.holds(exactness.concatenates)
        self.splits = self.concatenates and trial.holds(exactness.splits)
        small = sum(p.numel() for p in self.module.parameters()) <= VECTORISED_PARAMETERS
        self.vectorises = (
            self.concatenates
            and small
            and not any(True for _ in self.module.buffers())
            and trial.holds(exactness.vectorises)
        )
        self.channels_last = not self.vectorises and trial.holds(exactness.has_channels_last)
        self.small = Vectorised(self.module, self.loss, self.trained, self.compiled)

    def descended(
        self, models: Models, mix: Tensor, optimizer: Optimizer, steps: range, direction: Direction | None
    ) -> tuple[Models, Optimizer]:
        if not self.at_once((mix != 0).any(0), self.batch_size):
            return super().descended(models, mix, optimizer, steps, direction)
        running, plan = optimizer.start(models, self.trained), self.small.plan(mix)
        self.train_mode(self.module)
        losses: list[Tensor] = []
        with one_core():
            for inputs, targets in self.stacked_batches(plan.asked, steps, "update", self.batch_size):
                gradients, loss = self.small.gradients(running.models, plan, inputs, targets)
                running.apply(direction(running.models, gradients) if direction else gradients)
                losses.append(loss)
        check_losses(losses, plan, steps)
        return running.finish()

    def mixed_gradients(self, models: Models, mix: Tensor, step: int) -> Models:
        if self.at_once((mix != 0).any(0), self.batch_size):
            plan, steps = self.small.plan(mix), range(step, step + 1)
            self.train_mode(self.module)
            with one_core():
                inputs, targets = next(self.stacked_batches(plan.asked, steps, "update", self.batch_size))
                result, loss = self.small.gradients(models, plan, inputs, targets)
            check_losses([loss], plan, steps)
            return {name: value if name in self.trained else value.clone() for name, value in result.items()}
        asked = (mix != 0).any(0)
        drawn = self.batches(asked, step, "update", self.batch_size)
        batches = {k: self.arranged(batch) for k, batch in drawn.items()}
        result = {name: torch.zeros_like(t) if name in self.trained else t.clone() for name, t in models.items()}

        owned = len(mix) == len(self.clients)

        def add(module: nn.Module, m: int) -> None:
            weights = {k: float(mix[m, k]) for k in mix[m].nonzero().flatten().tolist()}
            for name, value in self.mixed(module, row(models, m), m, weights, batches, step).items():
                if owned or name in self.trained:
                    result[name][m] = value

        self.workers.each(add, range(len(mix)), meanwhile=lambda: self.draw_ahead(asked, step + 1))
        return result

    def compare(
        self, models: Models, step: int, samples: int | None = None, among: Tensor | None = None
    ) -> PairStatistics:
        n, asked = len(self.clients), self.present(step) if among is None else among
        batches = {
            k: [self.arranged(part) for part in parts] for k, parts in self.compared(asked, step, samples).items()
        }
        clients = list(batches)
        if self.at_once(asked, samples or self.batch_size):
            self.train_mode(self.module)
            with one_core():
                inputs, targets = (
                    torch.stack([torch.stack([batch[part] for batch in batches[k]]) for k in clients])
                    for part in (0, 1)
                )
                rows = self.small.compare({name: t[clients] for name, t in models.items()}, inputs, targets, step)
            return pair_statistics(zip(*rows, strict=True), clients, n, samples is None)

        def of_row(module: nn.Module, i: int) -> tuple[Tensor, Tensor, Tensor]:
            def gradients(k: int) -> list[Tensor]:
                found = []
                for part, batch in enumerate(batches[k]):
                    mixed = self.mixed(module, row(models, i), i, {k: 1.0}, {k: batch}, step, f"compare {part}")
                    found.append(flat(mixed[name] for name in self.trained))
                return found

            own = gradients(i)  # two clients' gradients in memory, never N
            return statistics(own, (gradients(k) if k != i else own for k in clients))

        return pair_statistics(self.workers.each(of_row, clients), clients, n, samples is None)

    def mixed(
        self,
        module: nn.Module,
        model: Models,
        m: int,
        weights: dict[int, float],
        batches: dict[int, Batch],
        step: int,
        purpose: str = "update",
    ) -> Models:
        """Σ_k weights[k] g_k(θ) of one model, and its buffers after the batch of its owner m."""
        leaves = {name: self._leaf(name, tensor) for name, tensor in model.items()}
        wanted, total, after = [leaves[name] for name in self.trained], None, {}
        for piece in self.pieces(weights, batches):
            client = piece[0][0]
            fixed = {name: t.clone() for name, t in model.items() if name not in self.trained}
            with self.training(module, client, step, purpose):
                output = functional_call(module, {**leaves, **fixed}, torch.cat([x for _, _, x, _ in piece]))
            weighted = self._loss_at_once(piece, output)
            if weighted is None:
                weighted = self._loss_one_by_one(piece, output, m, step)
            gradient = torch.autograd.grad(weighted, wanted, materialize_grads=True)
            total = gradient if total is None else tuple(a + b for a, b in zip(total, gradient, strict=True))
            if client == m:
                after = fixed
        return {} if total is None else {**dict(zip(self.trained, total, strict=True)), **after}

    def _loss_at_once(self, piece: Piece, output: Tensor) -> Tensor | None:
        """Σ_k weight_k · loss_k where all samples weigh the same, so that one loss over all of them gives it."""
        if not self.splits or len({weight / len(x) for _, weight, x, _ in piece}) > 1:
            return None
        try:
            loss = sum(weight for _, weight, _, _ in piece) * self.loss(output, torch.cat([y for *_, y in piece]))
        except Exception:  # one by one, whoever is to blame gets named
            return None
        return loss if loss.isfinite() else None

    def _loss_one_by_one(self, piece: Piece, output: Tensor, m: int, step: int) -> Tensor:
        parts = [output] if len(piece) == 1 else output.split([len(x) for _, _, x, _ in piece])
        losses = []
        for (k, weight, _, y), part in zip(piece, parts, strict=True):
            with blaming(f"client {k}: the loss fails on its batch of step {step}", "Look at its targets"):
                losses.append(weight * self.loss(part, y))
        for (k, *_), loss in zip(piece, losses, strict=True):
            if not loss.isfinite():
                raise Diverged(m, k, step)
        return torch.stack(losses).sum()

    def column(self, models: Models, k: int, batch: Batch, step: int, purpose: str = "update") -> Tensor:
        """[models, P], the gradient of client k on this batch at every model."""
        count = len(models[self.trained[0]])
        if self.vectorises:
            plan = self.small.plan(torch.ones(count, 1, dtype=torch.float64))
            self.train_mode(self.module)
            with one_core():
                gradients, losses = self.small.gradients(models, plan, batch[0][None], batch[1][None])
            check_losses([losses], plan, range(step, step + 1))
            return torch.cat([gradients[name].flatten(1) for name in self.trained], 1)

        def of_row(module: nn.Module, m: int) -> Tensor:
            mixed = self.mixed(module, row(models, m), m, {k: 1.0}, {k: self.arranged(batch)}, step, purpose)
            return torch.cat([mixed[name].flatten() for name in self.trained])

        return torch.stack(self.workers.each(of_row, range(count)))

    def pieces(self, weights: dict[int, float], batches: dict[int, Batch]) -> Iterator[Piece]:
        """The batches in as few passes as is exact and bounded in memory."""
        piece: Piece = []
        held = 0
        for k, weight in weights.items():
            inputs, targets = batches[k]
            whole = not self.splits or len(inputs) <= PASSED_SAMPLES
            for x, y in (
                [(inputs, targets)]
                if whole
                else zip(inputs.split(PASSED_SAMPLES), targets.split(PASSED_SAMPLES), strict=True)
            ):
                if piece and (not self.concatenates or held + len(x) > PASSED_SAMPLES):
                    yield piece
                    piece, held = [], 0
                piece.append((k, weight * len(x) / len(inputs), x, y))
                held += len(x)
        if piece:
            yield piece

    def _leaf(self, name: str, tensor: Tensor) -> Tensor:
        tensor = arrange(tensor.detach()) if self.channels_last else tensor.detach()
        return tensor.requires_grad_(name in self.trained)

    def arranged(self, batch: Batch) -> Batch:
        return (arrange(batch[0]), batch[1]) if self.channels_last else batch

    # Small models, all at once.

    def at_once(self, asked: Tensor, size: int) -> bool:
        """Whether the model can be vectorised, and all asked clients give batches of the same size."""
        if not self.vectorises or not asked.any():
            return False
        return len({self.clients[k].batch(size) for k in asked.nonzero().flatten().tolist()}) == 1

    def stacked_batches(self, asked: list[int], steps: range, purpose: str, size: int) -> Iterator[Batch]:
        """[asked, b, …] for each step; the first step alone, to see how large it is, then many at a time."""
        ahead, start = 1, steps.start
        while start < steps.stop:
            some = range(start, min(start + ahead, steps.stop))
            drawn = [
                draw_many(self.clients[k].train, size, seed=self.seed, client=k, steps=some, purpose=purpose)
                for k in asked
            ]
            inputs, targets = (torch.stack([batch[part] for batch in drawn], 1) for part in (0, 1))
            for k in asked:
                self.count(k, some, purpose, inputs.shape[2])
            yield from zip(inputs, targets, strict=True)
            ahead, start = max(1, DRAWN_NUMBERS // inputs[0].numel()), some.stop


class Compiled(Stacked):
    """Small models moreover as machine code: worth its warm-up of seconds in long runs."""

    compiled = True
