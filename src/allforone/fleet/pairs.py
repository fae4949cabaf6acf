"""The statistics of pairs of clients, from their gradients."""

from collections.abc import Iterable

import torch
from torch import Tensor

from ..problems.data import Batch
from .base import Look, PairStatistics
from .sketch import Sketch


def statistics(own: list[Tensor], others: Iterable[list[Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    """A row of the pair statistics, from the gradients of the model's owner and of each client; whole or in halves."""
    mean_own = torch.stack(own).mean(0)
    rows = []
    for parts in others:
        mean = torch.stack(parts).mean(0)
        noise = (parts[0] - parts[-1]).square().sum() / 4
        rows.append(torch.stack([(mean - mean_own).square().sum(), mean.square().sum(), noise]))
    distance, norm, noise = torch.stack(rows).double().unbind(1)
    return distance, norm, noise


def looks(own: list[Tensor], others: Iterable[list[Tensor]], sketch: Sketch) -> tuple[Tensor, ...]:
    """A row of what was seen: distance, norm, noise and sketched halves, from the owner's halves and each client's."""
    mean_own = (own[0] + own[1]) / 2
    numbers, halves = [], []
    for a, b in others:
        mean = (a + b) / 2
        numbers.append(torch.stack([v.square().sum() for v in (mean - mean_own, mean, (a - b) / 2)]))
        halves.append(sketch(torch.stack([a, b])))
    distance, norm, noise = torch.stack(numbers).double().unbind(1)
    return distance, norm, noise, torch.stack(halves).double()


def look_of(rows: Iterable[tuple[Tensor, ...]], batches: dict[int, list[Batch]], count: int, size: int) -> Look:
    """Rows of those asked to the table of all; NaN for the others."""
    asked = torch.tensor(list(batches), dtype=torch.long)
    tables = [torch.full((count, count, *more), torch.nan, dtype=torch.float64) for more in ((), (), (), (2, size))]
    for table, column in zip(tables, zip(*rows, strict=True), strict=False):  # no column where nobody was asked
        table[asked[:, None], asked] = torch.stack(column)
    read = torch.zeros(count, dtype=torch.float64)
    for k, parts in batches.items():
        read[k] = sum(len(inputs) for inputs, _ in parts)
    distance, norm, noise, halves = tables
    return Look(distance, norm, noise, halves, read)


def pair_statistics(
    rows: Iterable[tuple[Tensor, Tensor, Tensor]], asked: list[int], count: int, halves: bool
) -> PairStatistics:
    """Rows of those asked to the table of all; NaN for the others. Noise is known from halves only."""
    tables = [torch.full((count, count), torch.nan, dtype=torch.float64) for _ in PairStatistics._fields]
    for table, column in zip(tables, zip(*rows, strict=True), strict=False):  # no column where nobody was asked
        table[torch.tensor(asked)[:, None], torch.tensor(asked)] = torch.stack(column)
    return PairStatistics(tables[0], tables[1], tables[2] if halves else None)
