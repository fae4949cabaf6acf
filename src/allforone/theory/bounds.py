"""What the paper proves of All-for-one, θ_i ← θ_i − η Σ_k α_ik g_k(θ_i), as functions of plain numbers or tensors.

β is the smoothness, μ the constant of strong convexity or of Polyak–Łojasiewicz, ε₀ the excess loss at the start,
`variance` a bound σ² on the effective variance (`sufficient_variance`, or σ_i² for a client alone), and every step
obeys η ≤ 1/(β Σ_k α_ik).
"""

import math

import torch
from torch import Tensor

from .steps import Number, decreasing_offset, double, horizon_step


def descent(
    excess: Number, step: Number, squared_gradient: Number, progress: Number, noise: Number, smoothness: float
) -> Tensor:
    """Lemma 1: E[ε_t | θ_{t−1}] ≤ ε_{t−1} − (η/2) ‖∇R_i‖² Σ_k α_ik r_ik + (η²β/2) Σ_k α_ik² σ_k², all at θ_{t−1}.

    progress: Σ_k α_ik r_ik, with r_ik = 1 − ‖∇R_k − ∇R_i‖²/‖∇R_i‖² as it is, even below 0; noise: Σ_k α_ik² σ_k².
    """
    step = double(step)
    return double(excess) - step / 2 * squared_gradient * progress + step**2 * smoothness / 2 * noise


def along(
    start: Number, steps: Tensor, variances: Tensor, smoothness: float, convexity: float, progress: Tensor | None = None
) -> Tensor:
    """Theorem 1 along a trajectory: B_0 = ε₀, B_t = (1 − η_t μ ρ_t) B_{t−1} + (η_t² β/2) σ_t²; [T, ...] → [T+1, ...].

    The definition's weights with the true similarity have ρ = Σ_k α_ik r_ik = 1. For others give ρ as `progress` and
    Σ_k α_ik² σ_k² as `variances`; where ρ < 0 the step goes uphill, bounded by ‖∇R_i‖² ≤ 2βε.
    σ_t² depends on θ_{t−1}: it is E[B_T] that bounds E[ε_T], and B_T of one run is one draw of it.
    """
    progress = torch.ones_like(variances) if progress is None else progress
    rate = torch.where(progress >= 0, convexity * progress, smoothness * progress)
    bound = [double(start).expand(variances.shape[1:])]
    for step, slope, variance in zip(steps, rate, variances, strict=True):
        bound.append((1 - step * slope) * bound[-1] + step**2 * smoothness / 2 * variance)
    return torch.stack(bound)


def constant(
    start: Number, updates: Number, step: Number, smoothness: float, convexity: float, variance: Number
) -> Tensor:
    """Theorem 2, constant step: E[ε_T] ≤ (1 − ημ)^T ε₀ + (ηβ/2μ) σ²."""
    step = double(step)
    return (1 - step * convexity) ** double(updates) * start + step * smoothness / (2 * convexity) * variance


def horizon(
    start: Number, updates: Number, smoothness: float, convexity: float, variance: Number, weight_sum: Number = 1.0
) -> Tensor:
    """Theorem 2, horizon step: E[ε_T] ≤ βσ²/(2μ²T) (1 + ln(2Tμ²ε₀/(βσ²))), where the step that gives it is allowed.

    Where it is longer than 1/(β Σα), or not above 0, the step is cut there and e^(−ημT) ε₀ + ηβσ²/(2μ) holds.
    """
    step = horizon_step(start, updates, smoothness, convexity, variance, weight_sum)
    return (-step * convexity * double(updates)).exp() * start + step * smoothness / (2 * convexity) * variance


def decreasing(
    start: Number,
    updates: Number,
    smoothness: float,
    convexity: float,
    variance: Number,
    factor: float = 2.0,
    weight_sum: Number = 1.0,
) -> Tensor:
    """Theorem 2, η_t = C/(μ(γ+t)): E[ε_T] ≤ max(βσ²C²/(2μ²(C−1)), (γ+1)ε₀)/(γ+T+1).

    γ = Cβ Σα/μ − 1, so that the first step is 1/(β Σα). By induction: with τ = γ+t and ε_{t−1} ≤ ν/τ,
    (1 − C/τ)ν/τ + (C−1)ν/τ² = ν(τ−1)/τ² ≤ ν/(τ+1).
    """
    offset = decreasing_offset(smoothness, convexity, factor, weight_sum)
    return _numerator(start, smoothness, convexity, variance, factor, offset) / (offset + double(updates) + 1)


def _numerator(
    start: Number, smoothness: float, convexity: float, variance: Number, factor: float, offset: Tensor
) -> Tensor:
    noise = smoothness * double(variance) * factor**2 / (2 * convexity**2 * (factor - 1))
    return torch.maximum(noise, (offset + 1) * start)


def nonconvex(start: Number, updates: Number, step: Number, smoothness: float, variance: Number) -> Tensor:
    """Theorem 3, constant step: (1/T) Σ_t E‖∇R_i(θ_{t−1})‖² ≤ 2ε₀/(Tη) + ηβσ².

    With η = √(2ε₀/(Tβσ²)) it is 2√(2ε₀βσ²/T). Where the step-size condition cuts η to 1/(β Σα) it is at most
    2√(2ε₀βσ²/T) + 2ε₀β Σα/T; the paper leaves the last term out.
    """
    return 2 * double(start) / (double(updates) * step) + double(step) * smoothness * variance


def updates_needed(
    epsilon: Number,
    start: Number,
    smoothness: float,
    convexity: float,
    variance: Number,
    factor: float = 2.0,
    weight_sum: Number = 1.0,
) -> Tensor:
    """Corollary 1: T_ε, after how many updates with a decreasing step the bound is at most ε (whole numbers).

    T_ε = max(βσ²C²/(2μ²(C−1)), (γ+1)ε₀)/ε − γ − 1. A batch each: T_ε · batch_size samples of every client.
    """
    offset = decreasing_offset(smoothness, convexity, factor, weight_sum)
    numerator = _numerator(start, smoothness, convexity, variance, factor, offset)
    return (numerator / double(epsilon) - offset - 1).clamp(min=0).ceil()


def fixed_point(step: float, smoothness: float, convexity: float, variance: Number) -> Tensor:
    """Where a constant step saturates, ηβσ²/(2μ): the limit of the bound for T → ∞."""
    return constant(0.0, math.inf, step, smoothness, convexity, variance)
