"""How similar two clients are now, r_ik, estimated from gradients."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..errors import InputError
from ..fleet import Fleet, Models


class Estimator(Protocol):
    def __call__(self, fleet: Fleet, models: Models, step: int) -> Tensor:
        """[N, N], an estimate of r_ik at the models of now."""
        ...


def similarity(distance: Tensor, norm: Tensor) -> Tensor:
    """r_ik = (1 − ‖∇R_k(θ_i) − ∇R_i(θ_i)‖² / ‖∇R_i(θ_i)‖²)₊, with r_ii = 1.

    `distance` is [N, N]; `norm` is [N], each client's own ‖∇R_i(θ_i)‖². A client at a stationary point (norm 0) is
    similar to nobody but itself.
    """
    ratio = distance / torch.where(norm > 0, norm, 1)[:, None]
    r = torch.where(norm[:, None] > 0, (1 - ratio).clamp(0, 1), 0)
    return r.fill_diagonal_(1)


@dataclass(frozen=True)
class Paper:
    """r̂_ik = (1 − Z_ik / Z_i)₊ from `samples` fresh samples per client, apart from those of the update.

    Noise is in both Z: near the optimum r̂ is mostly noise. And the samples are not free; the fleet counts them.
    """

    samples: int = 512

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise InputError(f"samples is {self.samples}: the estimator needs at least 1 per client")

    def __call__(self, fleet: Fleet, models: Models, step: int) -> Tensor:
        statistics = fleet.compare(models, step, self.samples)
        return similarity(statistics.distance, statistics.norm.diagonal())
