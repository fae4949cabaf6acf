"""The paper's synthetic problem: least squares on endless streams, with clusters of clients that share an optimum.

Client i sees x ~ N(0, H_i) and y = ⟨x, θ*_i⟩ + noise, with H_i = P_iᵀ Diag(spectrum) P_i, P_i a random rotation, and
θ*_i = θ*^(i mod clusters) + ξ_i, ξ_i ~ N(0, spread² I). Then R_i(θ) = (θ − θ*_i)ᵀ H_i (θ − θ*_i) + noise².
"""

from collections.abc import Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError, short
from .base import Problem, Settings
from .client import Client
from .data import Batch

MOST_DIMENSIONS, MOST_CLIENTS = 4096, 100_000


class LinearStream:
    """An endless stream of (x, y) for one client, and its expected loss in closed form."""

    def __init__(self, optimum: Tensor, root: Tensor, noise: float) -> None:
        self.optimum, self.root, self.noise = optimum, root, noise
        self.floor = noise**2

    def draw(self, size: int, generator: torch.Generator) -> Batch:
        x = torch.randn(size, len(self.optimum), generator=generator, dtype=torch.float64) @ self.root
        y = x @ self.optimum[:, None]
        if self.noise:
            y = y + self.noise * torch.randn(size, 1, generator=generator, dtype=torch.float64)
        return x, y

    def excess(self, model: Mapping[str, Tensor]) -> Tensor:
        """R(θ) − R(θ*), computed from the difference θ − θ*, so that it is right far below rounding of R itself."""
        return (self.root @ (model["weight"][0] - self.optimum)).square().sum()


def synthetic(
    seed: int = 127,
    dimension: int = 2,
    clients: int = 20,
    clusters: int = 2,
    spectrum: list[float] | None = None,
    noise: float = 0.0,
    spread: float = 0.0,
) -> Problem:
    """The synthetic problem of the paper.

    Args:
        seed: decides the optima and the rotations.
        dimension: d.
        clients: N.
        clusters: how many different optima there are.
        spectrum: the eigenvalues of every H_i, by default all 1, as published.
        noise: the standard deviation of the labels' noise.
        spread: v, how far the clients of one cluster lie apart.

    Example:
        >>> import allforone as afo
        >>> afo.synthetic(clients=6).clusters
        [0, 1, 0, 1, 0, 1]
    """
    if dimension < 1 or clients < 1 or not 1 <= clusters <= clients:
        raise InputError(
            f"dimension {dimension}, clients {clients}, clusters {clusters}: "
            "each must be at least 1, and there cannot be more clusters than clients"
        )
    if dimension > MOST_DIMENSIONS or clients > MOST_CLIENTS:
        raise InputError(
            f"dimension {short(dimension)}, clients {short(clients)}: at most {MOST_DIMENSIONS} and {MOST_CLIENTS}, "
            "for each client has a matrix of its own in memory"
        )
    if noise < 0 or spread < 0:
        raise InputError(f"noise {noise}, spread {spread}: must not be negative")
    eigenvalues = torch.tensor(spectrum or [1.0] * dimension, dtype=torch.float64)
    if len(eigenvalues) != dimension or (eigenvalues <= 0).any():
        raise InputError(f"spectrum has {len(eigenvalues)} values: give {dimension}, all above 0")
    random = torch.Generator().manual_seed(seed)
    normal = partial(torch.randn, generator=random, dtype=torch.float64)
    optima = 20 * torch.rand(clusters, dimension, generator=random, dtype=torch.float64) - 10

    def client(i: int) -> Client:
        rotation = torch.linalg.qr(normal(dimension, dimension)).Q
        root = rotation.T @ eigenvalues.sqrt().diag() @ rotation  # the symmetric root of H_i
        optimum = optima[i % clusters] + spread * normal(dimension)
        stream = LinearStream(optimum, root, noise)
        return Client(stream, stream, cluster=i % clusters)

    smoothness = 2 * float(eigenvalues.max())
    slow = dimension > 2  # the gradients' noise grows with the dimension, so the paper halves the step
    return Problem(
        clients=[client(i) for i in range(clients)],
        model=partial(linear, dimension),
        loss=F.mse_loss,
        settings=Settings(
            rounds=200 if slow else 40,
            batch_size=2,
            estimation=2,  # one minibatch
            optimizer={"name": "SGD", "lr": 1 / ((4 if slow else 2) * smoothness)},
        ),
        smoothness=smoothness,
        name="synthetic",
    )


def linear(dimension: int) -> nn.Module:
    """x ↦ ⟨θ, x⟩ in float64, starting at θ = 0."""
    model = nn.Linear(dimension, 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    return model
