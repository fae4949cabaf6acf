"""APFL (Deng, Kamani, Mahdavi 2020): each client uses a mixture of a model of its own and the common one.

θ_i = α_i v_i + (1 − α_i) w_i;   w_i by FedAvg;   v_i ← v_i − η α_i g_i(θ_i);
α_i ← clip(α_i − η ⟨g_i(θ_i), v_i − w_i⟩, 0, 1), once a round.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from ..fleet import Fleet, Models, Optimizer, mean, repeat
from .base import Info, State, alone
from .fedavg import share


@dataclass(frozen=True)
class Apfl:
    """mixture: α at the start; adaptive: learn it, with steps of size mixture_step (unless told, the optimizer's).

    α = 1 is Local, α = 0 is FedAvg. The slope in α grows with ‖v_i − w_i‖²: where models lie far apart, α jumps between
    0 and 1 unless mixture_step is small.

    as_published: the authors of All-for-one fixed α at 1 − η, took the gradient in v without its factor α, and averaged
    the common model without regard to the clients' sizes.
    """

    mixture: float = 0.5
    adaptive: bool = True
    mixture_step: float | None = None
    as_published: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.mixture <= 1:
            raise InputError(f"mixture α is {self.mixture}: must be between 0 and 1")

    def init(self, models: Models, optimizer: Optimizer) -> State:
        n = len(next(iter(models.values())))
        mixture = 1 - optimizer.lr if self.as_published else self.mixture
        return State(
            models,
            optimizer,
            {
                "own": models,
                "common": models,
                "common optimizer": optimizer,
                "mixture": torch.full((n,), mixture, dtype=torch.float64),
            },
        )

    def step(self, state: State, fleet: Fleet, steps: range) -> tuple[State, Info]:
        mixture, only_own = state.memory["mixture"], alone(fleet)
        own = state.optimizer.start(state.memory["own"], fleet.trained)
        common = state.memory["common optimizer"].start(state.memory["common"], fleet.trained)
        for step in steps:
            gradients = fleet.gradients(mixed(mixture, own.models, common.models), only_own, step)
            common_gradients = fleet.gradients(common.models, only_own, step)
            if step == steps.start and self.adaptive and not self.as_published:
                slope = sum(
                    (gradients[name] * (own.models[name] - common.models[name])).flatten(1).sum(1).double()
                    for name in fleet.trained
                )
                mixture = (mixture - (self.mixture_step or own.lr) * slope).clamp(0, 1)
            chain = {
                name: gradients[name] if self.as_published else each(mixture, gradients[name]) * gradients[name]
                for name in fleet.trained
            }
            own.apply({**gradients, **chain})
            common.apply(common_gradients)
        (own_models, optimizer), (local, common_optimizer) = own.finish(), common.finish()
        n = len(fleet.sizes)
        weights = torch.full_like(fleet.sizes, 1 / n) if self.as_published else share(fleet, steps.start)
        shared = repeat(mean(local, weights), n)
        memory = {"own": own_models, "common": shared, "common optimizer": common_optimizer, "mixture": mixture}
        info = Info(mixture[:, None] * only_own + (1 - mixture)[:, None] * weights)
        return State(mixed(mixture, own_models, shared), optimizer, memory), info


def mixed(mixture: Tensor, own: Models, common: Models) -> Models:
    """α_i v_i + (1 − α_i) w_i; counters, which are whole numbers, are the own model's."""
    return {
        name: torch.lerp(common[name], v, each(mixture, v).expand_as(v)) if v.is_floating_point() else v
        for name, v in own.items()
    }


def each(numbers: Tensor, like: Tensor) -> Tensor:
    """[N] shaped so that it multiplies the rows of `like`."""
    return numbers.to(like.dtype).view(-1, *[1] * (like.dim() - 1))
