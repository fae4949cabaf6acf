"""The constants of any problem, estimated: from gradients and Hessians along the paths of clients that train alone.

They are estimates: what was not seen on the way may be worse. `Constants.estimated` says how they came about.
"""

from functools import partial

import torch
from torch import Tensor
from torch.func import grad

from ..errors import InputError, blaming
from ..fleet import Models, Optimizer, Stacked, row, surely
from ..fleet.workers import one_core
from ..problems import Problem
from ..problems.calling import called
from ..problems.data import Batch, draw, generator
from .constants import Constants, Estimated, Seen
from .heterogeneity import share_above
from .spectrum import extremes, hessian_product

#: Batches from which the noise at one point is estimated.
NOISE_BATCHES = 12
#: A point whose excess is a smaller share of ε₀ is too near the least loss seen to tell μ.
LEAST_GAIN = 0.02


class Landscape:
    """The clients' losses as functions of one flat vector of parameters, in evaluation mode, on fixed samples."""

    def __init__(self, fleet: Stacked, samples: int) -> None:
        self.problem, self.module, self.names = fleet.problem, fleet.passes.module.eval(), fleet.trained
        self.frozen = {name: tensor for name, tensor in row(fleet.initial(), 0).items() if name not in self.names}
        self.shapes = {name: tensor.shape for name, tensor in row(fleet.initial(), 0).items() if name in self.names}
        self.seed, self.batch_size = fleet.seed, fleet.batch_size
        self.data = [self.batch(k, client.batch(samples), 0) for k, client in enumerate(self.problem.clients)]

    def batch(self, client: int, size: int, step: int) -> Batch:
        data = self.problem.clients[client].train
        return draw(data, size, seed=self.seed, client=client, step=step, purpose="theory")

    def flat(self, models: Models) -> Tensor:
        """[N, d]"""
        return torch.cat([models[name].flatten(1) for name in self.names], 1).detach()

    def loss(self, batch: Batch, point: Tensor) -> Tensor:
        parts = point.split([shape.numel() for shape in self.shapes.values()])
        model = {name: part.view(shape) for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)}
        return self.problem.loss(called(self.module, batch[0], {**model, **self.frozen}), batch[1])

    def gradient(self, batch: Batch, point: Tensor) -> Tensor:
        slope: Tensor = grad(partial(self.loss, batch))(point)
        return slope.double()


def paths_alone(fleet: Stacked, landscape: Landscape, rounds: int) -> Tensor:
    """[rounds + 1, N, d]: where each client is after each round of training alone, by the problem's own settings."""
    settings, models = fleet.problem.settings, fleet.initial()
    options = dict(settings.optimizer)
    optimizer = Optimizer(partial(getattr(torch.optim, options.pop("name")), **options))
    path = [landscape.flat(models)]
    for number in range(rounds):
        round = fleet.begin(number + 1, range(number * settings.inner, (number + 1) * settings.inner))
        alone = torch.eye(len(fleet.roster), dtype=torch.float64)
        models, optimizer = surely(partial(fleet.descend, models, alone, optimizer, round))
        path.append(landscape.flat(models))
    return torch.stack(path)


def moments(paths: Tensor, points: int, seed: int) -> Tensor:
    """[points, N, d]: at random moments of each client's path, drawn independently, between two rounds as on a line."""
    when = torch.rand(points, generator=generator(seed, "theory")) * (len(paths) - 1)
    before = when.long().clamp(max=len(paths) - 2)
    part = (when - before)[:, None, None].to(paths.dtype)
    return (1 - part) * paths[before] + part * paths[before + 1]


def gradient_noise(gradients: Tensor) -> tuple[float, float]:
    """E‖g − E g‖² from repeated batches' gradients [m, d], and its standard error."""
    squares = (gradients - gradients.mean(0)).square().sum(1) * len(gradients) / (len(gradients) - 1)
    return float(squares.mean()), float(squares.std() / len(squares) ** 0.5)


