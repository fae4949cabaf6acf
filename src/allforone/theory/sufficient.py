"""Sufficient cluster and variance: with whom a client surely collaborates until it reaches the precision ε.

While R_i(θ_i) − R_i* ≥ ε, ‖∇R_i‖² ≥ 2με (strong convexity or Polyak–Łojasiewicz), and so by assumption 3

    r_ik ≥ s_ik(ε) := (1 − b_ik²/(2με) − c_ik)₊.

Hence lemma 2: the sufficient cluster {k : ψ(s_ik(ε)) > 0} listens to each other, and σ_eff² ≤ (Σ_k ψ(s_ik(ε))/σ_k²)⁻¹.
(The paper's definition has b_ik where its proof has b_ik²; the square is right.)
"""

import torch
from torch import Tensor

from ..collaboration import Criterion, effective_variance
from .heterogeneity import Heterogeneity


def guaranteed_similarity(heterogeneity: Heterogeneity, squared_gradient: Tensor | float) -> Tensor:
    """[N, N], (1 − b_ik²/x − c_ik)₊ ≤ r_ik wherever ‖∇R_i‖² ≥ x; x is a number or [N]. 0 and ∞ give the limits.

    In this form it needs no μ, so it also serves where the loss is not convex.
    """
    b, c = heterogeneity
    level = torch.as_tensor(squared_gradient, dtype=b.dtype).expand(len(b))[:, None]
    lost = torch.where(b == 0, 0, b.square() / level)
    return (1 - lost - c).clamp(0, 1).fill_diagonal_(1)


def sufficient_similarity(heterogeneity: Heterogeneity, convexity: float, epsilon: Tensor | float) -> Tensor:
    """[N, N], s_ik(ε)."""
    return guaranteed_similarity(heterogeneity, 2 * convexity * epsilon)


def sufficient_cluster(
    heterogeneity: Heterogeneity, criterion: Criterion, convexity: float, epsilon: Tensor | float
) -> Tensor:
    """[N, N] of truth values: whether k is in client i's sufficient cluster at the precision ε."""
    return criterion.psi(sufficient_similarity(heterogeneity, convexity, epsilon)) > 0


def sufficient_variance(
    heterogeneity: Heterogeneity, criterion: Criterion, variance: Tensor, convexity: float, epsilon: Tensor | float
) -> Tensor:
    """[N], σ_suf²(ε) = (Σ_k ψ(s_ik(ε))/σ_k²)⁻¹; `variance` holds σ_k², [N], or [N, N] where it depends on the model.

    It falls as ε grows, from (Σ_k ψ((1 − c_ik)₊) 1{b_ik = 0}/σ_k²)⁻¹ at ε = 0 to (Σ_k ψ((1 − c_ik)₊)/σ_k²)⁻¹ at ∞.
    """
    return effective_variance(sufficient_similarity(heterogeneity, convexity, epsilon), criterion, variance)


def least_similarity(criterion: Criterion) -> float:
    """The least x with ψ(x) > 0, to rounding: λ for the binary criterion, 0 for the continuous one."""
    low, high = 0.0, 1.0
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return high
        if float(criterion.psi(torch.tensor(middle, dtype=torch.float64))) > 0:
            high = middle
        else:
            low = middle
        if high < 1e-150:  # ψ underflows
            return 0.0


def least_precision(heterogeneity: Heterogeneity, criterion: Criterion, convexity: float) -> Tensor:
    """[N, N], ε_ik: client i surely listens to k until its excess loss is ε_ik = b_ik²/(2μ(1 − c_ik − x₀)).

    x₀ is the least similarity that counts. 0: always; ∞: the constants promise nothing.
    """
    b, c = heterogeneity
    room = 1 - c - least_similarity(criterion)
    found = torch.where(room > 0, b.square() / (2 * convexity * room), torch.inf)
    return found.masked_fill((b == 0) & (room >= 0), 0).fill_diagonal_(0)


def largest_weight_sum(criterion: Criterion, variance: Tensor) -> Tensor:
    """[N], the largest that Σ_k α_ik can be with the definition's weights: what the step-size condition must allow for.

    Σ_k α_ik = (φ(1) + Σ_{k≠i} w_k φ(r_k)) / (ψ(1) + Σ_{k≠i} w_k ψ(r_k)), w_k = σ_i²/σ_k², is a ratio of forms linear in
    what each r_k adds, so it is largest with all r_k equal. Binary: at most 1/λ. Continuous: (1 + √(Σ_k w_k))/2.
    """
    x = torch.linspace(0, 1, 100_001, dtype=torch.float64)
    x = torch.cat([x, torch.tensor([least_similarity(criterion)], dtype=torch.float64)])
    phi, psi = criterion.phi(x), criterion.psi(x)
    others = (variance[:, None] / variance).sum(1) - 1
    return torch.stack([((phi[-2] + w * phi) / (psi[-2] + w * psi)).max() for w in others])
