"""What a user may give as data, read as inputs and targets: arrays, items one by one, a DataLoader."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    default_collate,
)

from ..errors import InputError, blaming
from .tree import Tree, mapped, named

Batch = tuple[Tree, Tree]  #: inputs and targets, whose tensors all have the samples first
Collate = Callable[[list[Any]], Any]  #: items → a batch, padded where they differ in length

#: What holds the targets of an item that is a dict, as those of Hugging Face are.
LABELS = ("labels", "label")
ACCEPTED = (
    "give a pair of tensors or arrays (inputs, targets), a torch Dataset with a length, a DataLoader, or an object "
    "with draw(size, generator)"
)


class Items(Protocol):
    """Read one by one."""

    def __len__(self) -> int: ...
    def __getitem__(self, place: int, /) -> Any: ...


class Source(NamedTuple):
    """Where data come from: all in memory, or items."""

    tensors: Batch | None
    items: Items | None
    collate: Collate | None  #: by which items become a batch, where that is the user's
    batch_size: int | None = None  #: of a DataLoader


class Rows(Dataset[Batch]):
    """Tensors as items, for a `collate` of the user's."""

    def __init__(self, tensors: Batch) -> None:
        self.tensors = tensors

    def __len__(self) -> int:
        return samples(self.tensors)

    def __getitem__(self, place: int) -> Batch:
        return mapped(lambda tensor: tensor[place], self.tensors)  # type: ignore[no-any-return]


def read(given: Any, collate: Collate | None) -> Source:
    """What the user gave as data."""
    if isinstance(given, DataLoader):
        items, taken = _of_loader(given)
        found = read(items, collate or taken)
        return found._replace(batch_size=given.batch_size)
    if isinstance(given, TensorDataset):
        given = given.tensors
    both = isinstance(given, list) and len(given) == 2 and all(map(is_array, given))
    if both or isinstance(given, tuple | Mapping):
        tensors = pair(plain(given, _tensor))
        samples(tensors)
        return Source(None, Rows(tensors), collate) if collate else Source(tensors, None, None)
    if isinstance(given, Sequence):
        of_items = isinstance(given, list) and len(given) > 0 and isinstance(given[0], tuple | list | Mapping)
    else:
        of_items = hasattr(given, "__len__") and hasattr(given, "__getitem__") and not is_array(given)
    if of_items and not isinstance(given, IterableDataset):
        return Source(None, given, collate)
    raise InputError(f"cannot read data from {type(given).__name__}: {ACCEPTED}")


def _of_loader(loader: DataLoader[Any]) -> tuple[Any, Collate | None]:
    """Its data and how it makes a batch of them. Batches are drawn as ever: its order, sizes and workers do not count,
    but which samples it draws does."""
    data, sampler = loader.dataset, loader.sampler
    if loader.batch_size is None or isinstance(data, IterableDataset):
        raise InputError("a DataLoader without a length, or with a batch_sampler, cannot be taken: give its data set")
    if isinstance(sampler, SubsetRandomSampler):
        data = Subset(data, list(sampler.indices))
    elif not isinstance(sampler, SequentialSampler) and not (
        isinstance(sampler, RandomSampler) and not sampler.replacement and sampler.num_samples == len(data)  # type: ignore[arg-type]
    ):
        raise InputError(
            f"a DataLoader with a {type(sampler).__name__} cannot be taken, since batches are drawn otherwise here: "
            "give its data set, or a Subset of it"
        )
    return data, None if loader.collate_fn is default_collate else loader.collate_fn


def is_array(value: Any) -> bool:
    return isinstance(value, Tensor) or hasattr(value, "__array__")


def plain(found: Any, leaf: Callable[[Any], Any] = lambda value: value) -> Any:
    """The same with dicts of Python's own in the place of others, as Hugging Face's, and leaf(…) of what is in it."""
    if isinstance(found, Mapping):
        return {key: plain(part, leaf) for key, part in found.items()}
    if isinstance(found, tuple | list):
        parts = [plain(part, leaf) for part in found]
        return type(found)(*parts) if hasattr(found, "_fields") else type(found)(parts)
    return leaf(found)


def _tensor(given: Any) -> Tensor:
    """Of an array, a tensor; numpy's float64, which nobody chose, becomes torch's default."""
    if isinstance(given, Tensor):
        if given.layout != torch.strided or given.is_meta:
            odd = "meta tensors without numbers" if given.is_meta else "sparse tensors"
            raise InputError(f"the data are {odd}: give ordinary ones, as by .to_dense()")
        return given
    if not is_array(given):
        raise InputError(f"cannot read data from {type(given).__name__}: {ACCEPTED}")
    array = np.asarray(given)
    with blaming(f"an array of {array.dtype} cannot be a tensor", "Make it one of numbers"):
        tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    return tensor.to(torch.get_default_dtype()) if array.dtype == np.float64 else tensor


def pair(found: Any) -> Batch:
    """(inputs, targets) of what a data set, a collate function or a stream gives; of more than two, the last are the
    targets, of a dict its labels."""
    if isinstance(found, Mapping):
        for key in LABELS:
            if key in found and len(found) > 1:
                return {name: part for name, part in found.items() if name != key}, found[key]
        raise InputError(f"a dict of {', '.join(map(str, found))} says not which are the targets: call them 'labels'")
    if not isinstance(found, tuple | list) or len(found) < 2:
        what = f"{len(found)} parts" if isinstance(found, tuple | list) else type(found).__name__
        raise InputError(f"a batch of {what} is no pair (inputs, targets)")
    return (found[0], found[1]) if len(found) == 2 else (tuple(found[:-1]), found[-1])


def samples(batch: Batch) -> int:
    """How many, the same in all its tensors."""
    counts: dict[str, int] = {}
    for side, tree in zip(("inputs", "targets"), batch, strict=True):
        for name, tensor in named(tree, side):
            if tensor.dim() == 0:
                raise InputError(f"{name} must have a first dimension, over the samples, as all inputs and targets")
            counts[name] = len(tensor)
    if not counts:
        raise InputError(f"no tensors: {ACCEPTED}")
    first, count = next(iter(counts.items()))
    for name, other in counts.items():
        if other != count:
            raise InputError(f"{count} {first} but {other} {name}: give one of each for each sample, samples first")
    return count
