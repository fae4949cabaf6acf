"""All that the bounds ask of a problem: β, μ, σ_k², ε₀ and how far apart the clients are; known, or estimated."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..collaboration import Criterion
from ..problems import Problem
from .heterogeneity import Heterogeneity, least_upper_line, of_quadratics
from .quadratics import Quadratics, quadratics
from .sufficient import least_precision, least_similarity


class Seen(NamedTuple):
    """Gradients at points of each client's path: what heterogeneity is estimated from."""

    own: Tensor  #: [N, N, P], ‖∇R_i‖² at client i's points, the same for every k
    apart: Tensor  #: [N, N, P], ‖∇R_i − ∇R_k‖²
    excess: Tensor  #: [N, P], R_i above the least seen

    @property
    def similarity(self) -> Tensor:
        """[N, N, P], r_ik"""
        return (1 - self.apart / self.own.clamp(min=1e-300)).clamp(0, 1)

    def heterogeneity(self, squared_gradient: float) -> Heterogeneity:
        """The least upper lines at this ‖∇R_i‖²; where no gradient as small was seen nothing is known, and c is ∞."""
        least = self.own.amin(-1)
        b_squared, c = least_upper_line(self.own, self.apart, least.clamp(min=squared_gradient))
        return Heterogeneity(b_squared.sqrt(), torch.where(least > squared_gradient, torch.inf, c).fill_diagonal_(0))

    def least_gradient(self, criterion: Criterion) -> Tensor:
        """[N, N], the least ‖∇R_i‖² seen at which an upper line promises that i listens to k; ∞ if there is none.

        A line's height over x, divided by x, falls with x: where it promises, it does so at all larger gradients.
        """
        found = torch.full(self.own.shape[:2], torch.inf, dtype=self.own.dtype)
        for at in self.own.unbind(-1):
            b_squared, c = least_upper_line(self.own, self.apart, at)
            promised = 1 - b_squared / at - c > least_similarity(criterion)
            found = torch.where(promised, torch.minimum(found, at), found)
        return found

    def least_excess(self, criterion: Criterion) -> Tensor:
        """[N, N], the least excess loss down to which i listened to k at all points of its path; ∞ if never.

        No promise, but what happened: it needs neither the line nor μ, which make promises cautious.
        """
        order = self.excess.argsort(dim=-1, descending=True)[:, None].expand_as(self.apart)
        listened = (criterion.psi(self.similarity) > 0).gather(-1, order).long().cumprod(-1).bool()
        excess = self.excess[:, None].expand_as(self.apart).gather(-1, order)
        return torch.where(listened, excess, torch.inf).amin(-1)

    def effective_variance(self, criterion: Criterion, variance: Tensor, epsilon: float) -> Tensor:
        """[N], the greatest σ_eff² at points of i's path with an excess loss of at least ε; σ_i² if there are none."""
        noise = 1 / (criterion.psi(self.similarity) / variance[:, None]).sum(1)
        greatest = torch.where(self.excess >= epsilon, noise, 0).amax(-1)
        return torch.where(greatest > 0, greatest, variance)


class Estimated(NamedTuple):
    """How constants that are estimates came about."""

    seen: Seen
    share_above: float  #: with 95 % confidence, at most this share of a path's points breaks b_ik² + c_ik ‖∇R_i‖²
    convex: bool  #: whether every Hessian seen was positive definite; else μ is the least ‖∇R_i‖²/(2(R_i − least R_i))
    error: float  #: of the Hessians' extreme eigenvalues, relative to the greatest


class Constants(NamedTuple):
    smoothness: float  #: β, of the least smooth client
    convexity: float  #: μ, of the least convex client
    variance: Tensor  #: [N], σ_k²: the noise of a batch's gradient, the greatest where a run passes
    excess: Tensor  #: [N], ε₀ of each client
    batch_size: int
    basis: Heterogeneity | Estimated  #: how far apart the clients are, or the estimates of it

    @property
    def estimated(self) -> Estimated | None:
        """None where the constants are known."""
        return self.basis if isinstance(self.basis, Estimated) else None

    def heterogeneity(self, epsilon: float) -> Heterogeneity:
        """b_ik and c_ik; where they are estimates, those that promise most at the precision ε."""
        if isinstance(self.basis, Heterogeneity):
            return self.basis
        return self.basis.seen.heterogeneity(2 * self.convexity * epsilon)

    def least_precision(self, criterion: Criterion) -> Tensor:
        """[N, N], down to which excess loss client i surely listens to k; ∞ where nothing is promised."""
        if isinstance(self.basis, Heterogeneity):
            return least_precision(self.basis, criterion, self.convexity)
        return (self.basis.seen.least_gradient(criterion) / (2 * self.convexity)).fill_diagonal_(0)

    def for_schedule(self) -> dict[str, float]:
        """What step sizes need, so that they serve every client: the largest noise and distance."""
        return {
            "smoothness": self.smoothness,
            "convexity": self.convexity,
            "variance": float(self.variance.max()),
            "excess": float(self.excess.max()),
        }


def of_known(known: Quadratics, start: Tensor, batch_size: int) -> Constants:
    """Exact, for models that start at `start` [d] and stay in the hull of it and all optima.

    There the noise, which is convex in θ, is greatest at a corner.
    """
    corners = torch.cat([start[None], known.optima])
    return Constants(
        known.smoothness,
        known.convexity,
        known.variance(corners, batch_size).amax(0),
        known.excess(start),
        batch_size,
        of_quadratics(known.matrices, known.optima),
    )


def known_constants(problem: Problem, seed: int, batch_size: int | None = None) -> Constants | None:
    """The constants of a problem of known quadratics from its initial model on; None for any other."""
    known = quadratics(problem)
    if known is None:
        return None
    (start,) = problem.initial_model(seed).parameters()
    return of_known(known, start.detach()[0].double(), batch_size or problem.settings.batch_size)
