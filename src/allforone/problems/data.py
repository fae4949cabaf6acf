"""A client's data: finite sets and endless streams, drawn so that a batch depends on its name alone.

A batch is a function of (seed, client, step, purpose). There is no cursor, so a resumed run sees the same batches
as an uninterrupted one, and so does every fleet.
"""

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate

from ..errors import InputError, blaming

Batch = tuple[Tensor, Tensor]
Transform = Callable[[Tensor], Tensor]  #: of the inputs of a batch, always: bytes to normalised numbers
Augment = Callable[[Tensor, torch.Generator], Tensor]  #: of the raw inputs of a batch that is trained on

#: Samples by which a data set that is not in memory is known again.
PROBED = 8


@runtime_checkable
class Stream(Protocol):
    """Data without end, drawn anew at every step."""

    def draw(self, size: int, generator: torch.Generator) -> Batch: ...


@runtime_checkable
class Population(Protocol):
    """A distribution whose expected loss is known in closed form, in the place of test data."""

    floor: float  #: the least expected loss any model can have

    def excess(self, model: Mapping[str, Tensor]) -> Tensor: ...  #: expected loss of the model above the floor


class Finite:
    """A data set of known size: a pair of tensors, or any map-style torch Dataset, read item by item."""

    def __init__(self, source: Any, transform: Transform | None = None, augment: Augment | None = None) -> None:
        self.transform, self.augment = transform, augment
        if isinstance(source, TensorDataset):
            source = source.tensors
        if isinstance(source, Sequence) and len(source) == 2 and all(isinstance(t, Tensor) for t in source):
            inputs, targets = source
            if inputs.dim() == 0 or targets.dim() == 0:
                raise InputError("the inputs and targets must have a first dimension, over the samples")
            if len(inputs) != len(targets):
                raise InputError(f"{len(inputs)} inputs but {len(targets)} targets: give one target for each input")
            self.tensors: Batch | None = (inputs, targets)
            self.size = len(inputs)
        elif isinstance(source, Dataset) and hasattr(source, "__len__"):
            self.tensors, self.items, self.size = None, source, len(source)
        else:
            raise InputError(
                f"cannot read data from {type(source).__name__}: give a pair of tensors (inputs, targets), "
                "a torch Dataset with a length, or an object with draw(size, generator)"
            )

    def __len__(self) -> int:
        return self.size

    def part(self, indices: Tensor, augmented: bool = True) -> "Finite":
        """The samples at these places, as a data set of its own."""
        source = (
            Subset(self.items, indices.tolist())
            if self.tensors is None
            else tuple(tensor[indices] for tensor in self.tensors)
        )
        return Finite(source, self.transform, self.augment if augmented else None)

    def take(self, indices: Tensor, generator: torch.Generator | None = None) -> Batch:
        """The samples at these places; with a generator, augmented by it."""
        if self.tensors is not None:
            inputs, targets = (tensor[indices] for tensor in self.tensors)
        else:
            with seeded(generator):
                inputs, targets = self._read(indices.tolist())
        if self.augment and generator:
            inputs = self.augment(inputs, generator)
        return (self.transform(inputs) if self.transform else inputs), targets

    def _read(self, indices: list[int]) -> Batch:
        """These items of a Dataset, of which nothing is known before they are read."""
        items = []
        for i in indices:
            with blaming(f"{self._called(i)} cannot be read", "Mend it or leave it out"):
                items.append(self.items[i])
        remedy = "every item must be a pair (input, target) of tensors or numbers, alike in shape"
        with blaming(f"a batch of items of {type(self.items).__name__} cannot be made", remedy):
            inputs, targets = default_collate(items)
            if not isinstance(inputs, Tensor) or not isinstance(targets, Tensor):
                raise TypeError(f"items of {type(inputs).__name__} and {type(targets).__name__}")
        for what, tensor in (("input", inputs), ("target", targets)):
            if (bad := first_not_finite(tensor)) is not None:
                called = self._called(indices[bad])
                raise InputError(f"{called} has NaN or infinity in its {what}; fill it or leave the item out")
        return inputs, targets

    def _called(self, place: int) -> str:
        """An item as the user's own data set numbers it."""
        items: Any = self.items
        while isinstance(items, Subset):
            items, place = items.dataset, items.indices[place]
        return f"item {place} of {type(items).__name__}"


