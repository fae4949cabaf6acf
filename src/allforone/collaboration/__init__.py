"""The idea of the paper: who listens to whom, and how much."""

from .criterion import Binary, Continuous, Criterion, CustomCriterion, binary, continuous
from .similarity import Estimate, Estimator, FreshSamples, Memory, similarity
from .weights import definition, effective_variance, normalised, step_scale, trusted, uniform_within

__all__ = [
    "Binary",
    "Continuous",
    "Criterion",
    "CustomCriterion",
    "Estimate",
    "Estimator",
    "FreshSamples",
    "Memory",
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
