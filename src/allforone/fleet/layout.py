"""Images, volumes and filters stored channels-last, the order in which convolutions are fastest on a CPU."""

import torch
from torch import Tensor

from ..problems.data import Batch
from ..problems.tree import mapped

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def arrange(tensor: Tensor) -> Tensor:
    """The same tensor; with four or five dimensions, channels-last."""
    order = FORMATS.get(tensor.dim())
    return tensor.to(memory_format=order) if order else tensor


def arranged(batch: Batch) -> Batch:
    """The same batch, with its inputs so stored."""
    return mapped(arrange, batch[0]), batch[1]
