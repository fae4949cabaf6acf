"""Who answers with gradients, wherever they are."""

from ..catalogue import FLEETS
from .attacked import Attacked
from .attacks import ATTACKS, Attack
from .base import (
    Contact,
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
    in_round,
    surely,
)
from .devices import double, find_device
from .in_process import InProcess
from .models import (
    MessageBytes,
    Models,
    by_row,
    combined,
    load_row,
    mean,
    pick,
    plus,
    repeat,
    row,
    shared,
    stack,
    where_rows,
)
from .optimizer import Make, Optimizer, Schedule
from .pairs import look_at
from .participation import Participation, Without
from .privacy import Privacy
from .privates import Privates, private_names
from .proximal import Proximal
from .sketch import Sketch, sketch
from .spliced import Spliced
from .stacked import Compiled, Stacked

__all__ = [
    "ATTACKS",
    "FLEETS",
    "Attack",
    "Attacked",
    "Compiled",
    "Contact",
    "Direction",
    "Evaluation",
    "Fleet",
    "InProcess",
    "Ledger",
    "Look",
    "Make",
    "Member",
    "MessageBytes",
    "Models",
    "NewLosses",
    "Optimizer",
    "PairStatistics",
    "Participation",
    "Privacy",
    "Privates",
    "Proximal",
    "Roster",
    "Round",
    "Schedule",
    "Sketch",
    "Spliced",
    "Stacked",
    "Walks",
    "Without",
    "among_present",
    "by_row",
    "combined",
    "double",
    "everybody",
    "find_device",
    "in_round",
    "load_row",
    "look_at",
    "mean",
    "pick",
    "plus",
    "private_names",
    "repeat",
    "row",
    "shared",
    "sketch",
    "stack",
    "surely",
    "where_rows",
]
