"""The plain N² loop, written to be obviously right: the reference for tests, the yardstick for benchmarks."""

import torch
from torch import Tensor

from .base import Models, PairStatistics, flat, pair_statistics, row, statistics
from .in_process import InProcess


class Loop(InProcess):
    def mixed_gradients(self, models: Models, mix: Tensor, step: int) -> Models:
        batches = self.batches((mix != 0).any(0), step, "update", self.batch_size)
        result = {name: torch.zeros_like(t) if name in self.trained else t.clone() for name, t in models.items()}
        for m in range(len(mix)):
            for k in mix[m].nonzero().flatten().tolist():
                gradient, buffers = self.gradient(row(models, m), m, k, batches[k], step)
                for name in self.trained:
                    result[name][m] += float(mix[m, k]) * gradient[name]
                if k == m and len(mix) == len(self.clients):
                    for name, value in buffers.items():
                        result[name][m] = value
        return result

    def compare(
        self, models: Models, step: int, samples: int | None = None, among: Tensor | None = None
    ) -> PairStatistics:
        asked = self.present(step) if among is None else among
        batches = self.compared(asked, step, samples)

        def gradients(i: int, k: int) -> list[Tensor]:
            return [
                flat(self.gradient(row(models, i), i, k, batch, step, f"compare {part}")[0].values())
                for part, batch in enumerate(batches[k])
            ]

        rows = [statistics(gradients(i, i), (gradients(i, k) for k in batches)) for i in batches]
        return pair_statistics(rows, list(batches), len(self.clients), samples is None)
