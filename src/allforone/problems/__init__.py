"""What is learned. One file per problem."""

from collections.abc import Callable

from .base import Client, Loss, Problem, Settings, Task, hold_out
from .check import check
from .cifar10 import cifar10
from .digits import digits
from .heart_disease import heart_disease
from .ixi import ixi
from .metrics import Metric, accuracy
from .mnist import mnist
from .synthetic import synthetic

#: name on the command line → function from a seed and options to a problem
PROBLEMS: dict[str, Callable[..., Problem]] = {
    "synthetic": synthetic,
    "digits": digits,
    "mnist": mnist,
    "cifar10": cifar10,
    "heart-disease": heart_disease,
    "ixi": ixi,
}

__all__ = [
    "PROBLEMS",
    "Client",
    "Loss",
    "Metric",
    "Problem",
    "Settings",
    "Task",
    "accuracy",
    "check",
    "cifar10",
    "digits",
    "heart_disease",
    "hold_out",
    "ixi",
    "mnist",
    "synthetic",
]
