"""How far apart two clients are: b_ik and c_ik with ‖∇R_i − ∇R_k‖² ≤ b_ik² + c_ik ‖∇R_i‖² at every θ (assumption 3)."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

#: Two matrices, or two optima, that differ by less, relatively, are the same but for rounding.
SAME = 1e-12


class Heterogeneity(NamedTuple):
    """Row i is about client i's model."""

    b: Tensor  #: [N, N], b_ik: what of the difference stays when ∇R_i vanishes
    c: Tensor  #: [N, N], c_ik: what of it shrinks with ∇R_i


def of_quadratics(matrices: Tensor, optima: Tensor) -> Heterogeneity:
    """Property 1, for R_i(θ) = (θ − θ*_i)ᵀ A_i (θ − θ*_i): matrices [N, d, d], optima [N, d].

    ∇R_i − ∇R_k = (I − A_k A_i⁻¹) ∇R_i + 2 A_k (θ*_k − θ*_i), and ‖u + v‖² ≤ 2‖u‖² + 2‖v‖²:

        b_ik = 2√2 ‖A_k(θ*_i − θ*_k)‖,   c_ik = 2 ‖I − A_k A_i⁻¹‖².

    Where one of the two terms is nothing, so is its constant, and the other loses its factor 2.
    """
    turn, shift = turned(matrices), shifted(matrices, optima)
    length = torch.linalg.vector_norm(torch.einsum("kde,ie->ikd", matrices, optima), dim=-1)
    alike, together = turn <= SAME, shift <= SAME * length
    b = torch.where(together, 0, 2 * shift) * torch.where(alike, 1, math.sqrt(2))
    return Heterogeneity(b, torch.where(alike, 0, turn).square() * torch.where(together, 1, 2))


def turned(matrices: Tensor) -> Tensor:
    """‖I − A_k A_i⁻¹‖, [N, N]; of the transpose, which has the same norm."""
    ratio = torch.linalg.solve(matrices[:, None], matrices[None])
    norm: Tensor = torch.linalg.matrix_norm(torch.eye(matrices.shape[-1], dtype=matrices.dtype) - ratio, 2)
    return norm


def shifted(matrices: Tensor, optima: Tensor) -> Tensor:
    """‖A_k(θ*_i − θ*_k)‖, [N, N]."""
    apart = optima[:, None] - optima[None]
    norm: Tensor = torch.linalg.vector_norm(torch.einsum("kde,ike->ikd", matrices, apart), dim=-1)
    return norm


def least_upper_line(own: Tensor, apart: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """The line b² + c·x over all points (x, y) with b² ≥ 0, c ≥ 0 that is lowest at x = `at`: (b², c).

    own, apart: [..., P], the points' x = ‖∇R_i‖² and y = ‖∇R_i − ∇R_k‖²; at: [...]. Its height there is that of the
    points' upper hull, which also spans the origin (b² ≥ 0) and runs flat to the right (c ≥ 0): the highest chord from
    a point left of `at` to one on its right. At x = 2με it gives the largest sufficient cluster the points allow.
    """
    origin = torch.zeros_like(own[..., :1])
    left_x, left_y = torch.cat([origin, own], -1)[..., :, None], torch.cat([origin, apart], -1)[..., :, None]
    right_x, right_y = own[..., None, :], apart[..., None, :]
    middle = at[..., None, None]
    run = torch.where(right_x > left_x, right_x - left_x, 1)
    slope = torch.where(right_x > middle, (right_y - left_y) / run, 0).clamp(min=0)
    height = torch.where(left_x <= middle, left_y + slope * (middle - left_x), -torch.inf)
    best, place = height.flatten(-2).max(-1)
    c = slope.flatten(-2).gather(-1, place[..., None])[..., 0]
    return (best - c * at).clamp(min=0), c


def share_above(points: int, confidence: float = 0.95) -> float:
    """What share of all points may lie above the least upper line of `points` of them, at this confidence.

    The line is the solution of a linear programme in two variables, so the share exceeds v with probability at most
    (1 − v)^P + P v (1 − v)^(P−1) (Campi and Garatti 2008), if the points are drawn independently, alike.
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        share = (low + high) / 2
        if (1 - share) ** points + points * share * (1 - share) ** (points - 1) > 1 - confidence:
            low = share
        else:
            high = share
    return high
