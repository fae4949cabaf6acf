"""The N² loop without sites, wire or coordinator: what the sites of this process are held to, bit for bit."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from allforone.fleet.base import Look
from allforone.fleet.in_process import InProcess
from allforone.fleet.models import Models, alone, flat
from allforone.fleet.pairs import look_of, looks
from allforone.fleet.passes import owner_of
from allforone.fleet.workers import Answer, Item
from allforone.problems.data import Batch


class PairByPair(InProcess):
    def mixed_gradients(self, models: Models, mix: Tensor, step: int, owners: Tensor | None) -> Models:
        batches = self.batches.of((mix != 0).any(0), step)
        result = {name: torch.zeros_like(t) if name in self.trained else t.clone() for name, t in models.items()}
        for m in range(len(mix)):
            for k in mix[m].nonzero().flatten().tolist():
                gradient, buffers = self.passes.gradient(alone(models, m), owner_of(owners, m, k), k, batches[k], step)
                for name in self.trained:
                    result[name][m] += float(mix[m, k]) * gradient[name]
                if owners is not None and k == owners[m]:
                    for name, value in buffers.items():
                        result[name][m] = value
        return result

    def looked(self, models: Models, batches: dict[int, list[Batch]], ids: Tensor, steps: range, sketch: int) -> Look:
        step = steps.start

        def gradients(i: int, k: int) -> list[Tensor] | None:
            return None if k not in batches else self._parts(models, i, k, batches[k], step)

        short = self.sketch(sketch)
        rows = [
            looks((gradients(i, k) for k in ids[i].tolist()), self._parts(models, i, i, batches[i], step), short)
            for i in batches
        ]
        return look_of(rows, batches, ids, short.size)

    def _parts(self, models: Models, i: int, k: int, batches: list[Batch], step: int) -> list[Tensor]:
        return [
            flat(self.passes.gradient(alone(models, i), i, k, batch, step, f"look {part}")[0].values())
            for part, batch in enumerate(batches)
        ]

    def each(self, work: Callable[[nn.Module, Item], Answer], items: list[Item]) -> list[Answer]:
        return [work(self.passes.module, item) for item in items]

    def one_gradient(
        self, module: nn.Module, owner: int, client: int, model: Models, batch: Batch, step: int, purpose: str
    ) -> Models:
        gradient, buffers = self.passes.gradient(model, owner, client, batch, step, purpose)
        return {**gradient, **buffers}

    def answers(self, models: Models, client: int, batch: Batch, step: int, purpose: str = "update") -> Tensor:
        count = len(models[self.trained[0]])
        gradients = [
            self.passes.gradient(alone(models, m), client, client, batch, step, purpose)[0] for m in range(count)
        ]
        return torch.stack([flat(gradient.values()) for gradient in gradients])
