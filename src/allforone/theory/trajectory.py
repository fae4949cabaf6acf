"""Theorem 1 next to what happened: bound and excess loss along a run on quadratics of known constants."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..algorithms import Algorithm, AllForOne, BySimilarity, Guarded, Local, Oracle, advance
from ..collaboration import Continuous, effective_variance
from ..errors import InputError
from ..fleet import Fleet, InProcess, Optimizer
from ..machines.loop import Loop
from .bounds import along
from .heterogeneity import of_quadratics
from .quadratics import quadratics
from .sufficient import sufficient_variance


class Trajectory(NamedTuple):
    """Of every update t = 1…T and client; the bound and the excess loss also at t = 0."""

    excess: Tensor  #: [T+1, N], R_i(θ_i) − R_i*
    bound: Tensor  #: [T+1, N], theorem 1, with ρ = Σ_k α_ik r_ik (1 if weights are the definition's and r is true)
    sharper: Tensor  #: [T+1, N], the same with ρ = (2⟨∇R_i, G⟩ − ηβ‖G‖²)/‖∇R_i‖², G = Σ_k α_ik ∇R_k
    remaining: Tensor  #: [T, N], Σ_k α_ik² σ_k²/p², p = ⟨∇R_i, G⟩/‖∇R_i‖²: noise at equal progress; ∞ if it went uphill
    effective: Tensor  #: [T, N], σ_eff², what the criterion makes of the true similarity
    alone: Tensor  #: [T, N], σ_i², the noise without collaboration
    sufficient: Tensor  #: [T, N], σ_suf² at the excess loss of that moment


def trajectory(fleet: Fleet, algorithm: Algorithm, optimizer: Optimizer, rounds: int, inner: int = 1) -> Trajectory:
    """Run it again, and at every update work out the true gradients, noise and similarity.

    Lemma 1 bounds the step's bias client by client. What precedes that in its proof, by smoothness alone,
    E[ε_t] ≤ ε_{t−1} − η⟨∇R_i, G⟩ + (η²β/2)(‖G‖² + Σ_k α_ik² σ_k²), lets the partners' errors cancel: it is sharper
    where similarity is estimated and some partners are false.
    """
    if not isinstance(fleet, InProcess | Loop):
        raise InputError("clients that lie do not send gradients: the bound says nothing of a run with an attack")
    known = quadratics(fleet.problem)
    if known is None:
        raise InputError(
            f"{fleet.problem.name}: its constants are not known, so there is no exact bound to draw; "
            "that needs least squares on Gaussian streams, as `synthetic` is"
        )
    if isinstance(algorithm, Guarded):
        raise InputError("a guarded run gives a client one of two models: run it without --guard to see its bound")
    if not isinstance(algorithm, AllForOne | BySimilarity | Local | Oracle):
        raise InputError(
            f"{type(algorithm).__name__}: the bound is about θ_i ← θ_i − η Σ_k α_ik g_k(θ_i), that is "
            "all-for-one, oracle and local"
        )
    _refuse_other_optimizers(optimizer)
    criterion = algorithm.criterion if isinstance(algorithm, BySimilarity) else Continuous()
    heterogeneity = of_quadratics(known.matrices, known.optima)
    state = algorithm.init(fleet.initial(), optimizer)
    excess, steps, progress, direct, noise, remaining = [], [], [], [], [], []
    effective, alone, sufficient = [], [], []
    for number in range(rounds):
        models, step = state.models, state.optimizer.lr
        round = fleet.begin(number + 1, range(number * inner, (number + 1) * inner))
        state, info = advance(algorithm, state, fleet, round)
        scale = torch.ones(len(info.weights), dtype=torch.float64) if info.scale is None else info.scale
        for update in round.steps:
            points = models["weight"][:, 0]
            gradients, variance = known.gradients(points), known.variance(points, fleet.batch_size)
            own = gradients.diagonal().T
            norm = own.square().sum(1)
            similarity = 1 - (gradients - own[:, None]).square().sum(2) / norm.clamp(min=1e-300)[:, None]
            now = known.excess(points).diagonal()
            excess.append(now)
            steps.append(step * scale)
            progress.append((info.weights * similarity).sum(1))
            mixed = torch.einsum("ik,ikd->id", info.weights, gradients)
            ahead, length = ((part * mixed).sum(1) / norm.clamp(min=1e-300) for part in (own, mixed))
            direct.append(2 * ahead - steps[-1] * known.smoothness * length)
            noise.append((info.weights.square() * variance).sum(1))
            remaining.append(torch.where(ahead > 0, noise[-1] / ahead.square(), torch.inf))
            effective.append(effective_variance(similarity.clamp(0, 1), criterion, variance))
            alone.append(variance.diagonal())
            sufficient.append(sufficient_variance(heterogeneity, criterion, variance, known.convexity, now))
            if update + 1 < round.steps.stop:  # the models within a round are not kept: plain SGD again
                mix = scale[:, None] * info.weights
                slopes = fleet.gradients(models, mix, round, update, fleet.roster.numbers)["weight"]
                models = {"weight": models["weight"] - step * slopes}
    excess.append(known.excess(state.models["weight"][:, 0]).diagonal())
    noises, shares = torch.stack(noise), torch.stack(progress)
    bound, sharper = (
        along(excess[0], torch.stack(steps), noises, known.smoothness, known.convexity, rate)
        for rate in (shares, torch.stack(direct))
    )
    return Trajectory(torch.stack(excess), bound, sharper, *map(torch.stack, (remaining, effective, alone, sufficient)))


def _refuse_other_optimizers(optimizer: Optimizer) -> None:
    probe = optimizer.make([torch.zeros(1)])
    settings = probe.param_groups[0]
    if not isinstance(probe, torch.optim.SGD) or settings["momentum"] or settings["weight_decay"]:
        raise InputError(
            f"{type(probe).__name__} with these settings: the bound is about plain SGD, without momentum "
            "and weight decay"
        )
