"""APFL (Deng, Kamani, Mahdavi 2020): each client uses a mixture of a model of its own and the common one.

θ_i = α_i v_i + (1 − α_i) w_i;   w_i by FedAvg;   v_i ← v_i − η α_i g_i(θ_i);
α_i ← clip(α_i − η ⟨g_i(θ_i), v_i − w_i⟩, 0, 1), once a round.
"""

from dataclasses import dataclass
from typing import TypedDict

import torch
from torch import Tensor

from ..errors import InputError
from ..fleet import Fleet, Models, Optimizer, Round, by_row, mean, repeat, shared
from .base import Algorithm, Info, State, identity
from .fedavg import Common, share, up_and_down


class Own(TypedDict):
    model: Models  #: v_i
    mixture: Tensor  #: [N], α_i
    local_optimizer: Optimizer  #: of the local steps from the common model


@dataclass(frozen=True)
class Apfl(Algorithm):
    """mixture: α at the start; adaptive: learn it, with steps of size mixture_step, by default the optimizer's.

    α = 1 is Local, α = 0 is FedAvg. The slope in α grows with ‖v_i − w_i‖²: where models lie far apart, α jumps between
    0 and 1 unless mixture_step is small.
    """

    name = "apfl"
    label = "APFL"

    mixture: float = 0.5
    adaptive: bool = True
    mixture_step: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.mixture <= 1:
            raise InputError(f"mixture α is {self.mixture}: must be between 0 and 1")

    def init(self, models: Models, optimizer: Optimizer) -> State:
        n = len(next(iter(models.values())))
        mixture = torch.full((n,), self.mixture, dtype=torch.float64)
        own = Own(model=models, mixture=mixture, local_optimizer=optimizer)
        return State(models, optimizer, own, Common(model=shared(models)))

    def step(self, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
        own: Own = state.own
        before: Common = state.common
        alpha, only_own, everyone = own["mixture"], identity(fleet), fleet.roster.numbers
        v = state.optimizer.start(own["model"], fleet.trained)
        w = own["local_optimizer"].start(repeat(before["model"], len(fleet.roster)), fleet.trained)
        for step in round.steps:
            gradients = fleet.gradients(mixed(alpha, v.models, w.models), only_own, round, step, everyone)
            common_gradients = fleet.gradients(w.models, only_own, round, step, everyone)
            if step == round.steps.start and self.adaptive:
                slope = sum(
                    (gradients[name] * (v.models[name] - w.models[name])).flatten(1).sum(1).cpu().double()
                    for name in fleet.trained
                )
                alpha = (alpha - (self.mixture_step or v.lr) * slope).clamp(0, 1)
            v.apply({**gradients, **{name: self.chain(alpha, gradients[name]) for name in fleet.trained}})
            w.apply(common_gradients)
        (personal, optimizer), (local, local_optimizer) = v.finish(), w.finish()
        weights = self.averaging(fleet, round)
        common = mean(local, weights)
        remembered = Own(model=personal, mixture=alpha, local_optimizer=local_optimizer)
        models = mixed(alpha, personal, repeat(common, len(fleet.roster)))
        info = Info(alpha[:, None] * only_own + (1 - alpha)[:, None] * weights, messages=up_and_down(round))
        return State(models, optimizer, remembered, Common(model=common)), info

    def chain(self, alpha: Tensor, gradient: Tensor) -> Tensor:
        """The slope in v_i, by the chain rule α_i g_i(θ_i)."""
        return by_row(alpha, gradient) * gradient

    def averaging(self, fleet: Fleet, round: Round) -> Tensor:
        """[N], the weights of the common model's mean."""
        return share(fleet, round)


def mixed(mixture: Tensor, own: Models, common: Models) -> Models:
    """α_i v_i + (1 − α_i) w_i; counters, which are whole numbers, are the own model's."""
    return {
        name: torch.lerp(common[name], v, by_row(mixture, v).expand_as(v)) if v.is_floating_point() else v
        for name, v in own.items()
    }
