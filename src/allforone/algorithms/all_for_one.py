"""All-for-one: θ_i ← θ_i − η Σ_k α_ik g_k(θ_i), with weights that follow how similar the clients are now."""

from dataclasses import dataclass, field
from typing import Literal

from ..collaboration import Criterion, Estimator, Paper, binary, definition, normalised, step_scale
from ..errors import InputError
from ..fleet import Fleet
from .base import Info, State, Weighted

Weighting = Literal["definition", "normalised"]


@dataclass(frozen=True)
class AllForOne(Weighted):
    """estimate r → φ → α → step.

    The `definition` of the weights lets rows sum to more than one and needs β to bound the step; `normalised` rows sum
    to one. Unless told, the definition is used where β is known.
    """

    criterion: Criterion = field(default_factory=binary)
    estimator: Estimator = field(default_factory=Paper)
    weighting: Weighting | None = None

    def __post_init__(self) -> None:
        if self.weighting not in (None, "definition", "normalised"):
            raise InputError(f"weighting is {self.weighting!r}: must be 'definition' or 'normalised'")
        if not callable(self.estimator):
            raise InputError(f"estimator is {self.estimator!r}: give one such as afo.Paper(samples=512)")
        if not isinstance(self.criterion, Criterion):
            raise InputError(f"criterion is {self.criterion!r}: give afo.binary(), afo.continuous(), afo.Criterion(φ)")

    def collaborate(self, state: State, fleet: Fleet, step: int) -> Info:
        r = self.estimator(fleet, state.models, step)
        weights = definition(r, self.criterion, variance=1 / fleet.sizes)
        if (self.weighting or default_weighting(fleet.smoothness)) == "normalised":
            weights = normalised(weights)
        scale = step_scale(weights, state.optimizer.lr, fleet.smoothness) if fleet.smoothness else None
        return Info(weights, r, scale)


def default_weighting(smoothness: float | None) -> Weighting:
    return "definition" if smoothness else "normalised"
