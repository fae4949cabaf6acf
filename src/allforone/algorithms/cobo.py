"""CoBo (Hashemi, He, Jaggi 2024): models drawn together in pairs whose gradients agree half-way between them.

w_ik ← clip(w_ik + γ ⟨g_i(z), g_k(z)⟩, 0, 1) at z = (θ_i + θ_k)/2, kept from round to round, at first 1;
θ_i ← θ_i − η (g_i(θ_i) + ρ Σ_k w_ik (θ_i − θ_k)).
"""

from dataclasses import dataclass
from typing import TypedDict

import torch
from torch import Tensor

from ..collaboration.similarity import ordered_pairs
from ..errors import InputError
from ..fleet import Fleet, Models, Optimizer, Round, plus, where_rows
from .base import Algorithm, Info, State, identity, pairs


class Own(TypedDict):
    weights: Tensor  #: [N, N], w_ik


#: Numbers in the half-way models that are held at once.
HELD_NUMBERS = 2**24


@dataclass(frozen=True)
class CoBo(Algorithm):
    """penalty: ρ, and weight_step: γ, as in its authors' repository. ρ = 0 is Local.

    The paper moves each pair with probability 1/N a step, to save work; here all pairs move once a round.
    """

    name = "cobo"
    label = "CoBo"

    penalty: float = 0.05
    weight_step: float = 0.01

    def __post_init__(self) -> None:
        if self.penalty < 0 or self.weight_step < 0:
            raise InputError(f"penalty ρ {self.penalty}, weight_step γ {self.weight_step}: must not be negative")

    def init(self, models: Models, optimizer: Optimizer) -> State:
        n = len(next(iter(models.values())))
        return State(models, optimizer, Own(weights=1 - torch.eye(n, dtype=torch.float64)))

    def step(self, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
        own: Own = state.own
        agreement = agreement_half_way(fleet, state.models, round)
        weights = (own["weights"] + self.weight_step * agreement).clamp(0, 1).fill_diagonal_(0)

        listening = torch.where(round.present[:, None] & round.present, weights, 0)

        def direction(models: Models, gradients: Models) -> Models:
            known = {name: where_rows(round.present, models[name], torch.zeros(())) for name in fleet.trained}
            return plus(gradients, {name: self.penalty * pull(known[name], listening) for name in fleet.trained})

        models, optimizer = fleet.descend(state.models, identity(fleet), state.optimizer, round, direction)
        # models both ways and one gradient per pair, then the models of every further update
        messages = 3 * ordered_pairs(round) // 2 + (len(round.steps) - 1) * pairs(listening)
        info = Info(listening + identity(fleet), messages=messages, gradients=ordered_pairs(round) // 2)
        return State(models, optimizer, Own(weights=weights)), info


def pull(models: Tensor, weights: Tensor) -> Tensor:
    """Σ_k w_ik (θ_i − θ_k), for all i."""
    weights = weights.to(models)
    return torch.einsum("i,i...->i...", weights.sum(1), models) - torch.einsum("ik,k...->i...", weights, models)


def agreement_half_way(fleet: Fleet, models: Models, round: Round) -> Tensor:
    """[N, N], ⟨g_i(z), g_k(z)⟩ at z = (θ_i + θ_k)/2, on the batches of the update; 0 where one of them is absent.

    Many pairs at once, within memory."""
    n, step = len(fleet.roster), round.steps.start
    one_hot, agreement = identity(fleet), torch.zeros(n, n, dtype=torch.float64)
    size = sum(models[name][0].numel() for name in fleet.trained)
    both = torch.triu_indices(n, n, 1)
    both = both[:, round.present[both].all(0)]
    for i, k in zip(*(side.split(max(1, HELD_NUMBERS // size)) for side in both), strict=True):
        half_way = {name: (t[i] + t[k]) / 2 if name in fleet.trained else t[i] for name, t in models.items()}
        ours, theirs = (fleet.gradients(half_way, one_hot[side], round, step, owners=None) for side in (i, k))
        products = [(ours[name] * theirs[name]).flatten(1).sum(1).cpu().double() for name in fleet.trained]
        agreement[i, k] = agreement[k, i] = torch.stack(products).sum(0)
    return agreement
