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
from .looking import flat
from .walking import moved


class Race(TypedDict):
    """What is remembered of it, by client."""

    alone: Models
    optimizer: Optimizer  #: of these
    velocity: Tensor  #: [N, P], their last move where moves have a momentum of their own, else [N, 0]
    differences: Tensor  #: [N, KEPT], of the losses since both went on from one point


def begin(models: Models, optimizer: Optimizer, clients: int) -> Race:
    differences = torch.full((clients, KEPT), torch.nan, dtype=torch.float64)
    return Race(alone=models, optimizer=optimizer, velocity=differences[:, :0], differences=differences)


def alone(before: Race, fleet: Fleet, round: Round, momentum: float | None = None) -> State:
    """After the same round without anybody: its updates or, where moves have a momentum, a walk and that."""
    itself = torch.eye(len(round.present), dtype=torch.float64)
    models = before["alone"]
    if momentum is None:
        return State(*fleet.descend(models, itself, before["optimizer"], round))
    walked, optimizer = fleet.descend(models, itself, before["optimizer"].fresh(), round)
    move = flat(walked, fleet.trained) - flat(models, fleet.trained)
    if before["velocity"].shape[1]:
        move = move + momentum * before["velocity"]
    buffers = {name: tensor for name, tensor in walked.items() if name not in fleet.trained}
    return State(moved(models, move, buffers, fleet.trained), optimizer.fresh(), {"velocity": move} if momentum else {})


def race(
    together: State, before: Race, fleet: Fleet, round: Round, momentum: float | None = None
) -> tuple[State, Race]:
    """`together`, after a round, and the race, where streams that are surely better alone go on from there.

    momentum: of whole moves, where partners walk; None where every update asks them.
    """
    streams = round.present & torch.tensor([member.stream for member in fleet.roster])
    there = round._replace(present=streams)
    other = alone(before, fleet, there, momentum)
    (losses, held), (losses_alone, _) = (fleet.new_losses(state.models, there) for state in (together, other))
    differences = latest(before["differences"], relative_difference(losses, losses_alone), held, streams)
    verdict = judge(differences)
    lost, won = streams & verdict.alone, streams & (verdict.gain > verdict.margin)
    follower = mixed(won, together, other)
    return mixed(lost, other, together), Race(
        alone=follower.models,
        optimizer=follower.optimizer,
        velocity=follower.own.get("velocity", before["velocity"]),
        differences=torch.where((lost | won)[:, None], torch.nan, differences),
    )


def mixed(rows: Tensor, those: State, others: State) -> State:
    """`others`, with the models of `rows`, and how these move, from `those`."""
    models = {name: where_rows(rows, those.models[name], tensor) for name, tensor in others.models.items()}
    own = others.own
    if "velocity" in own:
        own = {**own, "velocity": where_rows(rows, those.own["velocity"], own["velocity"])}
    return others._replace(models=models, optimizer=those.optimizer.only_rows(rows, others.optimizer), own=own)
