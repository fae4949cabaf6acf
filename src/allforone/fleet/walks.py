"""Walks from one client's model on another's data: the updates of a round, of which only the way made is told."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..problems.data import Batch
from .batches import Parted
from .devices import double
from .models import Models, flat
from .optimizer import Optimizer

#: (model, batch, step, purpose) → the gradients of what is trained, and the values of buffers after the pass
Gradient = Callable[[Models, Batch, int, str], Models]


class Walked(NamedTuple):
    """From one model, or, with more dimensions before, from each of several."""

    ways: Tensor  #: [parts, P], how far each part of the batches leads
    first: Tensor  #: [], the noise of the first update: see `first_noise`
    buffers: Models  #: after it, the mean over its parts


def first_noise(ways: Tensor) -> Tensor:
    """‖a − b‖²/(4⟨a, b⟩) of ways […, parts, P] in halves after one update; ∞ where it cannot be told."""
    a, b = double(ways[..., 0, :]), double(ways[..., -1, :])
    along = (a * b).sum(-1)
    told = (a - b).square().sum(-1) / (4 * along.clamp(min=1e-300))
    return torch.where((along > 0) & (ways.shape[-2] == 2), told, torch.inf).cpu()


def walk(
    gradient: Gradient, model: Models, trained: list[str], optimizer: Optimizer, batches: Parted, steps: range
) -> Walked:
    """The updates of a round on every part of the batches."""
    start = flat(model[name] for name in trained)

    def way(reached: Models) -> Tensor:
        return flat(reached[name] for name in trained) - start

    ends, firsts = [], []
    for part in range(len(batches[0])):
        running = optimizer.start({name: tensor[None] for name, tensor in model.items()}, trained)
        for number, step in enumerate(steps):
            here = {name: tensor[0] for name, tensor in running.models.items()}
            found = gradient(here, batches[number][part], step, f"walk {part}")
            running.apply({name: tensor[None] for name, tensor in found.items()})
            if number == 0:
                firsts.append(way({name: tensor[0] for name, tensor in running.models.items()}))
        ends.append({name: tensor[0] for name, tensor in running.finish()[0].items()})
    buffers = {name: _mean([end[name] for end in ends]) for name in model if name not in trained}
    return Walked(torch.stack([way(end) for end in ends]), first_noise(torch.stack(firsts)), buffers)


def _mean(values: list[Tensor]) -> Tensor:
    """Of counters and masks, the first."""
    return torch.stack(values).mean(0) if values[0].is_floating_point() else values[0]
