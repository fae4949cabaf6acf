"""Ditto (Li, Hu, Beirami, Smith 2021): personal models held near the model that FedAvg learns.

w by FedAvg; θ_i ← θ_i − η (g_i(θ_i) + λ (θ_i − w)), w as it was at the start of the round.
"""

from dataclasses import dataclass
from typing import TypedDict

from ..errors import InputError
from ..fleet import Fleet, Models, Optimizer, Proximal, Round, shared
from .base import Algorithm, Info, State, identity
from .fedavg import Common, fedavg_round, up_and_down


class Own(TypedDict):
    local_optimizer: Optimizer  #: of the local steps from the common model


@dataclass(frozen=True)
class Ditto(Algorithm):
    """penalty: λ; its paper tunes it per data set, 0.05 to 2. λ = 0 is Local."""

    name = "ditto"
    label = "Ditto"

    penalty: float = 0.1

    def __post_init__(self) -> None:
        if self.penalty < 0:
            raise InputError(f"penalty λ is {self.penalty}: must not be negative")

    def init(self, models: Models, optimizer: Optimizer) -> State:
        common = Common(model=shared(models))
        return State(models, optimizer, Own(local_optimizer=optimizer), common)

    def step(self, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
        own: Own = state.own
        before: Common = state.common
        w = before["model"]
        direction = Proximal(self.penalty, {name: w[name] for name in fleet.trained})
        models, optimizer = fleet.descend(state.models, identity(fleet), state.optimizer, round, direction)
        common, local_optimizer = fedavg_round(fleet, w, own["local_optimizer"], round)
        after = State(models, optimizer, Own(local_optimizer=local_optimizer), Common(model=common))
        return after, Info(identity(fleet), messages=up_and_down(round))
