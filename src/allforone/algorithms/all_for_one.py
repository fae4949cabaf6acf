"""All-for-one: θ_i ← θ_i − η Σ_k α_ik g_k(θ_i), with weights that follow how similar the clients are now."""

from dataclasses import dataclass, field
from typing import Literal

from ..collaboration import (
    Binary,
    Continuous,
    Criterion,
    Estimator,
    FreshSamples,
    UpdateBatches,
    definition,
    normalised,
    step_scale,
    trusted,
)
from ..errors import InputError
from ..fleet import Fleet, Round
from .base import Info, Memory, State, Weighted

Weighting = Literal["definition", "normalised"]


@dataclass(frozen=True)
class AllForOne(Weighted):
    """estimate r and σ² → φ → α → trust → step.

    Args:
        criterion: φ, how much a client of similarity r may count.
        estimator: of similarity and noise, by default from the batches of the updates; `FreshSamples` is the paper's.
        weighting: the "definition" lets rows of the weights sum to more than one and needs β to bound the step;
            "normalised" rows sum to one. By default the definition, with the paper's estimator and where β is known.

    Example:
        >>> AllForOne().name, AllForOne(Binary(0.2), FreshSamples(64)).name
        ('all-for-one', 'all-for-one-binary')
    """

    criterion: Criterion = field(default_factory=Continuous)
    estimator: Estimator = field(default_factory=UpdateBatches)
    weighting: Weighting | None = None

    def __post_init__(self) -> None:
        if self.weighting not in (None, "definition", "normalised"):
            raise InputError(f"weighting is {self.weighting!r}: must be 'definition' or 'normalised'")
        if not isinstance(self.estimator, Estimator):
            raise InputError(f"estimator is {self.estimator!r}: give afo.UpdateBatches() or afo.FreshSamples()")
        if not isinstance(self.criterion, Criterion):
            raise InputError(f"criterion is {self.criterion!r}: give afo.binary(), afo.continuous(), …")

    @property
    def name(self) -> str:
        kind = type(self.criterion).__name__.lower()
        return f"all-for-one-{kind}" if isinstance(self.estimator, FreshSamples) else "all-for-one"

    @property
    def label(self) -> str:
        kind = type(self.criterion).__name__.lower()
        return f"All-for-one, {kind} (paper)" if isinstance(self.estimator, FreshSamples) else "All-for-one"

    def collaborate(self, state: State, fleet: Fleet, round: Round) -> tuple[Info, Memory]:
        estimate, own = self.estimator(fleet, state.models, state.own, round)
        weights = definition(estimate.similarity, self.criterion, estimate.variance)
        if (self.weighting or default_weighting(self.estimator, fleet.smoothness)) == "normalised":
            weights = normalised(weights)
        if estimate.trust is not None:
            weights = trusted(weights, estimate.trust)
        scale = step_scale(weights, state.optimizer.lr, fleet.smoothness) if fleet.smoothness else None
        noise = estimate.variance / estimate.variance.diagonal()[:, None]
        return Info(weights, estimate.similarity, scale, noise, estimate.trust), own

    def looking(self, round: Round, partners: int) -> int | None:
        return self.estimator.messages(round, partners)


def default_weighting(estimator: Estimator, smoothness: float | None) -> Weighting:
    return "definition" if isinstance(estimator, FreshSamples) and smoothness else "normalised"


def all_for_one(memory: float = 0.9, every: int = 1, weighting: Weighting | None = None) -> AllForOne:
    return AllForOne(Continuous(), UpdateBatches(memory, every), weighting)


def all_for_one_binary(threshold: float = 0.1, samples: int = 512, weighting: Weighting | None = None) -> AllForOne:
    return AllForOne(Binary(threshold), FreshSamples(samples), weighting)


def all_for_one_continuous(samples: int = 512, weighting: Weighting | None = None) -> AllForOne:
    return AllForOne(Continuous(), FreshSamples(samples), weighting)
