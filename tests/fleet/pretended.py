"""A GPU that is none: tensors that say they are on another device, computed on the CPU all the same.

An operation on tensors of both devices fails, as with a real one; so numbers can be compared bit by bit with those of
the CPU, which `FakeTensorMode`, without numbers, does not allow. Its name is torch's "meta", which needs no driver.
"""

from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from allforone.fleet import devices

NAME = "meta"
#: Operations by which tensors go from one device to the other.
MOVES = ("_to_copy", "copy_")
#: Operations whose indices may be on the CPU.
INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index")


class MixedError(RuntimeError):
    """Tensors of both devices in one operation."""


class There(Tensor):
    """A tensor on the pretended device."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held):
        made = Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device(NAME),
        )
        made.held = held
        return made

    def tolist(self):
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return computed(function, args, kwargs or {})


class Pretending(TorchDispatchMode):
    """Where tensors can be made there."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return computed(function, args, kwargs or {})


def computed(function, args, kwargs):
    name = function.overloadpacket.__name__
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    here = [tensor for tensor in tensors if not isinstance(tensor, There)]
    if any(tensor.is_meta for tensor in here):  # as torch itself makes of a list of indices, and it has no numbers
        raise RuntimeError(f"{name}: a tensor came to the device unseen; index by a tensor, not by a list")
    wanted = kwargs.get("device")
    there = len(here) < len(tensors) if wanted is None else torch.device(wanted).type == NAME
    if name not in MOVES and len(here) < len(tensors):
        indices = name in INDEXING and isinstance(args[0], There)
        if any(t.dim() and not (indices and not t.is_floating_point()) for t in here):
            raise MixedError(f"{name}: tensors of both devices")
    kwargs = kwargs if wanted is None else {**kwargs, "device": torch.device("cpu")}
    args_, kwargs_ = tree_map_only(There, lambda tensor: tensor.held, (args, kwargs))
    found = function(*args_, **kwargs_)
    if name.endswith("_") and name[:2] != "__":  # in place: what was given is what was changed
        return args[0]
    return tree_map_only(Tensor, There, found) if there else found


@contextmanager
def pretended_device(monkeypatch):
    """Its name, while there is one."""
    monkeypatch.setattr(devices, "KINDS", (NAME, *devices.KINDS))
    counted = devices._count
    monkeypatch.setattr(devices, "_count", lambda kind: int(kind == NAME) or counted(kind))
    with Pretending():
        yield NAME
