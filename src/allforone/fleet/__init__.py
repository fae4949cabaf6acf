"""Who answers with gradients, wherever they are."""

from ..problems import Problem
from .base import Direction, Evaluation, Fleet, Models, PairStatistics, mean, plus, repeat, row, stack
from .in_process import InProcess
from .loop import Loop
from .optimizer import Optimizer
from .stacked import Stacked

FLEETS: dict[str, type[Loop] | type[Stacked]] = {"stacked": Stacked, "loop": Loop}

__all__ = [
    "FLEETS", "Direction", "Evaluation", "Fleet", "InProcess", "Loop", "Models", "Optimizer", "PairStatistics",
    "Problem", "Stacked", "mean", "plus", "repeat", "row", "stack",
]
