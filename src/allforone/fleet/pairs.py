"""The statistics of pairs of clients, from their gradients."""

from collections.abc import Iterable

import torch
from torch import Tensor

from .base import PairStatistics


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


def pair_statistics(
    rows: Iterable[tuple[Tensor, Tensor, Tensor]], asked: list[int], count: int, halves: bool
) -> PairStatistics:
    """Rows of those asked to the table of all; NaN for the others. Noise is known from halves only."""
    tables = [torch.full((count, count), torch.nan, dtype=torch.float64) for _ in PairStatistics._fields]
    for table, column in zip(tables, zip(*rows, strict=True), strict=False):  # no column where nobody was asked
        table[torch.tensor(asked)[:, None], torch.tensor(asked)] = torch.stack(column)
    return PairStatistics(tables[0], tables[1], tables[2] if halves else None)
