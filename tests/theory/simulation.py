"""Quadratics at random, and All-for-one on them with true similarity and Gaussian noise, many repetitions at once."""

import torch

from allforone.collaboration import Criterion, effective_variance
from allforone.theory import Quadratics


def random_quadratics(seed, clients=6, dimension=3, spread=0.3, turn=0.15):
    """Clients whose optima lie about `spread` apart, and whose matrices differ by about `turn`."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    root = torch.eye(dimension, dtype=torch.float64) + 0.4 * normal(dimension, dimension)
    roots = root + turn * normal(clients, dimension, dimension)
    matrices = roots.transpose(1, 2) @ roots + 0.3 * torch.eye(dimension, dtype=torch.float64)
    optima = normal(dimension) + spread * normal(clients, dimension)
    return Quadratics(matrices, optima, torch.zeros(clients, dtype=torch.float64))


def true_similarity(known, points, client):
    """[M, N], r_ik at points [M, d] of the model of `client`, and ‖∇R_i‖² [M]."""
    gradients = known.gradients(points)
    own = gradients[:, client]
    norm = own.square().sum(1)
    r = (1 - (gradients - own[:, None]).square().sum(2) / norm[:, None]).clamp(0, 1)
    r[:, client] = 1
    return r, norm


def simulate(known, criterion: Criterion, variance, steps, *, start, client=0, repetitions=400, seed=0):
    """Excess losses [T+1, M] and effective variances [T, M] of one client."""
    random = torch.Generator().manual_seed(seed)
    points = start.expand(repetitions, -1).clone()
    scale = (variance / len(start)).sqrt()
    excess, effective = [known.excess(points)[:, client]], []
    for step in steps:
        r, _ = true_similarity(known, points, client)
        weights = (criterion.phi(r) / variance) / (criterion.psi(r) / variance).sum(1, keepdim=True)
        assert (step * known.smoothness * weights.sum(1) <= 1 + 1e-9).all()  # the step-size condition
        noise = torch.randn(repetitions, *known.optima.shape, generator=random, dtype=torch.float64)
        gradients = known.gradients(points) + scale[:, None] * noise
        points = points - step * (weights[..., None] * gradients).sum(1)
        excess.append(known.excess(points)[:, client])
        effective.append(effective_variance(r, criterion, variance))
    return torch.stack(excess), torch.stack(effective)
