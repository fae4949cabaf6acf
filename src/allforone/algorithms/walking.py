"""One exchange a round: θ_i ← θ_i + Σ_k w_ik Δ_k(θ_i), Δ_k how far client k comes from θ_i in the round's updates.

At one update a round with plain SGD this is All-for-one itself. With w = I it is Local, with everybody's share of the
data and one model for all FedAvg.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ..fleet import Fleet, Models, Optimizer, Round, Walks

#: From walks to the weights of their rows, [R, c], which sum to one.
Weigh = Callable[[Walks], Tensor]


def walk_together(
    models: Models, ids: Tensor, optimizer: Optimizer, fleet: Fleet, round: Round, weigh: Weigh, parts: int = 2
) -> tuple[Tensor, Models]:
    """[N, P], Σ_k w_ik Δ_k(θ_i), 0 of the absent, and the buffers after each client's own walk."""
    size = sum(models[name][0].numel() for name in fleet.trained)
    move = torch.zeros(len(ids), size, dtype=models[fleet.trained[0]].dtype)
    buffers = {name: tensor.clone() for name, tensor in models.items() if name not in fleet.trained}
    for walks in fleet.walks(models, ids, optimizer, round, parts):
        weights = weigh(walks).to(move.dtype)
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
