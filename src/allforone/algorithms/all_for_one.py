"""All-for-one: θ_i ← θ_i − η Σ_k α_ik g_k(θ_i), with weights that follow how similar the clients are now."""

from dataclasses import dataclass, field
from typing import Any, Literal

from ..collaboration import Criterion, Estimator, Online, Paper, continuous, definition, normalised, step_scale, trusted
from ..errors import InputError
from ..fleet import Fleet
from .base import Info, State, Weighted

Weighting = Literal["definition", "normalised"]


@dataclass(frozen=True)
class AllForOne(Weighted):
    """estimate r and σ² → φ → α → trust → step.

    The `definition` of the weights lets rows sum to more than one and needs β to bound the step; `normalised` rows sum
    to one. Unless told, the definition is used with the paper's estimator where β is known.
    """

    criterion: Criterion = field(default_factory=continuous)
    estimator: Estimator = field(default_factory=Online)
    weighting: Weighting | None = None

    def __post_init__(self) -> None:
        if self.weighting not in (None, "definition", "normalised"):
            raise InputError(f"weighting is {self.weighting!r}: must be 'definition' or 'normalised'")
        if not callable(self.estimator):
            raise InputError(f"estimator is {self.estimator!r}: give one such as afo.Online() or afo.Paper()")
        if not isinstance(self.criterion, Criterion):
            raise InputError(f"criterion is {self.criterion!r}: give afo.binary(), afo.continuous(), afo.Criterion(φ)")

    def collaborate(self, state: State, fleet: Fleet, step: int) -> tuple[Info, dict[str, Any]]:
        estimate, memory = self.estimator(fleet, state.models, state.memory, step)
        weights = definition(estimate.similarity, self.criterion, estimate.variance)
        if (self.weighting or default_weighting(self.estimator, fleet.smoothness)) == "normalised":
            weights = normalised(weights)
        if estimate.trust is not None:
            weights = trusted(weights, estimate.trust)
        scale = step_scale(weights, state.optimizer.lr, fleet.smoothness) if fleet.smoothness else None
        noise = estimate.variance / estimate.variance.diagonal()[:, None]
        return Info(weights, estimate.similarity, scale, noise, estimate.trust), memory


def default_weighting(estimator: Estimator, smoothness: float | None) -> Weighting:
    return "definition" if isinstance(estimator, Paper) and smoothness else "normalised"
