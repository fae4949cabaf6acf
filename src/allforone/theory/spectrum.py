"""The extreme eigenvalues of a Hessian that is known by its products with vectors only, by Lanczos."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import grad, vjp

Loss = Callable[[Tensor], Tensor]  #: a vector of parameters → the loss


class Extremes(NamedTuple):
    least: float
    greatest: float
    error: float  #: each is within this of an eigenvalue; 0 where the whole spectrum was found


def hessian_product(loss: Loss, point: Tensor) -> Callable[[Tensor], Tensor]:
    """v ↦ ∇²R(θ) v, by differentiating the gradient."""
    pull = vjp(grad(loss), point)[1]
    return lambda vector: pull(vector)[0]


def extremes(product: Callable[[Tensor], Tensor], start: Tensor, steps: int = 30) -> Extremes:
    """Lanczos with full reorthogonalisation. The extremes are approached from within the spectrum.

    `start` is any vector of the right size, best a random one.
    """
    basis = [start.double() / torch.linalg.vector_norm(start.double())]
    diagonal, beside = [], []
    for _ in range(min(steps, len(start))):
        vector = product(basis[-1].to(start.dtype)).double()
        diagonal.append(torch.dot(vector, basis[-1]))
        for _ in range(2):  # twice is enough to keep the basis orthogonal to rounding
            known = torch.stack(basis)
            vector = vector - known.T @ (known @ vector)
        beside.append(torch.linalg.vector_norm(vector))
        if beside[-1] <= 1e-10 * max(1e-30, float(torch.stack(diagonal).abs().max())):
            break
        basis.append(vector / beside[-1])
    inner = torch.stack(diagonal).diag()
    for place, value in enumerate(beside[: len(diagonal) - 1]):
        inner[place, place + 1] = inner[place + 1, place] = value
    values, vectors = torch.linalg.eigh(inner)
    error = float(beside[-1] * vectors[-1, [0, -1]].abs().max()) if len(diagonal) < len(start) else 0.0
    return Extremes(float(values[0]), float(values[-1]), error)
