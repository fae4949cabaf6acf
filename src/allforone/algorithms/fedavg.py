"""FedAvg: `inner` local steps from the common model, then the mean weighted by the clients' data; one model for all."""

import torch

from ..fleet import Fleet, Models, Optimizer, mean, repeat
from .base import Info, State


class FedAvg:
    """Every client keeps its own optimizer state (momentum) from round to round, as sites that are always there can."""

    def init(self, models: Models, optimizer: Optimizer) -> State:
        return State(models, optimizer, {})

    def step(self, state: State, fleet: Fleet, steps: range) -> tuple[State, Info]:
        n = len(fleet.sizes)
        alone = torch.eye(n, dtype=torch.float64)
        models, optimizer = fleet.descend(state.models, alone, state.optimizer, steps)
        share = fleet.sizes / fleet.sizes.sum()
        return state._replace(models=repeat(mean(models, share), n), optimizer=optimizer), Info(share.expand(n, n))
