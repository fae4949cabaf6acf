"""Ditto (Li, Hu, Beirami, Smith 2021): personal models held near the model that FedAvg learns.

w by FedAvg; θ_i ← θ_i − η (g_i(θ_i) + λ (θ_i − w)), w as it was at the start of the round.
"""

from dataclasses import dataclass

from ..errors import InputError
from ..fleet import Fleet, Models, Optimizer, plus
from .base import Info, State, alone
from .fedavg import fedavg_round


@dataclass(frozen=True)
class Ditto:
    """penalty: λ; its paper tunes it per data set, 0.05 to 2. λ = 0 is Local.

    as_published: the authors of All-for-one added the penalty to the gradient as one Python list to another, which
    appends it where nothing reads it. So it was never applied.
    """

    penalty: float = 0.1
    as_published: bool = False

    def __post_init__(self) -> None:
        if self.penalty < 0:
            raise InputError(f"penalty λ is {self.penalty}: must not be negative")

    def init(self, models: Models, optimizer: Optimizer) -> State:
        return State(models, optimizer, {"common": models, "common optimizer": optimizer})

    def step(self, state: State, fleet: Fleet, steps: range) -> tuple[State, Info]:
        common = state.memory["common"]
        penalty = 0.0 if self.as_published else self.penalty

        def direction(models: Models, gradients: Models) -> Models:
            return plus(gradients, {name: penalty * (models[name] - common[name]) for name in fleet.trained})

        models, optimizer = fleet.descend(state.models, alone(fleet), state.optimizer, steps, direction)
        common, common_optimizer = fedavg_round(fleet, common, state.memory["common optimizer"], steps)
        memory = {"common": common, "common optimizer": common_optimizer}
        return State(models, optimizer, memory), Info(alone(fleet))
