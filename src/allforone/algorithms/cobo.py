"""CoBo (Hashemi, He, Jaggi 2024): models drawn together in pairs whose gradients agree half-way between them.

w_ik ← clip(w_ik + γ ⟨g_i(z), g_k(z)⟩, 0, 1) at z = (θ_i + θ_k)/2, kept from round to round, at first 1;
θ_i ← θ_i − η (g_i(θ_i) + ρ Σ_k w_ik (θ_i − θ_k)).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from ..fleet import Fleet, Models, Optimizer, plus
from .base import Info, State, alone

HELD_NUMBERS = 2**24  # parameters of half-way models held at once


@dataclass(frozen=True)
class CoBo:
    """penalty: ρ, and weight_step: γ, as in its authors' repository. ρ = 0 is Local.

    The paper moves each pair with probability 1/N a step, to save work; here all pairs move once a round.
    as_published: the authors of All-for-one never applied the penalty (see Ditto) and forgot the weights every round.
    """

    penalty: float = 0.05
    weight_step: float = 0.01
    as_published: bool = False

    def __post_init__(self) -> None:
        if self.penalty < 0 or self.weight_step < 0:
            raise InputError(f"penalty ρ {self.penalty}, weight_step γ {self.weight_step}: must not be negative")

    def init(self, models: Models, optimizer: Optimizer) -> State:
        n = len(next(iter(models.values())))
        return State(models, optimizer, {"weights": (1 - torch.eye(n)).double()})

    def step(self, state: State, fleet: Fleet, steps: range) -> tuple[State, Info]:
        before = (1 - alone(fleet)) if self.as_published else state.memory["weights"]
        agreement = agreement_half_way(fleet, state.models, steps.start)
        weights = (before + self.weight_step * agreement).clamp(0, 1).fill_diagonal_(0)
        penalty = 0.0 if self.as_published else self.penalty

        def direction(models: Models, gradients: Models) -> Models:
            return plus(gradients, {name: penalty * pull(models[name], weights) for name in fleet.trained})

        models, optimizer = fleet.descend(state.models, alone(fleet), state.optimizer, steps, direction)
        return State(models, optimizer, {"weights": weights}), Info(weights + alone(fleet))


def pull(models: Tensor, weights: Tensor) -> Tensor:
    """Σ_k w_ik (θ_i − θ_k), for all i."""
    weights = weights.to(models.dtype)
    return torch.einsum("i,i...->i...", weights.sum(1), models) - torch.einsum("ik,k...->i...", weights, models)


def agreement_half_way(fleet: Fleet, models: Models, step: int) -> Tensor:
    """[N, N], ⟨g_i(z), g_k(z)⟩ at z = (θ_i + θ_k)/2, on the update's batches; many pairs at once, within memory."""
    n = len(fleet.sizes)
    one_hot, agreement = alone(fleet), torch.zeros(n, n, dtype=torch.float64)
    size = sum(models[name][0].numel() for name in fleet.trained)
    for i, k in zip(*(side.split(max(1, HELD_NUMBERS // size)) for side in torch.triu_indices(n, n, 1)), strict=True):
        half_way = {name: (t[i] + t[k]) / 2 if name in fleet.trained else t[i] for name, t in models.items()}
        ours, theirs = (fleet.gradients(half_way, one_hot[side], step) for side in (i, k))
        products = [(ours[name] * theirs[name]).flatten(1).sum(1).double() for name in fleet.trained]
        agreement[i, k] = agreement[k, i] = torch.stack(products).sum(0)
    return agreement
