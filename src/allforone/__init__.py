"""Personal models for many sites that borrow each other's gradients exactly as long as that helps."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .algorithms import Algorithm, AllForOne, BySimilarity, FedAvg, Local, Oracle
    from .api import Trained, train
    from .collaboration import Criterion, CustomCriterion, FreshSamples, binary, continuous
    from .errors import AllForOneError, Diverged, InputError
    from .problems import Client, Metric, Problem, Settings, Task, accuracy, digits, synthetic

__version__ = "0.1.0"

#: Each room and the public names imported from it. Room and name are loaded at first use: `import allforone` is light.
_HOMES = {
    "algorithms": ("Algorithm", "AllForOne", "BySimilarity", "FedAvg", "Local", "Oracle"),
    "api": ("Trained", "train"),
    "collaboration": ("Criterion", "CustomCriterion", "FreshSamples", "binary", "continuous"),
    "errors": ("AllForOneError", "Diverged", "InputError"),
    "problems": ("Client", "Metric", "Problem", "Settings", "Task", "accuracy", "digits", "synthetic"),
    "fleet": (),
    "testing": (),
    "reports": (),
    "runs": (),
    "theory": (),
}

__all__ = [
    "Algorithm",
    "AllForOne",
    "AllForOneError",
    "BySimilarity",
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
    "accuracy",
    "binary",
    "continuous",
    "digits",
    "synthetic",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return import_module(f".{name}", __name__)
    for home, names in _HOMES.items():
        if name in names:
            globals()[name] = getattr(import_module(f".{home}", __name__), name)
            return globals()[name]
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
