"""Who draws new samples for ever can try both: go on with others and go on alone, and take the better way.

Two models of a client start at one point and see the same batches; one collaborates. The batches to come are new to
both. Once the 95 % interval of their losses' difference tells which model is better, both go on from that one. So what
collaboration may cost while it is found out that nobody is alike is lost for a few rounds only, then taken back.
"""

from typing import TypedDict

import torch
from torch import Tensor

from ..fleet import Fleet, Models, Optimizer, Round, where_rows
from .base import State
from .guarded import KEPT, judge, latest, relative_difference


class Race(TypedDict):
    """What is remembered of it, by client."""

    alone: Models
    optimizer: Optimizer  #: of these
    differences: Tensor  #: [N, KEPT], of the losses since both went on from one point


def begin(models: Models, optimizer: Optimizer, clients: int) -> Race:
    differences = torch.full((clients, KEPT), torch.nan, dtype=torch.float64)
    return Race(alone=models, optimizer=optimizer, differences=differences)


def race(together: State, before: Race, fleet: Fleet, round: Round) -> tuple[State, Race]:
    """`together`, after a round, and the race, where streams that are surely better alone go on from there."""
    streams = round.present & torch.tensor([member.stream for member in fleet.roster])
    there = round._replace(present=streams)
    alone, optimizer = fleet.descend(before["alone"], torch.eye(len(streams)).double(), before["optimizer"], there)
    (losses, held), (losses_alone, _) = (fleet.new_losses(models, there) for models in (together.models, alone))
    differences = latest(before["differences"], relative_difference(losses, losses_alone), held, streams)
    verdict = judge(differences)
    lost, won = streams & verdict.alone, streams & (verdict.gain > verdict.margin)
    merged = {name: where_rows(lost, alone[name], t) for name, t in together.models.items()}
    now = together._replace(models=merged, optimizer=optimizer.only_rows(lost, together.optimizer))
    return now, Race(
        alone={name: where_rows(won, t, alone[name]) for name, t in together.models.items()},
        optimizer=together.optimizer.only_rows(won, optimizer),
        differences=torch.where((lost | won)[:, None], torch.nan, differences),
    )
