"""The statistics of pairs of clients, from their gradients."""

from collections.abc import Iterable

import torch
from torch import Tensor

from ..problems.data import Batch
from .base import Look
from .sketch import Sketch


def looks(own: list[Tensor], others: Iterable[list[Tensor]], sketch: Sketch) -> tuple[Tensor, ...]:
    """A row of what was seen: distance, norm, noise and sketches, from the owner's parts and each client's: one whole,
    or two halves."""
    mean_own = torch.stack(own).mean(0)
    numbers, halves = [], []
    for parts in others:
        mean = torch.stack(parts).mean(0)
        numbers.append(torch.stack([v.square().sum() for v in (mean - mean_own, mean, (parts[0] - parts[-1]) / 2)]))
        halves.append(sketch(torch.stack(parts)))
    distance, norm, noise = torch.stack(numbers).double().unbind(1)
    return distance, norm, noise, torch.stack(halves).double()


def look_of(rows: Iterable[tuple[Tensor, ...]], batches: dict[int, list[Batch]], count: int, size: int) -> Look:
    """Rows of those asked to the table of all; NaN for the others."""
    asked = torch.tensor(list(batches), dtype=torch.long)
    parts = max((len(parts) for parts in batches.values()), default=2)
    tables = [torch.full((count, count, *more), torch.nan, dtype=torch.float64) for more in ((), (), (), (parts, size))]
    for table, column in zip(tables, zip(*rows, strict=True), strict=False):  # no column where nobody was asked
        table[asked[:, None], asked] = torch.stack(column)
    read = torch.zeros(count, dtype=torch.float64)
    for k, shown in batches.items():
        read[k] = sum(len(inputs) for inputs, _ in shown)
    distance, norm, noise, halves = tables
    return Look(distance, norm, noise, halves, read)
