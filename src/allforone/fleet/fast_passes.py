"""What passes batches through the model fast: all partners of a model in one pass, where that gives the same.

Σ_k mix[m, k] g_k(θ_m) is the gradient of one weighted loss over the concatenated batches of the collaborators, so a
model costs one forward and one backward pass, whatever their number. Where a layer mixes the samples of a batch
(BatchNorm) or draws at random (dropout), concatenation would change the result; there each client's batch passes on its
own.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NoReturn

import torch
from torch import Tensor, nn

from ..errors import Diverged, Inexact, InputError, blaming, notice, short
from ..problems import Client
from ..problems.data import Batch
from ..problems.tree import Tree, joined, kind, length, split
from . import exactness
from .exactness import PASSED_SAMPLES
from .layout import arrange, arranged
from .models import Models, flat, row, stack
from .passes import Passes

#: A model with more parameters is not vectorised: there its passes cost more than calling them one by one.
VECTORISED_PARAMETERS = 10_000

#: What a fleet may leave, where it gives something else than the plain way.
WAYS = ("concatenates", "splits", "vectorises", "channels_last")

Piece = list[tuple[int, float, Batch]]  #: client, weight, batch: one pass


class FastPasses:
    """The ways that give the same for this model and loss, found by trying them on the clients' data."""

    def __init__(self, plain: Passes, clients: Sequence[Client], batch_size: int) -> None:
        self.plain, self.trained = plain, plain.trained
        self.left: tuple[str, ...] = ()  #: ways that were found wanting during the run
        module = plain.module
        plain.train_mode()
        trial = exactness.Trial(module, plain.loss, row(stack(module, 1), 0), self.trained, clients, batch_size)
        each = plain.clip is not None or plain.private  # each client's gradient is clipped
        alone = not plain.draws and not plain.moves_buffers and not each
        self.concatenates = alone and trial.holds(exactness.concatenates)
        self.splits = self.concatenates and trial.holds(exactness.splits)
        small = sum(p.numel() for p in module.parameters()) <= VECTORISED_PARAMETERS
        bare = self.concatenates and small and not any(True for _ in module.buffers())
        self.vectorises = bare and trial.holds(exactness.vectorises)
        self.channels_last = not self.vectorises and not plain.private and trial.holds(exactness.has_channels_last)

    def mixed(
        self,
        module: nn.Module,
        model: Models,
        owner: int | None,
        weights: dict[int, float],
        batches: dict[int, Batch],
        step: int,
        purpose: str = "update",
    ) -> Models:
        """Σ_k weights[k] g_k(θ) of one model, and its buffers after the batch of its owner, None if it is nobody's."""
        if self.plain.private:
            return self._one_by_one(module, model, owner, weights, batches, step, purpose)
        leaves = {name: self._leaf(name, tensor) for name, tensor in model.items()}
        total, after = None, {}
        for piece in self._pieces(weights, batches):
            client = piece[0][0]
            fixed = {name: t.clone() for name, t in model.items() if name not in self.trained}
            inputs = joined([x for _, _, (x, _) in piece])
            whole = [(k, 1.0, batch) for k, _, batch in piece] if self.plain.clip else piece
            loss = partial(self._weighted_loss, whole, owner, step)
            gradient = self.plain.differentiate(module, {**leaves, **fixed}, inputs, loss, client, step, purpose)
            if self.plain.clip:  # pieces are single clients then
                gradient = tuple(piece[0][1] * part for part in self.plain.clipped(gradient))
            total = gradient if total is None else tuple(a + b for a, b in zip(total, gradient, strict=True))
            if client == owner:
                after = fixed
        return {} if total is None else {**dict(zip(self.trained, total, strict=True)), **after}

    def _one_by_one(
        self,
        module: nn.Module,
        model: Models,
        owner: int | None,
        weights: dict[int, float],
        batches: dict[int, Batch],
        step: int,
        purpose: str,
    ) -> Models:
        """The same of answers that each client makes by itself."""
        total: Models = {}
        for k, weight in weights.items():
            found, _ = self.plain.gradient(model, k if owner is None else owner, k, batches[k], step, purpose, module)
            total = {name: total[name] + weight * part if total else weight * part for name, part in found.items()}
        return total

    def compare(
        self,
        module: nn.Module,
        model: Models,
        owner: int,
        weights: dict[int, float],
        batches: dict[int, Batch],
        step: int,
        found: Models,
    ) -> None:
        """Leave all fast ways if what they found is not what the plain way gives."""

        def plainly(exactly: bool) -> tuple[Tensor, float]:
            given, drawn = (exactness.in_double(model), exactness.in_double(batches)) if exactly else (model, batches)
            total, size = torch.zeros(sum(given[name].numel() for name in self.trained), dtype=torch.float64), 0.0
            for k, weight in weights.items():  # in place, since a large model's gradient is large
                one = flat(self.plain.gradient(given, owner, k, drawn[k], step, module=module)[0].values()).cpu()
                total.add_(one, alpha=weight)
                size += abs(weight) * float(torch.linalg.vector_norm(one, dtype=torch.float64))
            return total, size

        if weights:
            told = "all partners in one pass give another gradient than one by one"
            self.check(flat(found[name] for name in self.trained), plainly, step, told)

    def check(self, found: Tensor, plainly: Callable[[bool], tuple[Tensor, float]], step: int, told: str) -> None:
        """Leave all fast ways if what was found differs from the plain way's."""
        if not (self.concatenates or self.vectorises or self.channels_last):
            return
        if (share := exactness.strays(found, plainly, self.plain.eps)) is not None:
            by = f"{share:.0%}" if share > 0.005 else f"{share:.1g} of its length"
            self.leave(WAYS, f"at step {step} {told}, by {by}, as they may have for up to {exactness.AGAIN} updates")

    def leave(self, ways: Iterable[str], why: str) -> NoReturn:
        self.go_without(ways)
        notice(
            f"{why}: from this round on they pass one by one, which is slower; the fleet loop does so from the start"
        )
        raise Inexact(why)

    def go_without(self, ways: Iterable[str]) -> None:
        for way in ways:
            if way not in WAYS:
                raise InputError(f"'{short(way)}' is no fast way; known: {', '.join(WAYS)}")
            setattr(self, way, False)
        self.left = tuple(way for way in WAYS if way in {*self.left, *ways})

    def _weighted_loss(self, piece: Piece, owner: int | None, step: int, output: Tree) -> Tensor:
        weighted = self._loss_at_once(piece, output)
        return self._loss_one_by_one(piece, output, owner, step) if weighted is None else weighted

    def _loss_at_once(self, piece: Piece, output: Tree) -> Tensor | None:
        """Σ_k weight_k · loss_k where all samples weigh the same, so that one loss over all of them gives it."""
        if not self.splits or len({weight / length(batch) for _, weight, batch in piece}) > 1:
            return None
        try:
            loss = sum(weight for _, weight, _ in piece) * self.plain.loss(output, joined([y for *_, (_, y) in piece]))
        except Exception:  # one by one, whoever is to blame gets named
            return None
        return loss if loss.isfinite() else None

    def _loss_one_by_one(self, piece: Piece, output: Tree, owner: int | None, step: int) -> Tensor:
        parts = [output] if len(piece) == 1 else split(output, [length(batch) for _, _, batch in piece])
        losses = []
        for (k, weight, (_, y)), part in zip(piece, parts, strict=True):
            with blaming(f"client {k}: the loss fails on its batch of step {step}", "Look at its targets"):
                losses.append(weight * self.plain.loss(part, y))
        for (k, *_), loss in zip(piece, losses, strict=True):
            if not loss.isfinite():
                raise Diverged(k if owner is None else owner, k, step)
        return torch.stack(losses).sum()

    def _pieces(self, weights: dict[int, float], batches: dict[int, Batch]) -> Iterator[Piece]:
        """The batches in as few passes as is exact and bounded in memory."""
        piece: Piece = []
        held = 0
        for k, weight in weights.items():
            whole = length(batches[k])
            for some in split(batches[k], PASSED_SAMPLES) if self.splits and whole > PASSED_SAMPLES else [batches[k]]:
                count = length(some)
                fits = self.concatenates and held + count <= PASSED_SAMPLES
                if piece and not (fits and kind(some) == kind(piece[0][2])):
                    yield piece
                    piece, held = [], 0
                piece.append((k, weight * count / whole, some))
                held += count
        if piece:
            yield piece

    def _leaf(self, name: str, tensor: Tensor) -> Tensor:
        tensor = arrange(tensor.detach()) if self.channels_last else tensor.detach()
        return tensor.requires_grad_(name in self.trained)

    def arranged(self, batch: Batch) -> Batch:
        return arranged(batch) if self.channels_last else batch
