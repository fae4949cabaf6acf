"""The paper's statements as printed, where they differ from ours: for figures and tests that show the difference.

Nothing else in the package uses them. docs/theory.md has the counter-examples.
"""

import math

import torch
from torch import Tensor

from ..collaboration import Criterion
from .heterogeneity import Heterogeneity, shifted, turned
from .steps import Number, double


def of_quadratics(matrices: Tensor, optima: Tensor) -> Heterogeneity:
    """Property 1: b_ik = √2 ‖A_k(ξ_i − ξ_k)‖, which misses the 2 of ∇R = 2A(θ + ξ)."""
    return Heterogeneity(math.sqrt(2) * shifted(matrices, optima), 2 * turned(matrices).square())


def sufficient_cluster(heterogeneity: Heterogeneity, criterion: Criterion, convexity: float, epsilon: float) -> Tensor:
    """Definition 2: {k : ψ((1 − b_ik/(2με) − c_ik)₊) > 0}, with b_ik where the proof has b_ik²."""
    b, c = heterogeneity
    return criterion.psi((1 - b / (2 * convexity * epsilon) - c).clamp(0, 1).fill_diagonal_(1)) > 0


def horizon(start: Number, updates: Number, smoothness: float, convexity: float, variance: Number) -> Tensor:
    """Theorem 2, horizon step: the bound's logarithm misses β."""
    inside = 2 * double(updates) * convexity**2 * start / variance
    return smoothness * double(variance) / (2 * convexity**2 * double(updates)) * (inside.log() + 1)


def decreasing_step(number: Number, convexity: float, factor: float = 2.0) -> Tensor:
    """Theorem 2, decreasing step: C/(μt), which is above 1/β at t = 1."""
    return factor / (convexity * double(number))


def decreasing(
    start: Number, updates: Number, smoothness: float, convexity: float, variance: Number, factor: float = 2.0
) -> Tensor:
    """Theorem 2, decreasing step: max(βσ²C²/(2μ²(C−1)), ε₀)/T."""
    noise = smoothness * double(variance) * factor**2 / (2 * convexity**2 * (factor - 1))
    return torch.maximum(noise, double(start)) / updates


def nonconvex(start: Number, updates: Number, smoothness: float, variance: Number) -> Tensor:
    """Theorem 3: 2√(2ε₀βσ²/T), also where the step is cut to 1/β."""
    return 2 * (2 * double(start) * smoothness * variance / double(updates)).sqrt()


def updates_needed(
    epsilon: Number, smoothness: float, convexity: float, variance: Number, factor: float = 2.0
) -> Tensor:
    """Corollary 1: βσ²C²/(2μ²(C−1)ε), which forgets the start."""
    return smoothness * double(variance) * factor**2 / (2 * convexity**2 * (factor - 1)) / epsilon
