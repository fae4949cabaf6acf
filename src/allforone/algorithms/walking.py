"""One exchange a round: θ_i ← θ_i + Σ_k w_ik Δ_k(θ_i), Δ_k how far client k comes from θ_i in the round's updates.

At one update a round with plain SGD this is All-for-one itself. With w = I it is Local, with everybody's share of the
data and one model for all FedAvg. Two walks on the halves of each batch give Δ with its noise, so that the answers are
also the look.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..collaboration import least_error as rule
from ..collaboration.decision import Decision, decide
from ..collaboration.weights import normalised
from ..fleet import Fleet, Models, Optimizer, Round, Walks, double, look_at, sketch
from .base import State
from .looking import bent, curvature

#: From walks to the weights of their rows, [R, c], which sum to one.
Weigh = Callable[[Walks], Tensor]


class Exchanged(NamedTuple):
    """What a round of walks gave."""

    move: Tensor  #: [N, P], Σ_k w_ik Δ_k(θ_i)
    buffers: Models  #: after each client's own walk
    told: Decision
    seen: dict[str, Tensor]  #: what is known, with what was seen


def exchange(
    state: State, fleet: Fleet, round: Round, before: dict[str, Tensor], ids: Tensor, common: Tensor | None = None
) -> Exchanged:
    """Ask `ids` [N, c], whose places are the first of what is known before, for their walks, and decide by them.

    common: weights [N, c] in the place of those decided, of those whose walks came.
    """
    kappa, width = curvature(before, state, fleet), before["difference"].shape[2]
    pace = state.optimizer.step_size or 1.0
    most = 1 / len(round.steps)  # K updates bend a way by 1 − (1 − ηβ)ᴷ ≤ 1 in all: noise of the way counts once
    seen = {name: table.clone() for name, table in before.items()}
    told = Decision.alone(ids, ids == fleet.roster.numbers[:, None])
    halves = torch.full((*ids.shape, 2, width), torch.nan, dtype=torch.float64)

    def weigh(walks: Walks) -> Tensor:
        rows, parameters = walks.rows, walks.ways.shape[3]
        setting = rule.Setting.of(fleet.roster, fleet.batch_size, parameters, rows, ids[rows], len(round.steps))
        ways = double(walks.ways) / -len(round.steps)  # as gradients times the step size
        look = look_at(ways, ids[rows], setting.itself, walks.read, walks.added, sketch(parameters, width))
        plainly = walks.added * pace**2 / len(round.steps)  # by plain SGD; others make less of it, at most what is seen
        look = look._replace(added=torch.where(walks.added > 0, plainly.minimum(look.noise.nan_to_num()), 0))
        known = {name: table[rows] for name, table in before.items()}
        share = known["sampled"] = rule.sampled(known, look, walks.first, len(round.steps))
        setting = setting._replace(rarity=share[:, None] * setting.rarity)
        kappas = rule.or_first(kappa[rows], look, setting, 1 / pace).clamp(max=most)
        decision, after = decide(known, look, setting, kappas, walks=len(round.steps))
        if common is not None:
            came = torch.where(look.distance.isfinite(), common[rows], 0)
            decision = decision._replace(weights=normalised(came))
        for name, table in after.items():
            seen[name][rows] = table
        for whole, part in zip(told, decision, strict=True):
            whole[rows] = part
        halves[rows] = look.halves
        return decision.weights

    move, buffers = walk_together(state.models, ids, state.optimizer, fleet, round, weigh)
    return Exchanged(move, buffers, told, bent(seen, ids, halves, state, fleet, 1.0))


def walk_together(
    models: Models, ids: Tensor, optimizer: Optimizer, fleet: Fleet, round: Round, weigh: Weigh, parts: int = 2
) -> tuple[Tensor, Models]:
    """[N, P], Σ_k w_ik Δ_k(θ_i), 0 of the absent, and the buffers after each client's own walk."""
    size = sum(models[name][0].numel() for name in fleet.trained)
    move = models[fleet.trained[0]].new_zeros(len(ids), size)
    buffers = {name: tensor.clone() for name, tensor in models.items() if name not in fleet.trained}
    for walks in fleet.walks(models, ids, optimizer, round, parts):
        weights = weigh(walks).to(move)
        ways = torch.where((weights != 0)[..., None], walks.ways.mean(2), 0)  # who was not heard is NaN
        move[walks.rows] = torch.einsum("rc,rcp->rp", weights, ways)
        for name, tensor in walks.buffers.items():
            buffers[name][walks.rows] = tensor
    return move, buffers


def moved(models: Models, move: Tensor, buffers: Models, trained: list[str]) -> Models:
    """The models after a move [N, P] of their parameters."""
    sizes = [models[name][0].numel() for name in trained]
    parts = dict(zip(trained, move.split(sizes, 1), strict=True))
    return {
        name: tensor + parts[name].reshape(tensor.shape) if name in parts else buffers[name]
        for name, tensor in models.items()
    }