def estimate(
    problem: Problem,
    seed: int,
    *,
    batch_size: int | None = None,
    rounds: int | None = None,
    points: int = 24,
    samples: int = 512,
) -> Constants:
    """β, μ, σ_k², ε₀ and heterogeneity; each client trains alone for `rounds` to show its path.

    R_k is the loss on up to `samples` of k's training samples; gradients are looked at in `points` random moments of
    each path, curvature at its ends, noise at the start and at all ends.
    """
    if points < 3 or (rounds is not None and rounds < 1):
        raise InputError(f"points {points}, rounds {rounds}: give at least 3 points and 1 round")
    fleet = Stacked(problem, seed=seed, batch_size=batch_size)
    landscape = Landscape(fleet, samples)
    paths = paths_alone(fleet, landscape, rounds or min(problem.settings.rounds, 20))
    landscape.module.eval()
    clients = range(len(problem.clients))
    failed, remedy = "the theory's constants cannot be estimated", "Model and loss must be twice differentiable"
    with blaming(failed, remedy), one_core():
        losses = (
            torch.stack(
                [torch.stack([landscape.loss(landscape.data[i], place[i]) for i in clients]) for place in paths]
            )
            .detach()
            .double()
        )
        excess = losses[0] - losses.amin(0)
        smoothness, least, error = _curvature(landscape, paths)
        seen = _gradients_seen(landscape, moments(paths, points, seed), losses.amin(0))
        noises = [_greatest_noise(landscape, paths, k) for k in clients]
    quotient = torch.where(seen.excess > LEAST_GAIN * excess[:, None], seen.own[:, 0] / (2 * seen.excess), torch.inf)
    convexity = least if least > 0 else float(quotient.min())
    variance = torch.tensor(noises, dtype=torch.float64)
    return Constants(
        smoothness,
        convexity,
        variance.clamp(min=1e-30),
        excess,
        fleet.batch_size,
        Estimated(seen, share_above(points), least > 0, error / smoothness),
    )


def _curvature(landscape: Landscape, paths: Tensor) -> tuple[float, float, float]:
    """The greatest and the least eigenvalue of the clients' Hessians at both ends of their paths, and their error."""
    found = []
    for i, batch in enumerate(landscape.data):
        for end in (paths[0, i], paths[-1, i]):
            start = torch.randn(len(end), generator=generator("lanczos", i), dtype=end.dtype)
            found.append(extremes(hessian_product(partial(landscape.loss, batch), end), start))
    worst = max(one.error for one in found)
    return max(one.greatest + one.error for one in found), min(one.least - one.error for one in found), worst


def _gradients_seen(landscape: Landscape, places: Tensor, least: Tensor) -> Seen:
    """Every client's gradient at every client's own points, and how far above its least loss those are."""
    own, apart, excess = [], [], []
    for i, batch in enumerate(landscape.data):
        at_points = [
            torch.stack([landscape.gradient(other, point) for other in landscape.data]) for point in places[:, i]
        ]
        gradients = torch.stack(at_points, 1)  # [N, P, d]
        own.append(gradients[i].square().sum(1).expand(len(gradients), -1))
        apart.append((gradients - gradients[i]).square().sum(2))
        losses = torch.stack([landscape.loss(batch, point) for point in places[:, i]]).double()
        excess.append((losses - least[i]).clamp(min=0))
    return Seen(torch.stack(own), torch.stack(apart), torch.stack(excess))


def _greatest_noise(landscape: Landscape, paths: Tensor, client: int) -> float:
    """σ_k²: the greatest noise of k's batches at the start and at the end of anyone's path."""
    size = landscape.problem.clients[client].batch(landscape.batch_size)
    batches = [landscape.batch(client, size, 1 + step) for step in range(NOISE_BATCHES)]
    places = [paths[0, 0], *paths[-1]]
    return max(
        gradient_noise(torch.stack([landscape.gradient(batch, place) for batch in batches]))[0] for place in places
    )