def first_not_finite(tensor: Tensor) -> int | None:
    """The first sample with NaN or infinity."""
    if not tensor.is_floating_point() or tensor.isfinite().all():
        return None
    return int((~tensor.isfinite()).reshape(len(tensor), -1).any(1).nonzero()[0])


def generator(*name: int | str) -> torch.Generator:
    """A random generator that depends on its name alone."""
    digest = hashlib.blake2b(repr(name).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def fingerprint(*data: object) -> str:
    """A short text that changes when the data do: of tensors every byte counts, of what is transformed, read item by
    item or drawn from a stream the first few samples."""
    digest = hashlib.blake2b(digest_size=8)
    for part in data:
        tensors: tuple[Tensor, ...] = ()
        if isinstance(part, Finite):
            digest.update(str(len(part)).encode())
            tensors = part.tensors or ()
            if part.tensors is None or part.transform or part.augment:
                tensors += part.take(torch.arange(min(len(part), PROBED)), generator("fingerprint"))
        elif isinstance(part, Stream):
            tensors = part.draw(PROBED, generator("fingerprint"))
        for tensor in tensors:
            digest.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
            digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


@contextmanager
def seeded(source: torch.Generator | None) -> Iterator[None]:
    """What draws from the global generators of torch, numpy and Python draws by this seed, and leaves no trace."""
    if source is None:
        yield
        return
    before = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(source.initial_seed())
        np.random.seed(source.initial_seed() % 2**32)
        random.seed(source.initial_seed())
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])


@lru_cache(maxsize=1024)
def _permutation(size: int, *name: int | str) -> Tensor:
    """An epoch's order, remembered while it is used: at most 1,024 of them, each in as few bytes as will do."""
    order = torch.randperm(size, generator=generator(*name))
    return order.to(torch.int32) if size < 2**31 else order


def draw(data: Finite | Stream, size: int, *, seed: int, client: int, step: int, purpose: str) -> Batch:
    """The batch of `client` at `step`, for `purpose`.

    A finite set is walked in epochs, each a fresh permutation: batch `step` is the places [step·size, (step+1)·size)
    of the endless row of permutations, so that every sample is seen once per epoch and all batches are equally large.
    """
    if not isinstance(data, Finite):
        return data.draw(size, generator(seed, client, step, purpose))
    draws = data.augment or data.tensors is None  # a Dataset may draw too
    source = generator(seed, client, step, purpose, "augment") if draws else None
    return data.take(places(len(data), size, range(step, step + 1), seed, client, purpose), source)


def draw_many(data: Finite | Stream, size: int, *, seed: int, client: int, steps: range, purpose: str) -> Batch:
    """The batches of many steps: [steps, size, …]."""
    if isinstance(data, Finite) and data.tensors is not None and not data.augment and not data.transform:
        inputs, targets = data.take(places(len(data), size, steps, seed, client, purpose))
        return inputs.unflatten(0, (len(steps), -1)), targets.unflatten(0, (len(steps), -1))
    batches = [draw(data, size, seed=seed, client=client, step=step, purpose=purpose) for step in steps]
    return torch.stack([inputs for inputs, _ in batches]), torch.stack([targets for _, targets in batches])


def places(length: int, size: int, steps: range, seed: int, client: int, purpose: str) -> Tensor:
    """Which samples of a finite set of `length` the batches of `steps` hold, one after the other."""
    size = min(size, length)
    first, stop = steps.start * size, steps.stop * size
    epochs = range(first // length, (stop - 1) // length + 1)
    row = torch.cat([_permutation(length, seed, client, purpose, epoch) for epoch in epochs])
    start = first - epochs.start * length
    return row[start : start + stop - first]
