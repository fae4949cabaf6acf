"""What passes batches through the model fast: all partners of a model in one pass, where that gives the same.

Σ_k mix[m, k] g_k(θ_m) is the gradient of one weighted loss over the concatenated batches of the collaborators, so a
model costs one forward and one backward pass, whatever their number. Where a layer mixes the samples of a batch
(BatchNorm) or draws at random (dropout), concatenation would change the result; there each client's batch passes on its
own.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NoReturn

import torch
from torch import Tensor, nn

from ..errors import Diverged, Inexact, blaming, notice
from ..problems import Client
from ..problems.data import Batch
from . import exactness
from .exactness import PASSED_SAMPLES
from .layout import arrange
from .models import Models, flat, row, stack
from .passes import Passes

#: A model with more parameters is not vectorised: there its passes cost more than calling them one by one.
VECTORISED_PARAMETERS = 10_000

Piece = list[tuple[int, float, Tensor, Tensor]]  #: client, weight, inputs, targets: one pass


class FastPasses:
    """The ways that give the same for this model and loss, found by trying them on the clients' data."""

    def __init__(self, plain: Passes, clients: Sequence[Client], batch_size: int) -> None:
        self.plain, self.loss, self.trained = plain, plain.loss, plain.trained
        module = plain.module
        plain.train_mode()
        trial = exactness.Trial(module, self.loss, row(stack(module, 1), 0), self.trained, clients, batch_size)
        alone = not plain.draws and not plain.moves_buffers
        self.concatenates = alone and trial.holds(exactness.concatenates)
        self.splits = self.concatenates and trial.holds(exactness.splits)
        small = sum(p.numel() for p in module.parameters()) <= VECTORISED_PARAMETERS
        bare = self.concatenates and small and not any(True for _ in module.buffers())
        self.vectorises = bare and trial.holds(exactness.vectorises)
        self.channels_last = not self.vectorises and trial.holds(exactness.has_channels_last)

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
        leaves = {name: self._leaf(name, tensor) for name, tensor in model.items()}
        total, after = None, {}
        for piece in self._pieces(weights, batches):
            client = piece[0][0]
            fixed = {name: t.clone() for name, t in model.items() if name not in self.trained}
            inputs = torch.cat([x for _, _, x, _ in piece])
            loss = partial(self._weighted_loss, piece, owner, step)
            gradient = self.plain.differentiate(module, {**leaves, **fixed}, inputs, loss, client, step, purpose)
            total = gradient if total is None else tuple(a + b for a, b in zip(total, gradient, strict=True))
            if client == owner:
                after = fixed
        return {} if total is None else {**dict(zip(self.trained, total, strict=True)), **after}

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
        if not (self.concatenates or self.vectorises or self.channels_last) or not weights:
            return
        difference, length = flat(found[name] for name in self.trained).double(), 0.0
        for k, weight in weights.items():
            gradient, _ = self.plain.gradient(model, owner, k, batches[k], step, module=module)
            difference -= weight * (one := flat(gradient.values()).double())
            length += abs(weight) * float(one.norm())
        allowed = exactness.ROUNDING + 10 * torch.finfo(found[self.trained[0]].dtype).eps
        if float(difference.norm()) > allowed * length:
            self.concatenates = self.splits = self.channels_last = False
            self.leave_vmap(
                f"at step {step} all partners in one pass give another gradient than one by one, by "
                f"{float(difference.norm()) / length:.0%}, as they may have for up to {exactness.AGAIN} updates"
            )

    def leave_vmap(self, why: str) -> NoReturn:
        self.vectorises = False
        notice(
            f"{why}: from this round on they pass one by one, which is slower; the fleet loop does so from the start"
        )
        raise Inexact(why)

    def _weighted_loss(self, piece: Piece, owner: int | None, step: int, output: Tensor) -> Tensor:
        weighted = self._loss_at_once(piece, output)
        return self._loss_one_by_one(piece, output, owner, step) if weighted is None else weighted

    def _loss_at_once(self, piece: Piece, output: Tensor) -> Tensor | None:
        """Σ_k weight_k · loss_k where all samples weigh the same, so that one loss over all of them gives it."""
        if not self.splits or len({weight / len(x) for _, weight, x, _ in piece}) > 1:
            return None
        try:
            loss = sum(weight for _, weight, _, _ in piece) * self.loss(output, torch.cat([y for *_, y in piece]))
        except Exception:  # one by one, whoever is to blame gets named
            return None
        return loss if loss.isfinite() else None

    def _loss_one_by_one(self, piece: Piece, output: Tensor, owner: int | None, step: int) -> Tensor:
        parts = [output] if len(piece) == 1 else output.split([len(x) for _, _, x, _ in piece])
        losses = []
        for (k, weight, _, y), part in zip(piece, parts, strict=True):
            with blaming(f"client {k}: the loss fails on its batch of step {step}", "Look at its targets"):
                losses.append(weight * self.loss(part, y))
        for (k, *_), loss in zip(piece, losses, strict=True):
            if not loss.isfinite():
                raise Diverged(k if owner is None else owner, k, step)
        return torch.stack(losses).sum()

    def _pieces(self, weights: dict[int, float], batches: dict[int, Batch]) -> Iterator[Piece]:
        """The batches in as few passes as is exact and bounded in memory."""
        piece: Piece = []
        held = 0
        for k, weight in weights.items():
            inputs, targets = batches[k]
            size = PASSED_SAMPLES if self.splits else max(1, len(inputs))
            for x, y in zip(inputs.split(size), targets.split(size), strict=True):
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
