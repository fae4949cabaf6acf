"""Long vectors as short ones whose inner products are nearly the same."""

from functools import cache

import torch
from torch import Tensor

from ..problems.data import generator
from .devices import CPU


class Sketch:
    """Every number is given a random sign and added into one of `size` places.

    E⟨S u, S v⟩ = ⟨u, v⟩, with a standard deviation of about ‖u‖‖v‖/√size. A vector that is no longer stays as it is.
    """

    def __init__(self, length: int, size: int) -> None:
        self.length, self.size = length, min(size, length)
        random = generator("sketch", length, size)
        place = torch.randint(max(1, self.size), (length,), generator=random)
        sign = 2.0 * torch.randint(2, (length,), generator=random) - 1
        self._tables = {CPU: (place, sign)}

    def __call__(self, vectors: Tensor) -> Tensor:
        """[…, length] → […, size]"""
        if self.size in (0, self.length):
            return vectors[..., : self.size]
        if vectors.device not in self._tables:  # they are as long as the vectors, so they are moved once
            place, sign = self._tables[CPU]
            self._tables[vectors.device] = place.to(vectors.device), sign.to(vectors.device)
        place, sign = self._tables[vectors.device]
        short = vectors.new_zeros(*vectors.shape[:-1], self.size)
        return short.index_add(-1, place, vectors * sign.to(vectors.dtype))


@cache
def sketch(length: int, size: int) -> Sketch:
    return Sketch(length, size)
