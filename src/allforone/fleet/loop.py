"""The plain N² loop, written to be obviously right: the reference for tests, the yardstick for benchmarks."""

import torch
from torch import Tensor

from .base import Models, PairStatistics, flat, row
from .in_process import InProcess


class Loop(InProcess):
    def gradients(self, models: Models, mix: Tensor, step: int) -> Models:
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

    def compare(self, models: Models, step: int, samples: int) -> PairStatistics:
        n = len(self.clients)
        batches = self.batches(torch.ones(n, dtype=torch.bool), step, "compare", samples)
        distance, norm = torch.zeros(n, n, dtype=torch.float64), torch.zeros(n, n, dtype=torch.float64)
        for i in range(n):
            own = flat(self.gradient(row(models, i), i, i, batches[i], step, "compare")[0].values())
            for k in range(n):
                other = flat(self.gradient(row(models, i), i, k, batches[k], step, "compare")[0].values())
                distance[i, k] = (other - own).square().sum()
                norm[i, k] = other.square().sum()
        return PairStatistics(distance, norm)
