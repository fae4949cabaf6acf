"""FedAvg: `inner` local steps from the common model, then the mean weighted by the clients' data; one model for all.

With `proximal` μ the local steps are held near the common model (FedProx); with `finetune` every client is given the
common model after that many local steps of its own.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from ..fleet import Fleet, Models, Optimizer, mean, plus, repeat
from .base import Info, State, alone


@dataclass(frozen=True)
class FedAvg:
    """Every client keeps its own optimizer state (momentum) from round to round, as sites that are always there can."""

    proximal: float = 0.0
    finetune: int = 0

    def __post_init__(self) -> None:
        if self.proximal < 0 or self.finetune < 0:
            raise InputError(f"proximal {self.proximal}, finetune {self.finetune}: must not be negative")

    def init(self, models: Models, optimizer: Optimizer) -> State:
        return State(models, optimizer, {"common": models} if self.finetune else {})

    def step(self, state: State, fleet: Fleet, steps: range) -> tuple[State, Info]:
        start = state.memory.get("common", state.models)
        common, optimizer = fedavg_round(fleet, start, state.optimizer, steps, self.proximal)
        info = Info(share(fleet, steps.start).expand(len(fleet.sizes), -1))
        if not self.finetune:
            return state._replace(models=common, optimizer=optimizer), info
        own_steps = range(max(0, steps.stop - self.finetune), steps.stop)  # on batches that are drawn already
        models, _ = fleet.descend(common, alone(fleet), optimizer, own_steps)
        return State(models, optimizer, {"common": common}), info


def share(fleet: Fleet, step: int) -> Tensor:
    """[N], each client's share of the data of those who are there; of all, should nobody be there."""
    sizes = torch.where(fleet.present(step), fleet.sizes, 0)
    return sizes / sizes.sum() if sizes.any() else fleet.sizes / fleet.sizes.sum()


def fedavg_round(
    fleet: Fleet, common: Models, optimizer: Optimizer, steps: range, proximal: float = 0.0
) -> tuple[Models, Optimizer]:
    """Local steps of every client from the common model, and their mean, N times."""

    def direction(models: Models, gradients: Models) -> Models:  # g_i(θ_i) + μ (θ_i − w)
        return plus(gradients, {name: proximal * (models[name] - common[name]) for name in fleet.trained})

    local, optimizer = fleet.descend(common, alone(fleet), optimizer, steps, direction if proximal else None)
    return repeat(mean(local, share(fleet, steps.start)), len(fleet.sizes)), optimizer
