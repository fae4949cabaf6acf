"""The paper's figures and tables: what is run for each, what it printed, and ours beside it."""

from .costs import cost_tables
from .experiments import EXPERIMENTS, REAL, Experiment, Way, compute, contenders, settings_table
from .figures import draw_real, draw_synthetic
from .scores import Scores, by_authors, scores
from .tables import by_problem, side_by_side

__all__ = [
    "EXPERIMENTS",
    "REAL",
    "Experiment",
    "Scores",
    "Way",
    "by_authors",
    "by_problem",
    "compute",
    "contenders",
    "cost_tables",
    "draw_real",
    "draw_synthetic",
    "scores",
    "settings_table",
    "side_by_side",
]
