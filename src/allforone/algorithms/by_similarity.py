"""All-for-one as the paper has it: θ_i ← θ_i − η Σ_k α_ik g_k(θ_i), with weights that follow similarity."""

from dataclasses import dataclass, field
from typing import Literal

from ..collaboration import Binary, Continuous, Criterion, Estimator, FreshSamples, definition, normalised, step_scale
from ..errors import InputError
from ..fleet import Fleet, Round
from .base import Info, Memory, State, Weighted

Weighting = Literal["definition", "normalised"]


@dataclass(frozen=True)
class BySimilarity(Weighted):
    """estimate r → φ → α → step.

    Args:
        criterion: φ, how much a client of similarity r may count.
        estimator: of similarity, by default from fresh samples, as in the paper.
        weighting: the "definition" lets rows of the weights sum to more than one and needs β to bound the step;
            "normalised" rows sum to one. By default the definition where β is known.

    Example:
        >>> BySimilarity(Binary(0.2), FreshSamples(64)).name
        'all-for-one-binary'
    """

    criterion: Criterion = field(default_factory=Binary)
    estimator: Estimator = field(default_factory=FreshSamples)
    weighting: Weighting | None = None

    def __post_init__(self) -> None:
        if self.weighting not in (None, "definition", "normalised"):
            raise InputError(f"weighting is {self.weighting!r}: must be 'definition' or 'normalised'")
        if not isinstance(self.estimator, Estimator):
            raise InputError(f"estimator is {self.estimator!r}: give afo.FreshSamples(), or an Estimator of your own")
        if not isinstance(self.criterion, Criterion):
            raise InputError(f"criterion is {self.criterion!r}: give afo.binary(), afo.continuous(), …")

    @property
    def name(self) -> str:
        return f"all-for-one-{type(self.criterion).__name__.lower()}"

    @property
    def label(self) -> str:
        return f"All-for-one, {type(self.criterion).__name__.lower()} (paper)"

    def collaborate(self, state: State, fleet: Fleet, round: Round) -> tuple[Info, Memory]:
        estimate, own = self.estimator(fleet, state.models, state.own, round)
        weights = definition(estimate.similarity, self.criterion, estimate.variance)
        if (self.weighting or default_weighting(fleet.smoothness)) == "normalised":
            weights = normalised(weights)
        scale = step_scale(weights, state.optimizer.lr, fleet.smoothness) if fleet.smoothness else None
        return Info(weights, estimate.similarity, scale), own

    def looking(self, round: Round, own: Memory, partners: int) -> int | None:
        return self.estimator.messages(round, partners)


def default_weighting(smoothness: float | None) -> Weighting:
    return "definition" if smoothness else "normalised"


def all_for_one_binary(threshold: float = 0.1, samples: int = 512, weighting: Weighting | None = None) -> BySimilarity:
    return BySimilarity(Binary(threshold), FreshSamples(samples), weighting)


def all_for_one_continuous(samples: int = 512, weighting: Weighting | None = None) -> BySimilarity:
    return BySimilarity(Continuous(), FreshSamples(samples), weighting)
