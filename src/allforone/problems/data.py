"""A client's data: finite sets and endless streams, drawn so that a batch depends on its name alone.

A batch is a function of (seed, client, step, purpose). There is no cursor, so a resumed run sees the same batches
as an uninterrupted one, and so does every fleet.
"""

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset, default_collate

from ..errors import InputError, blaming, within
from .reading import Batch as Batch
from .reading import Collate, pair, plain, read, samples
from .shuffle import generator as generator
from .shuffle import shuffled
from .tree import Tree, leaves, length, mapped, named, rows, stacked

Transform = Callable[[Tree], Tree]  #: of the inputs of a batch, always: bytes to normalised numbers
Augment = Callable[[Tree, torch.Generator], Tree]  #: of the raw inputs of a batch that is trained on

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
    """A data set of known size: in memory, or items that are read one by one and made a batch of by `collate`."""

    def __init__(
        self,
        source: Any,
        transform: Transform | None = None,
        augment: Augment | None = None,
        collate: Collate | None = None,
    ) -> None:
        self.transform, self.augment = transform, augment
        found = read(source, collate)
        self.tensors, self.collate, self.batch_size = found.tensors, found.collate, found.batch_size
        if found.items is not None:
            self.items = found.items
        self.size = len(self.items) if self.tensors is None else samples(self.tensors)

    def __len__(self) -> int:
        return self.size

    @property
    def ragged(self) -> bool:
        """Whether batches may differ in shape, as where `collate` pads to the longest of each."""
        return self.collate is not None

    def part(self, indices: Tensor, augmented: bool = True) -> "Finite":
        """The samples at these places, as a data set of its own."""
        items: Any = self.items if self.tensors is None else None
        source = rows(self.tensors, indices) if items is None else Subset(items, indices.tolist())
        part = Finite(source, self.transform, self.augment if augmented else None, self.collate)
        part.batch_size = self.batch_size
        return part

    def take(self, indices: Tensor, generator: torch.Generator | None = None) -> Batch:
        """The samples at these places; with a generator, augmented by it."""
        if self.tensors is not None:
            inputs, targets = rows(self.tensors, indices)
        else:
            with seeded(generator):
                inputs, targets = self._read(indices.tolist())
        if self.augment and generator:
            inputs = _changed("augment", partial(self.augment, inputs, generator), length(targets))
        if self.transform:
            inputs = _changed("transform", partial(self.transform, inputs), length(targets))
        return inputs, targets

    def _read(self, indices: list[int]) -> Batch:
        """These items of a Dataset, of which nothing is known before they are read."""
        items = []
        for i in indices:
            with blaming(f"{self._called(i)} cannot be read", "Mend it or leave it out"):
                items.append(self.items[i])
        remedy = "items must be pairs (input, target) of tensors or numbers, alike in shape; or give collate=…"
        what = f"a batch of items of {self._called(0).rpartition(' ')[2]} cannot be made"
        with within(what), blaming(what="collating fails", remedy=remedy):
            batch = pair(plain((self.collate or default_collate)(items)))
            if (count := samples(batch)) != len(items):
                raise InputError(f"{len(items)} items became {count} samples: give one of each for each item")
        for side, tree in zip(("input", "target"), batch, strict=True):
            for name, tensor in named(tree, side):
                if (bad := first_not_finite(tensor)) is not None:
                    called = self._called(indices[bad])
                    raise InputError(f"{called} has NaN or infinity in its {name}; fill it or leave the item out")
        return batch

    def _called(self, place: int) -> str:
        """An item as the user's own data set numbers it."""
        items: Any = self.items
        while isinstance(items, Subset):
            items, place = items.dataset, items.indices[place]
        return f"item {place} of {type(items).__name__}"


def _changed(what: str, function: Callable[[], Any], count: int) -> Tree:
    """What the user's own function makes of a batch's inputs."""
    with blaming(f"{what} fails"):
        made = function()
    with within(f"{what} gives {type(made).__name__}"):
        if any(tensor.dim() == 0 or len(tensor) != count for tensor in leaves(made)):
            raise InputError(f"it must return the {count} inputs of the batch, samples first")
    return made


