"""FedAvg: `inner` local steps from the common model, then the mean weighted by the clients' data; one model for all.

With `proximal` μ the local steps are held near the common model (FedProx); with `finetune` every client is given the
common model after that many local steps of its own.
"""

from dataclasses import dataclass
from typing import TypedDict

import torch
from torch import Tensor

from ..errors import InputError
from ..fleet import Fleet, Models, Optimizer, Proximal, Round, mean, repeat, shared
from .base import Algorithm, Info, State, identity


class Common(TypedDict):
    """What FedAvg, and whoever contains it, remembers."""

    model: Models  #: a stack of one


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """Every client keeps its own optimizer state (momentum) from round to round, as sites that are always there can.

    Args:
        proximal: μ, by which local steps are held near the common model; above 0 it is FedProx.
        finetune: local steps that every client takes from the common model, which are its own model's only.

    Example:
        >>> import allforone as afo
        >>> afo.FedAvg(finetune=5).label
        'FedAvg, fine-tuned'
    """

    proximal: float = 0.0
    finetune: int = 0

    def __post_init__(self) -> None:
        if self.proximal < 0 or self.finetune < 0:
            raise InputError(f"proximal {self.proximal}, finetune {self.finetune}: must not be negative")

    @property
    def name(self) -> str:
        return "fedavg-finetune" if self.finetune else "fedavg"

    @property
    def label(self) -> str:
        return "FedAvg, fine-tuned" if self.finetune else "FedAvg"

    def init(self, models: Models, optimizer: Optimizer) -> State:
        return State(models, optimizer, common=Common(model=shared(models)))

    def step(self, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
        before: Common = state.common
        common, optimizer = fedavg_round(fleet, before["model"], state.optimizer, round, self.proximal)
        models = repeat(common, len(fleet.roster))
        if self.finetune:
            steps = range(max(0, round.steps.stop - self.finetune), round.steps.stop)  # on batches drawn already
            models, _ = fleet.descend(models, identity(fleet), optimizer, round._replace(steps=steps))
        weights = share(fleet, round).expand(len(fleet.roster), -1)
        after = State(models, optimizer, common=Common(model=common))
        return after, Info(weights, messages=up_and_down(round))


def share(fleet: Fleet, round: Round) -> Tensor:
    """[N], each client's share of the data of those who are there."""
    sizes = torch.where(round.present, fleet.roster.sizes, 0)
    return sizes / sizes.sum().clamp(min=1)


def up_and_down(round: Round) -> int:
    """Messages of clients that send their model to a server and get one back."""
    return 2 * int(round.present.sum())


def fedavg_round(
    fleet: Fleet, common: Models, optimizer: Optimizer, round: Round, proximal: float = 0.0
) -> tuple[Models, Optimizer]:
    """Local steps of every client from the common model, a stack of one, and their mean."""
    near = Proximal(proximal, {name: common[name] for name in fleet.trained}) if proximal else None
    start = repeat(common, len(fleet.roster))
    local, optimizer = fleet.descend(start, identity(fleet), optimizer, round, near)
    return mean(local, share(fleet, round)), optimizer


def fedavg_finetune(proximal: float = 0.0, finetune: int = 5) -> FedAvg:
    return FedAvg(proximal, finetune)
