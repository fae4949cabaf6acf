"""The weights α_ik: from similarity and noise to how much client i listens to client k."""

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from .criterion import Criterion


def definition(r: Tensor, criterion: Criterion, variance: Tensor) -> Tensor:
    """α_ik = (φ(r_ik)/σ_k²) / Σ_j ψ(r_ij)/σ_j², the paper's definition; rows do not sum to one, Σ_k α_ik r_ik does.

    `variance` holds σ_k² up to a common factor: [N], or [N, N] where it depends on the model too.
    """
    return (criterion.phi(r) / variance) / (criterion.psi(r) / variance).sum(1, keepdim=True)


def normalised(weights: Tensor) -> Tensor:
    """Rows that sum to one: safe whatever the step size."""
    return weights / weights.sum(1, keepdim=True)


def trusted(weights: Tensor, trust: Tensor, itself: Tensor) -> Tensor:
    """w with Σ_k w_ik g_k = Σ_k α_ik (g_i + f_ik (g_k − g_i)): what is not trusted falls to oneself.

    itself: where a row has its owner.
    """
    kept = torch.where(itself, 0, weights * trust)
    return torch.where(itself, (weights.sum(1) - kept.sum(1))[:, None], kept)


def effective_variance(r: Tensor, criterion: Criterion, variance: Tensor) -> Tensor:
    """σ_eff² of each client, (Σ_k ψ(r_ik)/σ_k²)⁻¹: what is left of the noise with the definition's weights."""
    return 1 / (criterion.psi(r) / variance).sum(1)


def step_scale(weights: Tensor, lr: float, smoothness: float) -> Tensor:
    """η_i/η for the step-size condition η_i = min(η, 1/(β Σ_k α_ik)): [N], at most 1."""
    return (1 / (lr * smoothness * weights.sum(1))).clamp(max=1)


def uniform_within(clusters: Sequence[Hashable]) -> Tensor:
    """The oracle's weights: equal inside the true cluster, none outside."""
    names = list(dict.fromkeys(clusters))
    member = torch.tensor([names.index(cluster) for cluster in clusters])
    return normalised((member[:, None] == member[None, :]).double())