def _streamed(stream: Stream, size: int, source: torch.Generator) -> Batch:
    """What the user's own stream draws."""
    with blaming(f"{type(stream).__name__}.draw fails"):
        made = stream.draw(size, source)
    with within(f"{type(stream).__name__}.draw gives {type(made).__name__}"):
        batch = pair(plain(made))
        if (count := samples(batch)) != size:
            raise InputError(f"{count} samples: it must have the {size} that were asked for")
    return batch


def first_not_finite(tensor: Tensor) -> int | None:
    """The first sample with NaN or infinity."""
    if not tensor.is_floating_point() or tensor.isfinite().all():
        return None
    return int((~tensor.isfinite()).reshape(len(tensor), -1).any(1).nonzero()[0])


def fingerprint(*data: object) -> str:
    """A short text that changes when the data do: of tensors every byte counts, of what is transformed, read item by
    item or drawn from a stream the first few samples."""
    digest = hashlib.blake2b(digest_size=8)
    for part in data:
        batches: list[Batch] = []
        if isinstance(part, Finite):
            digest.update(str(len(part)).encode())
            if part.tensors is not None:
                batches.append(part.tensors)
            if part.tensors is None or part.transform or part.augment:
                batches.append(part.take(torch.arange(min(len(part), PROBED)), generator("fingerprint")))
        elif isinstance(part, Stream):
            batches.append(_streamed(part, PROBED, generator("fingerprint")))
        for tensor in leaves(batches):
            digest.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
            digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


@contextmanager
def seeded(source: torch.Generator | None, device: torch.device | None = None) -> Iterator[None]:
    """What draws from the global generators of torch, numpy and Python draws by this seed, and leaves no trace; so does
    what draws on a device of CUDA, if that is given."""
    if source is None:
        yield
        return
    before = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[device] if device and device.type == "cuda" else []):
        torch.manual_seed(source.initial_seed())
        np.random.seed(source.initial_seed() % 2**32)
        random.seed(source.initial_seed())
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])


def draw(data: Finite | Stream, size: int, *, seed: int, client: int, step: int, purpose: str) -> Batch:
    """The batch of `client` at `step`, for `purpose`.

    A finite set is walked in epochs, each a fresh permutation: batch `step` is the places [step·size, (step+1)·size)
    of the endless row of permutations, so that every sample is seen once per epoch and all batches are equally large.
    """
    if not isinstance(data, Finite):
        return _streamed(data, size, generator(seed, client, step, purpose))
    draws = data.augment or data.tensors is None  # a Dataset may draw too
    source = generator(seed, client, step, purpose, "augment") if draws else None
    return data.take(places(len(data), size, range(step, step + 1), seed, client, purpose), source)


def draw_many(data: Finite | Stream, size: int, *, seed: int, client: int, steps: range, purpose: str) -> Batch:
    """The batches of many steps, alike in shape: [steps, size, …]."""
    if isinstance(data, Finite) and data.tensors is not None and not data.augment and not data.transform:
        batch = data.take(places(len(data), size, steps, seed, client, purpose))
        return mapped(lambda tensor: tensor.unflatten(0, (len(steps), -1)), batch)  # type: ignore[no-any-return]
    batches = [draw(data, size, seed=seed, client=client, step=step, purpose=purpose) for step in steps]
    return stacked(batches)  # type: ignore[no-any-return]


def places(length: int, size: int, steps: range, seed: int, client: int, purpose: str) -> Tensor:
    """Which samples of a finite set of `length` the batches of `steps` hold, one after the other."""
    size = min(size, length)
    first, stop = steps.start * size, steps.stop * size
    epochs = range(first // length, (stop - 1) // length + 1)
    found = []
    for epoch in epochs:
        start, end = max(first - epoch * length, 0), min(stop - epoch * length, length)
        found.append(shuffled(torch.arange(start, end), length, seed, client, purpose, epoch))
    return torch.cat(found)
