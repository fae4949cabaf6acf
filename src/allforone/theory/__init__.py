"""The paper's statements, corrected, as functions: who can help whom, how fast, and with which step size."""

from . import bounds, printed
from .constants import Constants, Estimated, Seen, known_constants
from .estimation import estimate
from .heterogeneity import Heterogeneity, least_upper_line, of_quadratics, share_above
from .quadratics import Quadratics, quadratics
from .spectrum import extremes, hessian_product
from .steps import (
    SCHEDULES,
    Constant,
    Decreasing,
    Horizon,
    constants_of,
    decreasing_step,
    horizon_step,
    nonconvex_step,
    scheduler,
)
from .sufficient import (
    guaranteed_similarity,
    largest_weight_sum,
    least_precision,
    sufficient_cluster,
    sufficient_similarity,
    sufficient_variance,
)
from .trajectory import Trajectory, trajectory

__all__ = [
    "SCHEDULES",
    "Constant",
    "Constants",
    "Decreasing",
    "Estimated",
    "Heterogeneity",
    "Horizon",
    "Quadratics",
    "Seen",
    "Trajectory",
    "bounds",
    "constants_of",
    "decreasing_step",
    "estimate",
    "extremes",
    "guaranteed_similarity",
    "hessian_product",
    "horizon_step",
    "known_constants",
    "largest_weight_sum",
    "least_precision",
    "least_upper_line",
    "nonconvex_step",
    "of_quadratics",
    "printed",
    "quadratics",
    "scheduler",
    "share_above",
    "sufficient_cluster",
    "sufficient_similarity",
    "sufficient_variance",
    "trajectory",
]
