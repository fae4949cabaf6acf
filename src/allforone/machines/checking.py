"""Whether what a site says can be used: tensors of the right shape and kind, whose numbers are finite."""

import math
from typing import Any, TypeGuard

import torch
from torch import Tensor

from ..fleet import Models

#: Kinds of numbers that can be computed with; torch has others that it only stores.
FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
#: Samples that one answer can have been made from; so many answers add up to a count that an integer holds.
MOST_SAMPLES = 2**40


def fine_rows(found: Any, like: Models, names: list[str], count: int) -> Tensor:
    """[count], which rows of these stacked tensors can be used; none where one has another shape or kind."""
    fine = torch.ones(count, dtype=torch.bool)
    for name in names:
        tensor: Any = found.get(name) if isinstance(found, dict) else None
        if not is_like(tensor, (count, *like[name].shape[1:]), like[name].dtype):
            return torch.zeros(count, dtype=torch.bool)
        fine &= finite_rows(tensor)
    return fine


def is_like(tensor: Any, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> TypeGuard[Tensor]:
    """Whether it is a tensor of this shape and kind, by default of any floating kind."""
    if not isinstance(tensor, Tensor) or tensor.shape != shape:
        return False
    return tensor.dtype in FLOATING if dtype is None else tensor.dtype == dtype


def finite_rows(tensor: Tensor) -> Tensor:
    return tensor.isfinite().reshape(len(tensor), -1).all(1)


def drawn_by(said: Any) -> list[tuple[str, range, int]]:
    """(purpose, steps, samples of each) as a site tells them; what makes no sense is left out."""
    found = []
    for entry in said if isinstance(said, list) else ():
        if isinstance(entry, list) and len(entry) == 4 and all(type(number) is int for number in entry[1:]):
            purpose, start, stop, size = entry
            if 0 <= start <= stop < MOST_SAMPLES and is_count(size) and is_count((stop - start) * size):
                found.append((str(purpose), range(start, stop), size))
    return found


def is_count(said: Any) -> bool:
    """Whether it can be a number of samples."""
    return type(said) is int and 0 <= said < MOST_SAMPLES


def variances(said: Any, count: int) -> Tensor:
    """[M], of the noise that a site says it has added to its answers; 0 where it says none."""
    if not is_like(said, (count,), torch.float64):
        return torch.zeros(count, dtype=torch.float64)
    return said.nan_to_num(0.0, 0.0, 0.0).clamp(min=0)


def first_noises(said: Any, count: int) -> Tensor:
    """[M], of the first update of a site's walks; ∞, as where it cannot be told, if it says none."""
    if not is_like(said, (count,), torch.float64):
        return torch.full((count,), torch.inf, dtype=torch.float64)
    return torch.where(said >= 0, said, torch.inf)


def is_spent(said: Any) -> bool:
    """Whether it can be an ε."""
    return type(said) is float and math.isfinite(said) and said >= 0
