"""The training loop, the run folder, and the comparison of many runs."""

from .comparison import Job, Progress, Watch, compare, parse_seeds, plan
from .config import PAPER_SEEDS, PYTHON, Choice, RunConfig, pairs, parse, read_yaml
from .export import export_client, export_module
from .folder import Folder, refuse_used
from .history import History, Record, carried, verdicts
from .parts import build_optimizer, load_algorithm, load_problem
from .run import Given, Run, execute, prepare, resume
from .summary import Comparison, FinishedRun, last_round, log10_excess, read_comparison, read_run, summarise
from .training import OnRound, Result, train

__all__ = [
    "PAPER_SEEDS",
    "PYTHON",
    "Choice",
    "Comparison",
    "FinishedRun",
    "Folder",
    "Given",
    "History",
    "Job",
    "OnRound",
    "Progress",
    "Record",
    "Result",
    "Run",
    "RunConfig",
    "Watch",
    "build_optimizer",
    "carried",
    "compare",
    "execute",
    "export_client",
    "export_module",
    "last_round",
    "load_algorithm",
    "load_problem",
    "log10_excess",
    "pairs",
    "parse",
    "parse_seeds",
    "plan",
    "prepare",
    "read_comparison",
    "read_run",
    "read_yaml",
    "refuse_used",
    "resume",
    "summarise",
    "train",
    "verdicts",
]
