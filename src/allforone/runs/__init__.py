"""The training loop, the run folder, and the comparison of many runs."""

from .comparison import Job, Progress, compare, plan, seeds
from .config import (
    PAPER_SEEDS,
    Choice,
    RunConfig,
    build_optimizer,
    load_problem,
    pairs,
    parse,
    read_yaml,
    resolve_schedule,
)
from .export import export_client, export_module
from .folder import Folder, refuse_used
from .history import History, Round, verdicts
from .summary import Comparison, FinishedRun, last_round, log10_excess, read_comparison, read_run, summarise
from .training import Result, Run, prepare, resume, run_config, train

__all__ = [
    "PAPER_SEEDS",
    "Choice",
    "Comparison",
    "FinishedRun",
    "Folder",
    "History",
    "Job",
    "Progress",
    "Result",
    "Round",
    "Run",
    "RunConfig",
    "build_optimizer",
    "compare",
    "export_client",
    "export_module",
    "last_round",
    "load_problem",
    "log10_excess",
    "pairs",
    "parse",
    "plan",
    "prepare",
    "read_comparison",
    "read_run",
    "read_yaml",
    "refuse_used",
    "resolve_schedule",
    "resume",
    "run_config",
    "seeds",
    "summarise",
    "train",
    "verdicts",
]
