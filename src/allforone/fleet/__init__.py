"""Who answers with gradients, wherever they are."""

from ..catalogue import FLEETS
from .attacked import Attacked
from .attacks import ATTACKS, Attack
from .base import (
    Direction,
    Evaluation,
    Fleet,
    Ledger,
    Look,
    Member,
    NewLosses,
    PairStatistics,
    Roster,
    Round,
    Walks,
    among_present,
    everybody,
    surely,
)
from .in_process import InProcess, Participation
from .loop import Loop
from .models import MessageBytes, Models, by_row, mean, pick, plus, repeat, row, stack, where_rows
from .optimizer import Make, Optimizer, Schedule
from .pairs import look_at
from .sketch import Sketch, sketch
from .stacked import Compiled, Stacked

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
    "Ledger",
    "Look",
    "Loop",
    "Make",
    "Member",
    "MessageBytes",
    "Models",
    "NewLosses",
    "Optimizer",
    "PairStatistics",
    "Participation",
    "Roster",
    "Round",
    "Schedule",
    "Sketch",
    "Stacked",
    "Walks",
    "among_present",
    "by_row",
    "everybody",
    "look_at",
    "mean",
    "pick",
    "plus",
    "repeat",
    "row",
    "sketch",
    "stack",
    "surely",
    "where_rows",
]
