"""FedALA (Zhang, Hua, Wang, Song, Xue, Ma, Guan, AAAI 2023): each client learns, number by number, what to take of w.

θ̂_i = θ_i + W_i ⊙ (w − θ_i) in the last layers, θ̂_i = w in those before;
W_i ← clip(W_i − η ∇L_i(θ̂_i) ⊙ (w − θ_i), 0, 1), at first 1;
then `inner` local steps from θ̂_i, and w becomes the mean of the local models, as in FedAvg.
"""

from dataclasses import dataclass
from typing import TypedDict

import torch
from torch import Tensor

from ..errors import InputError
from ..fleet import Fleet, Models, Optimizer, Round, mean, repeat, shared, where_rows
from .base import Algorithm, Info, State, identity
from .fedavg import Common, share, up_and_down


class Own(TypedDict):
    weights: Models  #: W_i, of the last layers; missing before the first round
    learned: Tensor  #: [N], whether they have been learned to the end once


@dataclass(frozen=True)
class FedALA(Algorithm):
    """W = 1 starts where FedAvg does, W = 0 in all layers is Local. Buffers stay the client's own.

    Its paper learns W on a random 80 % of the local data, the first time until it converges, without saying when that
    is, then in one pass. Here it is learned on the batches of the round, the first time in `first` passes.

    Args:
        layers: p, how many of the last layers learn what to take; a layer is a module with parameters of its own.
        rate: η.
        first: passes over the round's batches at the client's first time.
    """

    name = "fedala"
    label = "FedALA"

    layers: int = 1
    rate: float = 1.0
    first: int = 10

    def __post_init__(self) -> None:
        if self.layers < 1 or self.first < 1 or self.rate < 0:
            raise InputError(
                f"layers {self.layers} and first {self.first} must be at least 1, rate η {self.rate} not negative"
            )

    def init(self, models: Models, optimizer: Optimizer) -> State:
        return State(models, optimizer, common=Common(model=shared(models)))

    def step(self, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
        before: Common = state.common
        w = repeat(before["model"], len(fleet.roster))
        theta = {name: where_rows(round.present, tensor, w[name]) for name, tensor in state.models.items()}
        own = self.learn(state.own or untold(theta, last(fleet.trained, self.layers)), theta, w, fleet, round)
        start = taken(theta, w, own["weights"], fleet.trained)
        start = {name: where_rows(round.present, tensor, theta[name]) for name, tensor in start.items()}
        models, optimizer = fleet.descend(start, identity(fleet), state.optimizer, round)
        shares = share(fleet, round)
        after = State(models, optimizer, own, Common(model=mean(models, shares)))
        part = listening(own["weights"], theta, fleet.trained)[:, None]
        return after, Info((1 - part) * identity(fleet) + part * shares, messages=up_and_down(round))

    def learn(self, own: Own, theta: Models, w: Models, fleet: Fleet, round: Round) -> Own:
        """W_i after a pass over the batches of the round, or several where it is the client's first time."""
        gap = {name: w[name] - theta[name] for name in own["weights"]}
        apart = torch.stack([tensor.reshape(len(tensor), -1).any(1).cpu() for tensor in gap.values()]).any(0)
        weights, learning = own["weights"], apart
        for _ in range(self.first):
            for step in round.steps if learning.any() else ():
                at = taken(theta, w, weights, fleet.trained)
                slope = fleet.gradients(at, identity(fleet), round, step, fleet.roster.numbers)
                moved = {name: (t - self.rate * slope[name] * gap[name]).clamp(0, 1) for name, t in weights.items()}
                weights = {name: where_rows(learning, moved[name], t) for name, t in weights.items()}
            learning = apart & ~own["learned"]
        return Own(weights=weights, learned=own["learned"] | apart)


def last(trained: list[str], layers: int) -> list[str]:
    """The names of the parameters of the last layers."""
    modules = list(dict.fromkeys(name.rpartition(".")[0] for name in trained))[-layers:]
    return [name for name in trained if name.rpartition(".")[0] in modules]


def untold(models: Models, names: list[str]) -> Own:
    """Before anything is learned, all is taken."""
    learned = torch.zeros(len(models[names[0]]), dtype=torch.bool)
    return Own(weights={name: torch.ones_like(models[name]) for name in names}, learned=learned)


def taken(theta: Models, w: Models, weights: Models, trained: list[str]) -> Models:
    """θ̂_i; buffers are the own model's."""
    lower = {name: w[name] if name in trained else tensor for name, tensor in theta.items()}
    return {**lower, **{name: torch.lerp(theta[name], w[name], part) for name, part in weights.items()}}


def listening(weights: Models, theta: Models, trained: list[str]) -> Tensor:
    """[N], the mean of W_i over all parameters; of the layers before the last it is 1."""
    size = sum(theta[name][0].numel() for name in trained)
    kept = [(1 - tensor).reshape(len(tensor), -1).sum(1).cpu().double() for tensor in weights.values()]
    return 1 - torch.stack(kept).sum(0) / size
