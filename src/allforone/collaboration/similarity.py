"""How similar two clients are now, r_ik, estimated from gradients."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import InputError
from ..fleet import Fleet, Models, Round

#: What an estimator keeps from round to round: name → [N, …], row i about client i; empty at first.
Memory = dict[str, Tensor]


class Estimate(NamedTuple):
    similarity: Tensor  #: [N, N], r_ik
    variance: Tensor  #: [N, N], σ_k² at θ_i, up to a factor common to a row


class Estimator(ABC):
    """What is known of similarity and noise at the models of now."""

    @abstractmethod
    def __call__(self, fleet: Fleet, models: Models, memory: Memory, round: Round) -> tuple[Estimate, Memory]:
        """The estimate, and what to remember."""

    def messages(self, round: Round, partners: int) -> int | None:
        """Models and gradients that it sends in a round, beyond those of the updates, whose `partners` ordered pairs of
        clients have each other's models already; by default none, as of one that asks nobody. None: not known."""
        return 0


def similarity(distance: Tensor, norm: Tensor) -> Tensor:
    """r_ik = (1 − ‖∇R_k(θ_i) − ∇R_i(θ_i)‖² / ‖∇R_i(θ_i)‖²)₊, with r_ii = 1.

    `distance` is [N, N]; `norm` is [N], each client's own ‖∇R_i(θ_i)‖². A client at a stationary point (norm 0) is
    similar to nobody but itself.
    """
    ratio = distance / torch.where(norm > 0, norm, 1)[:, None]
    r = torch.where(norm[:, None] > 0, (1 - ratio).clamp(0, 1), 0)
    return r.fill_diagonal_(1)


def cosine(vectors: Tensor) -> Tensor:
    """[N, N], ⟨v_i, v_k⟩ / ‖v_i‖ ‖v_k‖; 0 where one of them is 0."""
    units: Tensor = vectors / vectors.norm(dim=1, keepdim=True).clamp(min=1e-300)
    return (units @ units.T).cpu()


@dataclass(frozen=True)
class FreshSamples(Estimator):
    """r̂_ik = (1 − Z_ik / Z_i)₊ from `samples` fresh samples per client, apart from those of the update: the paper's.

    Noise is in both Z: near the optimum r̂ is mostly noise. And the samples are not free; the fleet counts them.

    Args:
        samples: per client and round.

    Example:
        >>> import allforone as afo
        >>> afo.BySimilarity(afo.binary(0.2), afo.FreshSamples(64)).name
        'all-for-one-binary'
    """

    samples: int = 512

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise InputError(f"samples is {self.samples}: the estimator needs at least 1 per client")

    def __call__(self, fleet: Fleet, models: Models, memory: Memory, round: Round) -> tuple[Estimate, Memory]:
        statistics = fleet.compare(models, round, self.samples)
        r = similarity(statistics.distance.nan_to_num(torch.inf), statistics.norm.diagonal().nan_to_num(0))
        return Estimate(r, (1 / fleet.roster.sizes).expand_as(r)), memory

    def messages(self, round: Round, partners: int) -> int:
        """A gradient of every pair, and the models that updates do not send."""
        every = ordered_pairs(round)
        return every + max(0, every - partners)


def ordered_pairs(round: Round) -> int:
    """How many pairs (i, k) of different clients are there."""
    present = int(round.present.sum())
    return present * (present - 1)
