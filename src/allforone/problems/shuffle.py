"""The order of an epoch: a permutation that is held in memory if it is small, and computed place by place if not."""

import hashlib
from functools import lru_cache

import torch
from torch import Tensor

#: Samples above which an order is no longer held: a gigabyte for each thousand that are remembered would not do.
HELD = 2**22
#: Rounds of the cipher; four make a permutation that cannot be told from a random one.
ROUNDS = 4


def generator(*name: int | str) -> torch.Generator:
    """A random generator that depends on its name alone."""
    return torch.Generator().manual_seed(_number(*name) >> 1)


def shuffled(places: Tensor, size: int, *name: int | str) -> Tensor:
    """Which of `size` samples stand at these places, in the order of this name."""
    return _permutation(size, *name)[places] if size <= HELD else _cipher(places, size, *name)


@lru_cache(maxsize=1024)
def _permutation(size: int, *name: int | str) -> Tensor:
    """Remembered while it is used: at most 1,024 of them, each in as few bytes as will do."""
    return torch.randperm(size, generator=generator(*name)).to(torch.int32)


def _cipher(places: Tensor, size: int, *name: int | str) -> Tensor:
    """A Feistel network on the least square that holds all samples; what leaves them goes round until it is back."""
    half = (size - 1).bit_length() // 2 + 1
    mask = (1 << half) - 1
    keys = [_number(*name, turn) & 0x7FFFFFFF for turn in range(ROUNDS)]

    def once(numbers: Tensor) -> Tensor:
        left, right = numbers >> half, numbers & mask
        for key in keys:
            mixed = ((right + key) * 0x9E3779B1) & 0x7FFFFFFFFFFF
            mixed = ((mixed ^ (mixed >> 15)) * 0x85EBCA6B) & 0x7FFFFFFFFFFF
            left, right = right, left ^ ((mixed ^ (mixed >> 13)) & mask)
        return (left << half) | right

    found = once(places.long())
    while (outside := found >= size).any():
        found = torch.where(outside, once(found), found)
    return found


def _number(*name: int | str) -> int:
    return int.from_bytes(hashlib.blake2b(repr(name).encode(), digest_size=8).digest(), "little")
