"""The idea of the paper: who listens to whom, and how much."""

from .criterion import Criterion, binary, continuous
from .similarity import Estimator, Paper, similarity
from .weights import definition, effective_variance, normalised, step_scale, uniform_within

__all__ = [
    "Criterion", "Estimator", "Paper", "binary", "continuous", "definition", "effective_variance", "normalised",
    "similarity", "step_scale", "uniform_within",
]
