"""A direction that can be told to whoever descends, since it is data and no code."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .base import Direction
from .models import Models, pick, plus


@dataclass(frozen=True, eq=False)
class Proximal:
    """g_i(θ_i) + strength · (θ_i − centre): models held near another, or each near one of its own."""

    strength: float
    centre: Models  #: of what is trained, a stack of one, or a row for each client

    def __call__(self, models: Models, gradients: Models) -> Models:
        return plus(gradients, {name: self.strength * (models[name] - w) for name, w in self.centre.items()})

    def of(self, client: int) -> "Proximal":
        """What one client is told: its own row alone."""
        one = len(next(iter(self.centre.values()))) == 1
        return self if one else replace(self, centre=pick(self.centre, torch.tensor([client])))


def by_themselves(mix: Tensor, direction: Direction | None) -> Tensor:
    """[N], who descends a round by its own gradients alone, along what can be told: nobody else is asked about it."""
    if direction is not None and not isinstance(direction, Proximal):
        return torch.zeros(len(mix), dtype=torch.bool)
    return (mix.clone().fill_diagonal_(0) == 0).all(1) & (mix.diagonal() != 0)
