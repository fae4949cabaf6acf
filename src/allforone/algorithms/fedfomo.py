"""FedFomo (Zhang, Sapra, Fidler, Yeung, Alvarez, ICLR 2021): each client takes of others' models what lowers its loss.

w_ik = (L_i(θ⁻_i) − L_i(θ_k))₊ / ‖θ_k − θ⁻_i‖, rows made to sum to one, θ⁻_i the own model before its last local steps;
θ_i ← θ⁻_i + Σ_k w_ik (θ_k − θ⁻_i), then `inner` local steps. k is everybody, i too; without a positive w_ik θ_i stays.
"""

from dataclasses import dataclass
from typing import TypedDict

import torch
from torch import Tensor

from ..errors import InputError
from ..fleet import Fleet, Models, Optimizer, Round, combined, pick
from .base import Algorithm, Info, State, identity
from .looking import points


class Own(TypedDict):
    before: Models  #: θ⁻_i


@dataclass(frozen=True)
class FedFomo(Algorithm):
    """Its paper sends a client a few models a round, drawn by how useful they were, to save messages; here all.

    Args:
        held: L_i is the loss on data held out, as in its paper, which the run must hold out (`problems.hold_out`); else
            on the first batches of the round, before they are trained on. Those of finite data have been seen in
            earlier epochs, so that one's own model looks better than it is.
        batches: how many these are, at most; each passes through 2N models at each client.
    """

    name = "fedfomo"
    label = "FedFomo"

    held: bool = False
    batches: int = 5

    def __post_init__(self) -> None:
        if self.batches < 1:
            raise InputError(f"batches is {self.batches}: must be at least 1")

    def init(self, models: Models, optimizer: Optimizer) -> State:
        return State(models, optimizer, Own(before=models))

    def step(self, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
        own: Own = state.own
        if self.held:
            was, now = fleet.new_losses(own["before"], round).losses.nanmean(1), held_losses(state.models, fleet, round)
        else:
            first = round._replace(steps=round.steps[: self.batches])
            was, now = (batch_losses(models, fleet, first) for models in (own["before"], state.models))
            was = was.diagonal()
        far = torch.cdist(points(own["before"], fleet, round), points(state.models, fleet, round)).cpu()
        weights = useful(was[:, None] - now, far, round.present)
        start = combined(state.models, weights)
        models, optimizer = fleet.descend(start, identity(fleet), state.optimizer, round)
        present = int(round.present.sum())
        info = Info(weights, messages=present**2)  # each client's own up, the others' down
        return State(models, optimizer, Own(before=start)), info


def useful(gain: Tensor, far: Tensor, present: Tensor) -> Tensor:
    """[N, N], w_ik among those present, from how much lower the loss of i is at the model of k, and how far that is."""
    there = present[:, None] & present
    slope = torch.where(there & (far > 0), gain / far, 0).nan_to_num(0, posinf=0, neginf=0).clamp(min=0)
    total = slope.sum(1, keepdim=True)
    return torch.where(total > 0, slope / total, torch.diag(present.to(slope)))


def batch_losses(models: Models, fleet: Fleet, round: Round) -> Tensor:
    """[N, N], the loss of client i at the model of k on the batches of the round; NaN where one is absent."""
    here = round.present.nonzero().flatten()
    table = torch.full((len(fleet.roster),) * 2, torch.nan, dtype=torch.float64)
    table[:, here] = fleet.losses(pick(models, here), round).T
    return table


def held_losses(models: Models, fleet: Fleet, round: Round) -> Tensor:
    """The same on what each client has held out. A client is asked for one model at a time: all models go round."""
    numbers = fleet.roster.numbers
    table = torch.full((len(numbers),) * 2, torch.nan, dtype=torch.float64)
    for shift in range(len(numbers)):
        whose = (numbers + shift) % len(numbers)
        table[numbers, whose] = fleet.new_losses(pick(models, whose), round).losses.nanmean(1)
    return table
