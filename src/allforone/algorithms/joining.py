"""A newcomer learns with everybody's help, and nobody else's model changes."""

from dataclasses import dataclass

import torch

from ..fleet import Fleet, Models, Optimizer, Round
from .base import Around, Info, State, put_back


@dataclass(frozen=True)
class Joining(Around):
    """Rounds of an algorithm in which only one client learns: all that is the others' is put back after each."""

    newcomer: int

    def init(self, models: Models, optimizer: Optimizer) -> State:
        return self.algorithm.init(models, optimizer)

    def step(self, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
        after, info = self.algorithm.step(state, fleet, round)
        learns = fleet.roster.numbers == self.newcomer
        models, optimizer, own = (put_back(learns, now, then) for now, then in zip(after[:3], state[:3], strict=True))
        alone = torch.eye(len(learns), dtype=info.weights.dtype)
        weights = torch.where(learns[:, None], info.weights, alone)
        return State(models, optimizer, own, after.common), info._replace(weights=weights)
