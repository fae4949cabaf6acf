"""The training loop, the run folder, and the comparison of many runs."""

from .callbacks import Beginning, Callback, EarlyStopping
from .callbacks import listed as listed_callbacks
from .comparison import Entry, Job, compare, parse_seeds, plan, plan_entries
from .config import PAPER_SEEDS, PYTHON, Choice, RunConfig, pairs, parse
from .export import export_client, export_module
from .folder import Folder, refuse_begun, refuse_used
from .history import History, Record, carried, verdicts
from .kept import read_result, write_result
from .names import find_client
from .parts import build_optimizer, load_algorithm, load_client, load_problem, load_task, needs_data
from .plain_yaml import read as read_yaml
from .processes import Progress, Watch
from .run import Given, Run, execute, prepare, resume
from .summary import Comparison, FinishedRun, last_round, log10_excess, read_comparison, read_run, summarise
from .training import OnRound, Result, Start, train

__all__ = [
    "PAPER_SEEDS",
    "PYTHON",
    "Beginning",
    "Callback",
    "Choice",
    "Comparison",
    "EarlyStopping",
    "Entry",
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
    "Start",
    "Watch",
    "build_optimizer",
    "carried",
    "compare",
    "execute",
    "export_client",
    "export_module",
    "find_client",
    "last_round",
    "listed_callbacks",
    "load_algorithm",
    "load_client",
    "load_problem",
    "load_task",
    "log10_excess",
    "needs_data",
    "pairs",
    "parse",
    "parse_seeds",
    "plan",
    "plan_entries",
    "prepare",
    "read_comparison",
    "read_result",
    "read_run",
    "read_yaml",
    "refuse_begun",
    "refuse_used",
    "resume",
    "summarise",
    "train",
    "verdicts",
    "write_result",
]
