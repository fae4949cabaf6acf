"""The criterion φ: how much a client of similarity r may count. ψ(r) = r φ(r)."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError, blaming


class Criterion(ABC):
    """φ: [0, 1] → [0, 1], non-decreasing, φ(0) = 0, φ(x) ≤ x, φ(1) > 0; checked when one is made."""

    @abstractmethod
    def phi(self, x: Tensor) -> Tensor:
        """Of every number by itself."""

    def psi(self, x: Tensor) -> Tensor:
        return x * self.phi(x)

    def __post_init__(self) -> None:
        x = torch.linspace(0, 1, 1001, dtype=torch.float64)
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


@dataclass(frozen=True)
class Binary(Criterion):
    """φ(x) = λ·1{x ≥ λ}: everyone similar enough counts the same.

    Example:
        >>> Binary(0.2) == Binary(0.2), Binary(0.2)
        (True, Binary(threshold=0.2))
    """

    threshold: float = 0.1  #: λ

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise InputError(f"threshold λ is {self.threshold}: must be in (0, 1]")

    def phi(self, x: Tensor) -> Tensor:
        return self.threshold * (x >= self.threshold).to(x.dtype)


@dataclass(frozen=True)
class Continuous(Criterion):
    """φ(x) = x: the weights that minimise the bound of the descent lemma."""

    def phi(self, x: Tensor) -> Tensor:
        return x


@dataclass(frozen=True)
class CustomCriterion(Criterion):
    """Any function that keeps the rules.

    Example:
        >>> CustomCriterion(lambda x: x**2).psi(torch.tensor(0.5))
        tensor(0.1250)
    """

    function: Callable[[Tensor], Tensor]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InputError(f"the criterion φ is {self.function!r}: give a function of a tensor, as lambda x: x**2")
        super().__post_init__()

    def phi(self, x: Tensor) -> Tensor:
        return self.function(x)


binary, continuous = Binary, Continuous
