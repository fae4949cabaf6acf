"""What is learned. One file per problem."""

from collections.abc import Callable

from .base import Client, Loss, Problem, Settings, accuracy
from .check import check
from .digits import digits
from .synthetic import synthetic

#: name on the command line → function from a seed and options to a problem
PROBLEMS: dict[str, Callable[..., Problem]] = {"synthetic": synthetic, "digits": digits}

__all__ = ["PROBLEMS", "Client", "Loss", "Problem", "Settings", "accuracy", "check", "digits", "synthetic"]
