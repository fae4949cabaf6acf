"""Small models all at once: one pass of `vmap` over all models and batches, where calls would cost more than sums."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from ..errors import Diverged, blaming
from ..problems import Loss
from .base import Models

COMPARED_NUMBERS = 2**24  # entries of gradients held at once while comparing


class Plan:
    """Which batches each model needs. A row that asks fewer clients than the longest repeats one, with weight 0."""

    def __init__(self, mix: Tensor, dtype: torch.dtype) -> None:
        self.asked = (mix != 0).any(0).nonzero().flatten().tolist()
        self.width = max(1, int((mix != 0).sum(1).max()))
        columns = mix.abs().sort(dim=1, descending=True, stable=True).indices[:, : self.width]
        weights = mix.gather(1, columns)
        self.clients = torch.where(weights != 0, columns, columns[:, :1])
        place = torch.zeros(mix.shape[1], dtype=torch.long)
        place[self.asked] = torch.arange(len(self.asked))
        self.columns, self.weights = place[self.clients], weights.to(dtype)
        self.idle = (mix == 0).all(1)
        self.any_idle = bool(self.idle.any())


class Vectorised:
    """A module without buffers whose layers treat samples alone."""

    def __init__(self, module: nn.Module, loss: Loss, trained: list[str], compiled: bool = False) -> None:
        self.module, self.loss, self.trained, self.compiled = module, loss, trained, compiled
        self.dtype = dict(module.named_parameters())[trained[0]].dtype
        self._gradients: Callable[..., Any] = torch.compile(self._weighted) if compiled else self._weighted

    def gradients(self, models: Models, plan: Plan, inputs: Tensor, targets: Tensor) -> tuple[Models, Tensor]:
        """Σ_k mix[m, k] g_k(θ_m) for all m, and the losses; batches [asked, b, …] of the clients of the plan."""
        trained, fixed = self._apart(models)
        gradient, losses = self._gradients(trained, fixed, inputs, targets, plan.columns, plan.weights)
        if plan.any_idle:
            for tensor in gradient.values():
                tensor[plan.idle] = 0
        return {**gradient, **fixed}, losses

    def _weighted(
        self, trained: Models, fixed: Models, inputs: Tensor, targets: Tensor, columns: Tensor, weights: Tensor
    ) -> Any:
        return vmap(grad(self.weighted_loss, has_aux=True))(
            trained, fixed, inputs[columns], targets[columns], weights)

    def weighted_loss(
        self, trained: Models, fixed: Models, inputs: Tensor, targets: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Σ_k weights[k] · loss on batch k, and the losses; one forward pass."""
        output = functional_call(self.module, {**trained, **fixed}, inputs.flatten(0, 1))
        losses = vmap(self.loss)(output.unflatten(0, inputs.shape[:2]), targets)
        return weights @ losses, losses

    def compare(self, models: Models, inputs: Tensor, targets: Tensor, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Distance, norm and noise of the gradients on batches [N, parts, b, …] at N models: each [N, N]."""
        def loss(trained: Models, fixed: Models, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            value = self.loss(functional_call(self.module, {**trained, **fixed}, x), y)
            return value, value

        def of_model(trained: Models, fixed: Models, own: Tensor) -> tuple[Tensor, ...]:
            of_part = vmap(grad(loss, has_aux=True), (None, None, 0, 0))
            gradient, losses = vmap(of_part, (None, None, 0, 0))(trained, fixed, inputs, targets)
            vectors = torch.cat([gradient[name].flatten(2) for name in self.trained], 2)  # [N, parts, P]
            if vectors.dtype in (torch.float16, torch.bfloat16):
                vectors = vectors.float()
            mean = vectors.mean(1)
            distance = (mean - own.to(mean.dtype) @ mean).square().sum(1)
            return distance, mean.square().sum(1), (vectors[:, 0] - vectors[:, -1]).square().sum(1) / 4, losses

        trained, fixed = self._apart(models)
        n, size = len(inputs), sum(tensor[0].numel() for tensor in trained.values())
        chunk = max(1, COMPARED_NUMBERS // (n * inputs.shape[1] * size))
        with blaming(f"the model or the loss fails on the batches of step {step}", "Look at the clients' data"):
            distance, norm, noise, losses = vmap(of_model, chunk_size=chunk)(
                trained, fixed, torch.eye(n, dtype=self.dtype))
        for m, k, _ in (~losses.isfinite()).nonzero().tolist():
            raise Diverged(m, k, step)
        return distance.double(), norm.double(), noise.double()

    def _apart(self, models: Models) -> tuple[Models, Models]:
        trained = {name: models[name] for name in self.trained}
        return trained, {name: tensor for name, tensor in models.items() if name not in trained}


def check_losses(losses: list[Tensor], plan: Plan, steps: range) -> None:
    """Name the first step, model and client whose loss is not finite."""
    if torch.stack(losses).isfinite().all():
        return
    for step, loss in zip(steps, losses, strict=False):
        for m, j in (~loss.isfinite() & (plan.weights != 0)).nonzero().tolist():
            raise Diverged(m, int(plan.clients[m, j]), step)
