"""IFCA (Ghosh, Chung, Yin, Ramchandran 2020): K models; each client trains the one that fits it best.

Every round client i picks k = argmin loss_i(w_k) on the batches of the round, takes `inner` steps from w_k, and w_k
becomes the mean of those who picked it. The K models start as the local models farthest apart after one round.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from ..fleet import Fleet, Models, Optimizer, mean
from .base import Info, State, alone


@dataclass(frozen=True)
class Ifca:
    clusters: int = 2

    def __post_init__(self) -> None:
        if self.clusters < 1:
            raise InputError(f"clusters is {self.clusters}: must be at least 1")

    def init(self, models: Models, optimizer: Optimizer) -> State:
        return State(models, optimizer, {})

    def step(self, state: State, fleet: Fleet, steps: range) -> tuple[State, Info]:
        centres = state.memory.get("centres")
        if centres is None:
            models, optimizer = fleet.descend(state.models, alone(fleet), state.optimizer, steps)
            chosen = farthest_apart(models, fleet.trained, min(self.clusters, len(fleet.sizes)))
            return State(models, optimizer, {"centres": pick(models, chosen)}), Info(alone(fleet))
        choice = fleet.losses(centres, steps).argmin(0)
        local, optimizer = fleet.descend(pick(centres, choice), alone(fleet), state.optimizer, steps)
        member = torch.nn.functional.one_hot(choice, len(centres[fleet.trained[0]])).T * fleet.sizes  # [K, N]
        used = member.sum(1) > 0
        weights = member / member.sum(1, keepdim=True).clamp(min=1e-300)
        means = [mean(local, line) for line in weights]
        centres = {
            name: torch.cat([means[k][name] if used[k] else old[k : k + 1] for k in range(len(weights))])
            for name, old in centres.items()
        }
        return State(pick(centres, choice), optimizer, {"centres": centres}), Info(weights[choice])


def pick(models: Models, rows: Tensor) -> Models:
    return {name: tensor[rows] for name, tensor in models.items()}


def farthest_apart(models: Models, names: list[str], count: int) -> Tensor:
    """Row 0, then again and again the row farthest from those chosen."""
    vectors = torch.cat([models[name].flatten(1) for name in names], 1)
    chosen = [0]
    while len(chosen) < count:
        chosen.append(int(torch.cdist(vectors, vectors[chosen]).amin(1).argmax()))
    return torch.tensor(chosen)
