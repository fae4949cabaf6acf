"""Personal models for many sites that borrow each other's gradients exactly as long as that helps."""

from .algorithms import Algorithm, AllForOne, FedAvg, Local, Oracle
from .api import Trained, train
from .collaboration import Criterion, CustomCriterion, FreshSamples, UpdateBatches, binary, continuous
from .errors import AllForOneError, Diverged, InputError
from .problems import Client, Metric, Problem, Settings, Task, accuracy, digits, synthetic

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "AllForOne",
    "AllForOneError",
    "Client",
    "Criterion",
    "CustomCriterion",
    "Diverged",
    "FedAvg",
    "FreshSamples",
    "InputError",
    "Local",
    "Metric",
    "Oracle",
    "Problem",
    "Settings",
    "Task",
    "Trained",
    "UpdateBatches",
    "accuracy",
    "binary",
    "continuous",
    "digits",
    "synthetic",
    "train",
]
