"""What the authors of All-for-one ran in the place of four baselines, as their code shows; see docs/algorithms.md."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .. import algorithms
from ..algorithms import Info, State
from ..algorithms.base import identity
from ..fleet import Fleet, Models, Optimizer, Round


@dataclass(frozen=True)
class Ditto(algorithms.Ditto):
    """They added the penalty to the gradient as one Python list to another, which appends it where nothing reads it. So
    it was never applied."""

    name = "ditto-as-published"
    label = "Ditto, as published"

    penalty: float = 0.0


@dataclass(frozen=True)
class CoBo(algorithms.CoBo):
    """They never applied the penalty (see Ditto) and forgot the weights every round."""

    name = "cobo-as-published"
    label = "CoBo, as published"

    penalty: float = 0.0

    def step(self, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
        return super().step(self.init(state.models, state.optimizer), fleet, round)


@dataclass(frozen=True)
class WgaBc(algorithms.WgaBc):
    """They ran a_i = 1 − 1/n_i (so 0 on streams, where n_i is 1), τ_ik = (n_k / (n_i N))², β = 10⁻⁴, and a correction
    that compares with the direction, not with g_i."""

    name = "wga-bc-as-published"
    label = "WGA-BC, as published"

    rate: float = 1e-4

    def bias(self, others: Tensor, own: Tensor, direction: Tensor) -> Tensor:
        return others - direction

    def weights(self, fleet: Fleet) -> tuple[Tensor, Tensor]:
        sizes = fleet.roster.sizes
        return 1 - 1 / sizes, (1 - identity(fleet)) * (sizes[None, :] / (sizes[:, None] * len(sizes))).square()


@dataclass(frozen=True)
class Apfl(algorithms.Apfl):
    """They fixed α at 1 − η, took the gradient in v without its factor α, and averaged the common model without regard
    to the clients' sizes."""

    name = "apfl-as-published"
    label = "APFL, as published"

    adaptive: bool = False

    def init(self, models: Models, optimizer: Optimizer) -> State:
        state = super().init(models, optimizer)
        alpha = torch.full_like(state.own["mixture"], 1 - optimizer.lr)
        return state._replace(own={**state.own, "mixture": alpha})

    def chain(self, alpha: Tensor, gradient: Tensor) -> Tensor:
        return gradient

    def averaging(self, fleet: Fleet, round: Round) -> Tensor:
        return round.present.double() / round.present.sum().clamp(min=1)
