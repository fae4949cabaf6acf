"""What is learned. One file per problem."""

from ..catalogue import PROBLEMS
from .base import Loss, Precision, Problem, Settings, Task, hold_out, with_settings
from .check import check
from .cifar10 import cifar10
from .client import Client, unheld
from .digits import digits
from .heart_disease import heart_disease
from .ixi import ixi
from .metrics import Metric, accuracy
from .mnist import mnist
from .synthetic import synthetic

__all__ = [
    "PROBLEMS",
    "Client",
    "Loss",
    "Metric",
    "Precision",
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
    "unheld",
    "with_settings",
]
