"""Who answers with gradients, wherever they are."""

from ..problems import Problem
from .attacks import ATTACKS, Attack, Attacked
from .base import Direction, Evaluation, Fleet, Models, PairStatistics, mean, plus, repeat, restricted, row, stack
from .in_process import InProcess
from .loop import Loop
from .optimizer import Optimizer
from .stacked import Compiled, Stacked

FLEETS: dict[str, type[Loop] | type[Stacked]] = {"stacked": Stacked, "compiled": Compiled, "loop": Loop}

__all__ = [
    "ATTACKS",
    "FLEETS",
    "Attack",
    "Attacked",
    "Compiled",
    "Direction",
    "Evaluation",
    "Fleet",
    "InProcess",
    "Loop",
    "Models",
    "Optimizer",
    "PairStatistics",
    "Problem",
    "Stacked",
    "mean",
    "plus",
    "repeat",
    "restricted",
    "row",
    "stack",
]
