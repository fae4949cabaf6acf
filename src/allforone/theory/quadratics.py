"""Problems of known constants: least squares on Gaussian streams, R_i(θ) = (θ − θ*_i)ᵀ A_i (θ − θ*_i) + s_i².

The paper writes (θ + ξ_i)ᵀ A_i (θ + ξ_i); ξ_i = −θ*_i.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..problems import Problem
from ..problems.synthetic import LinearStream


class Quadratics(NamedTuple):
    matrices: Tensor  #: [N, d, d], A_i, symmetric and positive definite; the Hessian of R_i is 2 A_i
    optima: Tensor  #: [N, d], θ*_i
    label_noise: Tensor  #: [N], s_i, the standard deviation of the labels' noise

    @property
    def smoothness(self) -> float:
        """β = 2 λ_max"""
        return 2 * float(torch.linalg.eigvalsh(self.matrices).max())

    @property
    def convexity(self) -> float:
        """μ = 2 λ_min"""
        return 2 * float(torch.linalg.eigvalsh(self.matrices).min())

    def _from_optima(self, points: Tensor) -> Tensor:
        return points[..., None, :] - self.optima

    def gradients(self, points: Tensor) -> Tensor:
        """∇R_k(θ) = 2 A_k (θ − θ*_k) of every client at every point: [..., d] → [..., N, d]."""
        return 2 * torch.einsum("kde,...ke->...kd", self.matrices, self._from_optima(points))

    def excess(self, points: Tensor) -> Tensor:
        """R_k(θ) − R_k(θ*_k): [..., d] → [..., N]."""
        away = self._from_optima(points)
        return torch.einsum("...kd,kde,...ke->...k", away, self.matrices, away)

    def variance(self, points: Tensor, batch_size: int) -> Tensor:
        """σ_k²(θ) of a batch's gradient: [..., d] → [..., N].

        With x ~ N(0, A) and δ = θ − θ*, E‖2x⟨x, δ⟩‖² = 4 (tr A · δᵀAδ + 2‖Aδ‖²), so one sample has the variance
        4 (tr A · δᵀAδ + ‖Aδ‖²) + 4 s² tr A. It is convex in θ: over a polytope it is greatest at a corner.
        """
        trace = self.matrices.diagonal(dim1=-2, dim2=-1).sum(-1)
        squared = self.gradients(points).square().sum(-1) / 4
        return 4 * (trace * (self.excess(points) + self.label_noise**2) + squared) / batch_size


def quadratics(problem: Problem) -> Quadratics | None:
    """The quadratics behind a problem, or None where its constants are not known."""
    streams = [client.train for client in problem.clients]
    if not all(isinstance(stream, LinearStream) for stream in streams) or problem.loss is not F.mse_loss:
        return None
    known = [stream for stream in streams if isinstance(stream, LinearStream)]
    shapes = {name: tuple(tensor.shape) for name, tensor in problem.initial_model(0).named_parameters()}
    if shapes != {"weight": (1, len(known[0].optimum))}:  # another model on the same data
        return None
    return Quadratics(
        torch.stack([stream.root.T @ stream.root for stream in known]),
        torch.stack([stream.optimum for stream in known]),
        torch.tensor([stream.noise for stream in known], dtype=torch.float64),
    )
