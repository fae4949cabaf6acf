"""The least of quadratic forms over the simplex: many small programs at once."""

import torch
from torch import Tensor

#: Block pivots that may fail to lower the number of wrong signs, before one at a time is taken.
PATIENCE = 3
#: Pivots of all programs together; each needs a few, so that this is never reached but by numbers that are none.
MOST_PIVOTS = 60


def least_quadratic(forms: Tensor, allowed: Tensor) -> Tensor:
    """argmin αᵀHα over α ≥ 0, Σ_k α_k = 1, α = 0 where not allowed; H [M, N, N] positive definite, allowed [M, N].

    The optimum is a multiple of the α with Hα − 1 ≥ 0 ⟂ α ≥ 0, which block principal pivoting finds: guess who is
    positive, solve for them, and exchange those whose sign is wrong.
    """
    count, size = allowed.shape
    root = forms.diagonal(dim1=1, dim2=2).sqrt()
    scaled = forms / root[:, :, None] / root[:, None]  # of diagonal 1, which keeps the solutions accurate
    ones = 1 / root
    ones = ones / ones.amax(1, keepdim=True)
    identity = torch.eye(size, dtype=forms.dtype)
    positive, found, rows = allowed.clone(), torch.zeros_like(ones), torch.arange(count)
    fewest, patience = torch.full((count,), size + 1), torch.full((count,), PATIENCE)
    for _ in range(MOST_PIVOTS):
        inside, form, right = positive[rows], scaled[rows], ones[rows]
        system = torch.where(inside[:, :, None] & inside[:, None], form, identity) + 1e-12 * identity
        solution = torch.linalg.solve(system, torch.where(inside, right, 0))
        found[rows] = solution
        slack = torch.einsum("mij,mj->mi", form, solution) - right
        wrong = allowed[rows] & torch.where(inside, solution < -1e-10, slack < -1e-8)
        mistakes = wrong.sum(1)
        if not mistakes.any():
            break
        better = mistakes < fewest[rows]
        fewest[rows] = torch.where(better, mistakes, fewest[rows])
        patience[rows] = torch.where(better, PATIENCE, patience[rows] - 1)
        last = torch.arange(size) == size - 1 - wrong.flip(1).int().argmax(1, keepdim=True)
        positive[rows] = inside ^ torch.where((patience[rows] > 0)[:, None], wrong, wrong & last)
        rows = rows[mistakes > 0]
    weights = torch.where(allowed, found.clamp(min=0) / root, 0)
    return weights / weights.sum(1, keepdim=True)


def nearest(points: Tensor, allowed: Tensor) -> Tensor:
    """argmin ‖α − point‖² over α ≥ 0, Σ_k α_k = 1, α = 0 where not allowed; points and allowed [M, N].

    α = (point − τ)₊, where τ leaves a sum of one: of the largest r entries, as many as stay above it. A row of which
    nothing is allowed is 0.
    """
    low = points.masked_fill(~allowed, -torch.inf)
    ordered = low.sort(1, descending=True).values
    excess, rank = ordered.cumsum(1) - 1, torch.arange(1, points.shape[1] + 1)
    count = (ordered * rank > excess).sum(1, keepdim=True).clamp(min=1)
    above = (points - excess.gather(1, count - 1) / count).clamp(min=0)
    return torch.where(allowed, above, 0)
