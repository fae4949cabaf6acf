"""The idea of the paper: who listens to whom, and how much."""

from .criterion import Criterion, binary, continuous
from .online import Online
from .similarity import Estimate, Estimator, Paper, similarity
from .weights import definition, effective_variance, normalised, step_scale, trusted, uniform_within

__all__ = [
    "Criterion",
    "Estimate",
    "Estimator",
    "Online",
    "Paper",
    "binary",
    "continuous",
    "definition",
    "effective_variance",
    "normalised",
    "similarity",
    "step_scale",
    "trusted",
    "uniform_within",
]
