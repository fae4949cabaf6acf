"""pFedGraph (Ye, Ni, Wu, Chen, Wang, ICML 2023): who averages with whom is a graph, found anew in every round.

`inner` local steps from θ_i on F_i(θ) − μ cos(θ, u_i), u_i being θ_i at the start of the round;
w_i = argmin λ‖w − p‖² − Σ_k w_k cos(θ_i − θ⁰, θ_k − θ⁰) over the simplex, p the shares of the data;
θ_i ← Σ_k w_ik θ_k. θ⁰ is the initial model.
"""

from dataclasses import dataclass
from typing import TypedDict

from torch import Tensor

from ..collaboration.similarity import cosine
from ..collaboration.simplex import nearest
from ..errors import InputError
from ..fleet import Direction, Fleet, Models, Optimizer, Round, combined, double, plus, shared
from .base import Algorithm, Info, State, identity
from .fedavg import share, up_and_down
from .looking import flat, points


class Common(TypedDict):
    start: Models  #: θ⁰, a stack of one


@dataclass(frozen=True)
class PFedGraph(Algorithm):
    """λ → ∞ with μ = 0 is FedAvg, λ → 0 follows the most similar alone: oneself.

    Defaults are those of its authors' code. That compares the fully connected layers only, takes cosines above 0.9 for
    1, and adds μ cos, which drives models apart; here all parameters are compared, as they are, and the sign is that
    of a model held near u_i.

    Args:
        spread: λ, by which weights are held near the shares of the data.
        penalty: μ.
    """

    name = "pfedgraph"
    label = "pFedGraph"

    spread: float = 0.8
    penalty: float = 0.01

    def __post_init__(self) -> None:
        if self.spread <= 0 or self.penalty < 0:
            raise InputError(f"spread λ {self.spread} must be above 0, penalty μ {self.penalty} not negative")

    def init(self, models: Models, optimizer: Optimizer) -> State:
        return State(models, optimizer, common=Common(start=shared(models)))

    def step(self, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
        before: Common = state.common
        direction = aligned(self.penalty, state.models, fleet.trained) if self.penalty else None
        local, optimizer = fleet.descend(state.models, identity(fleet), state.optimizer, round, direction)
        alike = cosine(points(local, fleet, round) - double(flat(before["start"], fleet.trained)))
        weights = self.graph(alike, share(fleet, round), round.present)
        return State(combined(local, weights), optimizer, common=before), Info(weights, messages=up_and_down(round))

    def graph(self, alike: Tensor, shares: Tensor, present: Tensor) -> Tensor:
        """[N, N], w among those present: completing the square, the point of the simplex nearest to p + cos/2λ."""
        return nearest(shares + alike / (2 * self.spread), present[:, None] & present)


def aligned(penalty: float, towards: Models, trained: list[str]) -> Direction:
    """The gradient of −μ cos(θ, u): μ/‖θ‖² (cos(θ, u) θ − ‖θ‖/‖u‖ u), row by row; none where one of them is 0."""
    u = flat(towards, trained)
    length = u.norm(dim=1, keepdim=True)

    def direction(models: Models, gradients: Models) -> Models:
        theta = flat(models, trained)
        norm = theta.norm(dim=1, keepdim=True)
        cos = (theta * u).sum(1, keepdim=True) / (norm * length)
        slope = (penalty / norm.square() * (cos * theta - norm / length * u)).nan_to_num(0)
        parts = zip(trained, slope.split([models[name][0].numel() for name in trained], 1), strict=True)
        return plus(gradients, {name: part.reshape(models[name].shape) for name, part in parts})

    return direction
