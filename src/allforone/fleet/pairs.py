"""The statistics of pairs of clients, from what they answer at each other's models."""

from collections.abc import Iterable

import torch
from torch import Tensor

from ..problems.data import Batch
from ..problems.tree import length
from .base import Look
from .devices import double
from .sketch import Sketch


def looks(answers: Iterable[list[Tensor] | None], own: list[Tensor], sketch: Sketch) -> tuple[Tensor, ...]:
    """A row of what was seen: distance, norm, noise and sketches, from each answer and the owner's own; an answer is
    one whole, or two halves. NaN in the place of who did not answer."""
    mean_own = torch.stack(own).mean(0)
    numbers, halves = [], []
    for parts in answers:
        if parts is None:
            numbers.append(mean_own.new_full((3,), torch.nan))
            halves.append(mean_own.new_full((len(own), sketch.size), torch.nan))
            continue
        mean = torch.stack(parts).mean(0)
        numbers.append(torch.stack([v.square().sum() for v in (mean - mean_own, mean, (parts[0] - parts[-1]) / 2)]))
        halves.append(sketch(torch.stack(parts)))
    distance, norm, noise = torch.stack(numbers).cpu().double().unbind(1)
    return distance, norm, noise, torch.stack(halves).cpu().double()


def look_of(rows: Iterable[tuple[Tensor, ...]], batches: dict[int, list[Batch]], ids: Tensor, size: int) -> Look:
    """Rows of those who are there, in the order of `batches`, to the rows of all; NaN for the others."""
    asked = torch.tensor(list(batches), dtype=torch.long)
    parts = max((len(parts) for parts in batches.values()), default=2)
    tables = [torch.full((*ids.shape, *more), torch.nan, dtype=torch.float64) for more in ((), (), (), (parts, size))]
    for table, column in zip(tables, zip(*rows, strict=True), strict=False):  # no column where nobody was asked
        table[asked] = torch.stack(column)
    read = torch.zeros(len(ids), dtype=torch.float64)
    for k, shown in batches.items():
        read[k] = sum(map(length, shown))
    distance, norm, noise, halves = tables
    return Look(ids, distance, norm, noise, halves, read[ids], torch.zeros_like(distance))


def look_at(ways: Tensor, ids: Tensor, itself: Tensor, read: Tensor, added: Tensor, sketch: Sketch) -> Look:
    """The same from vectors, whole or in halves, [R, c, parts, P]; itself: [R, c], where a row has its owner."""
    exact = double(ways)
    mean = exact.mean(2)
    distance, norm, noise = (
        v.square().sum(2).cpu() for v in (mean - mean[itself][:, None], mean, (exact[:, :, 0] - exact[:, :, -1]) / 2)
    )
    return Look(ids, distance, norm, noise, sketch(exact).cpu(), read, added)
