"""Where models are computed: the CPU, or one GPU. Models, batches and the optimizer's state are there; what is known of
clients and pairs of them are small tables, which stay on the CPU."""

import torch
from torch import Tensor

from ..errors import InputError, short
from ..problems.tree import Tree, mapped

CPU = torch.device("cpu")
#: What can be asked for, the fastest first.
KINDS = ("cuda", "mps", "cpu")
#: Of a device's number; Python reads no number of thousands of them.
MOST_DIGITS = 10


def find_device(name: str) -> torch.device:
    """The device of this name, if this machine has it; "auto" is the fastest that it has."""
    there = {kind: count for kind in KINDS if (count := _count(kind))}
    if name == "auto":
        return torch.device(next(iter(there)))
    kind, _, number = name.partition(":")
    if kind not in KINDS or (number and not (number.isascii() and number.isdecimal() and len(number) < MOST_DIGITS)):
        raise InputError(f"device is {short(repr(name))}: give cuda, cuda:1, mps, cpu or auto")
    if int(number or 0) >= there.get(kind, 0):
        found = ", ".join(f"{count} of {kind}" if count > 1 else kind for kind, count in there.items())
        raise InputError(f"device {name} is not there: this machine and its torch {torch.__version__} have {found}")
    return torch.device(name)


def _count(kind: str) -> int:
    """How many devices of a kind there are."""
    if kind == "cuda":
        return torch.cuda.device_count()
    return int(kind == "cpu" or torch.backends.mps.is_available())


def on(device: torch.device, tree: Tree) -> Tree:
    """The same tensors, there; itself, if that is the CPU."""
    return tree if device == CPU else mapped(lambda tensor: tensor.to(device), tree)


def double(tensor: Tensor) -> Tensor:
    """The same in double precision; on the CPU, where the device has none."""
    return (tensor.cpu() if tensor.device.type == "mps" else tensor).double()
