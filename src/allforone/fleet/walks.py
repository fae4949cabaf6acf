"""Walks from one client's model on another's data: the updates of a round, of which only the way made is told."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..problems.data import Batch
from .batches import Parted
from .models import Models, flat
from .optimizer import Optimizer

#: (model, batch, step, purpose) → the gradients of what is trained, and the values of buffers after the pass
Gradient = Callable[[Models, Batch, int, str], Models]


def walk(
    gradient: Gradient, model: Models, trained: list[str], optimizer: Optimizer, batches: Parted, steps: range
) -> tuple[Tensor, Models]:
    """[parts, P], how far each part of the batches leads, and the buffers after it, their mean."""
    ends = []
    for part in range(len(batches[0])):
        running = optimizer.start({name: tensor[None] for name, tensor in model.items()}, trained)
        for number, step in enumerate(steps):
            here = {name: tensor[0] for name, tensor in running.models.items()}
            found = gradient(here, batches[number][part], step, f"walk {part}")
            running.apply({name: tensor[None] for name, tensor in found.items()})
        ends.append({name: tensor[0] for name, tensor in running.finish()[0].items()})
    start = flat(model[name] for name in trained)
    ways = torch.stack([flat(end[name] for name in trained) - start for end in ends])
    return ways, {name: _mean([end[name] for end in ends]) for name in model if name not in trained}


def _mean(values: list[Tensor]) -> Tensor:
    """Of counters and masks, the first."""
    return torch.stack(values).mean(0) if values[0].is_floating_point() else values[0]
