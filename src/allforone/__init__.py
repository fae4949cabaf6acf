"""Personal models for many sites that borrow each other's gradients exactly as long as that helps."""

from .algorithms import Algorithm, AllForOne, FedAvg, Local, Oracle
from .api import Trained, train
from .collaboration import Criterion, Online, Paper, binary, continuous
from .errors import AllForOneError, Diverged, InputError
from .problems import Client, Problem, Settings, accuracy, digits, synthetic

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "AllForOne",
    "AllForOneError",
    "Client",
    "Criterion",
    "Diverged",
    "FedAvg",
    "InputError",
    "Local",
    "Online",
    "Oracle",
    "Paper",
    "Problem",
    "Settings",
    "Trained",
    "accuracy",
    "binary",
    "continuous",
    "digits",
    "synthetic",
    "train",
]
