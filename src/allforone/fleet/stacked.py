"""The fast fleet of this process.

Σ_k mix[m, k] g_k(θ_m) is the gradient of one weighted loss over the concatenated batches of the collaborators, so a
model costs one forward and one backward pass, whatever their number. Small models are moreover computed all at once
(`vmap`). Where a layer mixes the samples of a batch (BatchNorm) or draws at random (dropout), concatenation would
change the result; there each client's batch passes on its own. Which case holds is tried out, not declared.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from ..errors import Diverged, blaming
from ..problems import Problem
from ..problems.data import Batch, draw
from .base import Models, PairStatistics, flat, row
from .in_process import InProcess

VECTORISED_PARAMETERS = 10_000  # above, the passes cost more than calling them one by one
COMPARED_NUMBERS = 2**24  # entries of gradients held at once while comparing


class Stacked(InProcess):
    def __init__(self, problem: Problem, *, seed: int, batch_size: int | None = None) -> None:
        super().__init__(problem, seed=seed, batch_size=batch_size)
        alone = not self.draws and not self.moves_buffers
        self.concatenates = alone and self._tried(self._concatenation_is_exact)
        small = sum(p.numel() for p in self.module.parameters()) <= VECTORISED_PARAMETERS
        self.vectorises = (
            self.concatenates and small and not any(True for _ in self.module.buffers())
            and self._tried(self._vectorisation_is_exact)
        )

    def gradients(self, models: Models, mix: Tensor, step: int) -> Models:
        batches = self.batches((mix != 0).any(0), step, "update", self.batch_size)
        if self.vectorises and len({len(inputs) for inputs, _ in batches.values()}) == 1:
            return self._gradients_of_all(models, mix, batches, step)
        result = {name: torch.zeros_like(t) if name in self.trained else t.clone() for name, t in models.items()}
        for m in range(len(mix)):
            weights = {k: float(mix[m, k]) for k in mix[m].nonzero().flatten().tolist()}
            if not weights:
                continue
            if self.concatenates:
                self._add_concatenated(result, models, m, weights, batches, step)
            else:
                self._add_one_by_one(result, models, m, weights, batches, step)
        return result

    def compare(self, models: Models, step: int, samples: int) -> PairStatistics:
        n = len(self.clients)
        batches = self.batches(torch.ones(n, dtype=torch.bool), step, "compare", samples)
        if self.vectorises and len({len(inputs) for inputs, _ in batches.values()}) == 1:
            return self._compare_all(models, batches, step)
        rows = []
        for i in range(n):
            model = row(models, i)
            gradients = torch.stack([
                flat(self.gradient(model, i, k, batches[k], step, "compare")[0].values()) for k in range(n)
            ])
            rows.append(_statistics(gradients, gradients[i]))
        return PairStatistics(*(torch.stack(column).double() for column in zip(*rows, strict=True)))

    def _add_concatenated(
        self, result: Models, models: Models, m: int, weights: dict[int, float], batches: dict[int, Batch], step: int
    ) -> None:
        leaves = {name: t.detach().requires_grad_(name in self.trained) for name, t in row(models, m).items()}
        inputs = torch.cat([batches[k][0] for k in weights])
        with self.training(m, step):
            outputs = functional_call(self.module, leaves, inputs).split([len(batches[k][0]) for k in weights])
        losses = []
        for k, output in zip(weights, outputs, strict=True):
            with blaming(f"client {k}: the loss fails on its batch of step {step}", "Look at its targets"):
                losses.append(self.loss(output, batches[k][1]))
        for k, loss in zip(weights, losses, strict=True):
            if not loss.isfinite():
                raise Diverged(m, k, step)
        total = sum(weight * loss for weight, loss in zip(weights.values(), losses, strict=True))
        gradient = torch.autograd.grad(total, [leaves[n] for n in self.trained], materialize_grads=True)  # type: ignore[arg-type]
        for name, value in zip(self.trained, gradient, strict=True):
            result[name][m] = value

    def _add_one_by_one(
        self, result: Models, models: Models, m: int, weights: dict[int, float], batches: dict[int, Batch], step: int
    ) -> None:
        for k, weight in weights.items():
            gradient, buffers = self.gradient(row(models, m), m, k, batches[k], step)
            for name in self.trained:
                result[name][m] += weight * gradient[name]
            if k == m and len(result[self.trained[0]]) == len(self.clients):
                for name, value in buffers.items():
                    result[name][m] = value

    # Small models: all at once. A row with fewer collaborators than the longest repeats one of its own, with weight 0.

    def _gradients_of_all(self, models: Models, mix: Tensor, batches: dict[int, Batch], step: int) -> Models:
        width = max(1, int((mix != 0).sum(1).max()))
        weights, columns = mix.abs().sort(dim=1, descending=True, stable=True)
        weights, columns = mix.gather(1, columns[:, :width]), columns[:, :width]
        columns = torch.where(weights != 0, columns, columns[:, :1])
        asked = list(batches)
        place = torch.zeros(len(self.clients), dtype=torch.long)
        place[asked] = torch.arange(len(asked))
        inputs, targets = (torch.stack([batches[k][part] for k in asked])[place[columns]] for part in (0, 1))
        trained, fixed = self._apart(models)
        dtype = trained[self.trained[0]].dtype
        self.train_mode()
        with blaming(f"the model or the loss fails on the batches of step {step}", "Look at the clients' data"):
            gradient, losses = vmap(grad(self._weighted_loss, has_aux=True))(
                trained, fixed, inputs, targets, weights.to(dtype))
        if not losses.isfinite().all():
            for m, j in (~losses.isfinite() & (weights != 0)).nonzero().tolist():
                raise Diverged(m, int(columns[m, j]), step)
        asked_nobody = (mix == 0).all(1)
        for tensor in gradient.values():
            tensor[asked_nobody] = 0
        return {**gradient, **{name: tensor.clone() for name, tensor in fixed.items()}}

    def _weighted_loss(
        self, trained: Models, fixed: Models, inputs: Tensor, targets: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Σ_k weights[k] · loss on batch k, and the losses; one forward pass."""
        output = functional_call(self.module, {**trained, **fixed}, inputs.flatten(0, 1))
        losses = vmap(self.loss)(output.unflatten(0, inputs.shape[:2]), targets)
        return weights @ losses, losses

    def _compare_all(self, models: Models, batches: dict[int, Batch], step: int) -> PairStatistics:
        n = len(self.clients)
        inputs, targets = (torch.stack([batches[k][part] for k in range(n)]) for part in (0, 1))
        self.train_mode()

        def loss(trained: Models, fixed: Models, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            value = self.loss(functional_call(self.module, {**trained, **fixed}, x), y)
            return value, value

        def statistics(trained: Models, fixed: Models, own: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            gradient, losses = vmap(grad(loss, has_aux=True), (None, None, 0, 0))(trained, fixed, inputs, targets)
            vectors = torch.cat([gradient[name].flatten(1) for name in self.trained], 1)
            if vectors.dtype in (torch.float16, torch.bfloat16):
                vectors = vectors.float()
            return *_statistics(vectors, own.to(vectors.dtype) @ vectors), losses

        trained, fixed = self._apart(models)
        size = sum(tensor[0].numel() for tensor in trained.values())
        chunk = max(1, COMPARED_NUMBERS // (n * size))
        identity = torch.eye(n, dtype=trained[self.trained[0]].dtype)
        distance, norm, losses = vmap(statistics, chunk_size=chunk)(trained, fixed, identity)
        for m, k in (~losses.isfinite()).nonzero().tolist():
            raise Diverged(m, k, step)
        return PairStatistics(distance.double(), norm.double())

    def _apart(self, models: Models) -> tuple[Models, Models]:
        trained = {name: models[name] for name in self.trained}
        return trained, {name: tensor for name, tensor in models.items() if name not in trained}

    # Which of the ways is exact for this model: tried on two small batches, at a random point near the start.

    def _tried(self, attempt: Callable[[Models, list[Batch]], bool]) -> bool:
        model = {name: tensor[0] for name, tensor in self.initial().items()}
        random = torch.Generator().manual_seed(0)
        for name in self.trained:  # a layer that starts at zero would hide what it does
            model[name] = model[name] + 0.1 * torch.randn(model[name].shape, generator=random, dtype=model[name].dtype)
        clients = [0, len(self.clients) - 1]
        pair = [draw(self.clients[k].train, 2, seed=0, client=k, step=1, purpose="try") for k in clients]
        self.train_mode()
        try:
            with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
                warnings.simplefilter("error")  # vmap warns where it would be slow
                return attempt(model, pair)
        except Exception:  # whatever the user's model does when asked in this way, the plain way remains
            return False

    @torch.no_grad()
    def _concatenation_is_exact(self, model: Models, pair: list[Batch]) -> bool:
        def output(inputs: Tensor) -> Any:
            return functional_call(self.module, {name: tensor.clone() for name, tensor in model.items()}, inputs)

        together, apart = output(torch.cat([x for x, _ in pair])), torch.cat([output(x) for x, _ in pair])
        return len(together) == sum(len(x) for x, _ in pair) and _close(together, apart)

    def _vectorisation_is_exact(self, model: Models, pair: list[Batch]) -> bool:
        if len({len(inputs) for inputs, _ in pair}) != 1:
            return False
        trained, fixed = self._apart(model)
        weights = torch.tensor([0.25, 0.75], dtype=trained[self.trained[0]].dtype)
        inputs, targets = (torch.stack([batch[part] for batch in pair])[None] for part in (0, 1))
        stacked = ({name: t[None] for name, t in trained.items()}, {name: t[None] for name, t in fixed.items()})
        weighted = grad(self._weighted_loss, has_aux=True)
        fast, _ = vmap(weighted)(*stacked, inputs, targets, weights[None])
        vmap(weighted, (0, 0, None, None, None))(*stacked, inputs[0].clone(), targets[0], weights)  # as when comparing
        plain = [self.gradient(model, 0, 0, batch, 0)[0] for batch in pair]
        return all(_close(fast[name][0], weights[0] * plain[0][name] + weights[1] * plain[1][name])
                   for name in self.trained)


def _statistics(gradients: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    return (gradients - own).square().sum(1), gradients.square().sum(1)


def _close(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).abs().max() <= 1e-3 * b.abs().max())
