"""WGA-BC (Chayti, Karimireddy, Stich, Flammarion, Jaggi 2021): weighted gradients with a running bias correction.

θ_i ← θ_i − η ((1 − a) g_i + a (Σ_k τ_k g_k − c_i)), all gradients at θ_i, k over the peers;
c_i ← (1 − β) c_i + β (Σ_k τ_k g_k − g_i). Where no peer is there, a is 0 and c_i stays.
"""

from dataclasses import dataclass
from typing import TypedDict

import torch
from torch import Tensor

from ..collaboration.similarity import ordered_pairs
from ..errors import InputError
from ..fleet import Fleet, Models, Optimizer, Round, among_present, by_row, where_rows
from .base import Algorithm, Info, State, identity


class Own(TypedDict):
    correction: Models  #: c_i


@dataclass(frozen=True)
class WgaBc(Algorithm):
    """share: a, by default 1 − 1/N, with which all N gradients count the same; rate: β.

    Its paper scales β with the step size and gives no number; small β corrects slowly, large β adds noise.
    """

    name = "wga-bc"
    label = "WGA-BC"

    share: float | None = None
    rate: float = 0.1

    def __post_init__(self) -> None:
        if self.share is not None and not 0 <= self.share <= 1:
            raise InputError(f"share is {self.share}: must be between 0 and 1")
        if not 0 <= self.rate <= 1:
            raise InputError(f"rate β is {self.rate}: must be between 0 and 1")

    def init(self, models: Models, optimizer: Optimizer) -> State:
        return State(models, optimizer, Own(correction={name: torch.zeros_like(t) for name, t in models.items()}))

    def step(self, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
        before: Own = state.own
        alone, everyone, (a, peers) = identity(fleet), fleet.roster.numbers, self.weights(fleet)
        peers = among_present(peers, round.present, everyone)
        accompanied = (peers != 0).any(1)
        a = torch.where(accompanied, a, 0)
        correction = dict(before["correction"])
        running = state.optimizer.start(state.models, fleet.trained)
        for step in round.steps:
            gradients = fleet.gradients(running.models, alone, round, step, everyone)
            of_peers = fleet.gradients(running.models, peers, round, step, everyone)
            direction = dict(gradients)
            for name in fleet.trained:
                g, others, c = gradients[name], of_peers[name], correction[name]
                part = by_row(a, g)
                direction[name] = (1 - part) * g + part * (others - c)
                moved = (1 - self.rate) * c + self.rate * self.bias(others, g, direction[name])
                correction[name] = where_rows(accompanied, moved, c)
            running.apply(direction)
        models, optimizer = running.finish()
        weights, asked = (1 - a)[:, None] * alone + a[:, None] * peers, len(round.steps) * ordered_pairs(round)
        info = Info(weights, messages=2 * asked, gradients=asked)
        return State(models, optimizer, Own(correction=correction)), info

    def bias(self, others: Tensor, own: Tensor, direction: Tensor) -> Tensor:
        """What the peers' gradient has too much, by which the correction moves."""
        return others - own

    def weights(self, fleet: Fleet) -> tuple[Tensor, Tensor]:
        """a [N] and τ [N, N], which is 0 on the diagonal."""
        n, others = len(fleet.roster), 1 - identity(fleet)
        if n == 1:
            return torch.zeros(1, dtype=torch.float64), others
        share = 1 - 1 / n if self.share is None else self.share
        return torch.full((n,), share, dtype=torch.float64), others / (n - 1)
