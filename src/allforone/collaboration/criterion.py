"""The criterion φ: how much a client of similarity r may count. ψ(r) = r φ(r)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError, blaming


@dataclass(frozen=True)
class Criterion:
    """φ: [0, 1] → [0, 1], non-decreasing, φ(0) = 0, φ(x) ≤ x, φ(1) > 0. Any function that keeps these rules will do."""

    phi: Callable[[Tensor], Tensor]

    def __post_init__(self) -> None:
        x = torch.linspace(0, 1, 1001, dtype=torch.float64)
        if not callable(self.phi):
            raise InputError(f"the criterion φ is {self.phi!r}: give a function of a tensor, such as lambda x: x**2")
        with blaming("the criterion φ fails", "It must map a tensor of numbers in [0, 1], each by itself"):
            y = self.phi(x)
        if not isinstance(y, Tensor) or y.shape != x.shape:
            raise InputError("the criterion φ must map a tensor to a tensor of the same shape")

        def refuse(broken: Tensor, rule: str) -> None:
            if broken.any():
                at = int(broken.nonzero()[0])
                raise InputError(f"the criterion φ must {rule}, but φ({x[at]:.3f}) = {y[at]:.4g}")

        refuse(~y.isfinite() | (y < 0), "be finite and not negative")
        refuse((y != 0) & (x == 0), "be 0 at 0")
        refuse(y > x * (1 + 1e-12), "not exceed its argument, φ(x) ≤ x")
        refuse(torch.diff(y, prepend=y[:1]) < 0, "not decrease")
        refuse((y <= 0) & (x == 1), "be above 0 at 1, or a client could not even listen to itself")

    def psi(self, x: Tensor) -> Tensor:
        return x * self.phi(x)


def binary(threshold: float = 0.1) -> Criterion:
    """φ(x) = λ·1{x ≥ λ}: everyone similar enough counts the same."""
    if not 0 < threshold <= 1:
        raise InputError(f"threshold λ is {threshold}: must be in (0, 1]")
    return Criterion(lambda x: threshold * (x >= threshold).to(x.dtype))


def continuous() -> Criterion:
    """φ(x) = x: the weights that minimise the bound of the descent lemma."""
    return Criterion(lambda x: x)
