"""Personal models for many sites that borrow each other's gradients exactly as long as that helps."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .algorithms import (
        CFL,
        Algorithm,
        AllForOne,
        Apfl,
        BySimilarity,
        CoBo,
        Ditto,
        FedALA,
        FedAMP,
        FedAvg,
        FedFomo,
        Ifca,
        Local,
        Oracle,
        PFedGraph,
        PFedMe,
        WgaBc,
    )
    from .api import load, train
    from .collaboration import Criterion, CustomCriterion, FreshSamples, binary, continuous
    from .errors import AllForOneError, Diverged, InputError
    from .estimator import AllForOneClassifier, AllForOneRegressor
    from .fleet import Privacy
    from .loggers import MLflow, WandB
    from .problems import Client, Metric, Problem, Settings, Task, accuracy, digits, synthetic
    from .results import Compared, Trained, compare
    from .runs import Callback, EarlyStopping

__version__ = "0.1.0"

#: Each room and the public names imported from it. Room and name are loaded at first use: `import allforone` is light.
_HOMES = {
    "algorithms": (
        *(
            "Algorithm",
            "AllForOne",
            "Apfl",
            "BySimilarity",
            "CFL",
            "CoBo",
            "Ditto",
            "FedALA",
            "FedAMP",
            "FedAvg",
            "FedFomo",
            "Ifca",
            "Local",
            "Oracle",
            "PFedGraph",
            "PFedMe",
            "WgaBc",
        ),
    ),
    "api": ("load", "train"),
    "estimator": ("AllForOneClassifier", "AllForOneRegressor"),
    "results": ("Compared", "Trained", "compare"),
    "collaboration": ("Criterion", "CustomCriterion", "FreshSamples", "binary", "continuous"),
    "errors": ("AllForOneError", "Diverged", "InputError"),
    "problems": ("Client", "Metric", "Problem", "Settings", "Task", "accuracy", "digits", "synthetic"),
    "loggers": ("MLflow", "WandB"),
    "fleet": ("Privacy",),
    "leakage": (),
    "testing": (),
    "reports": (),
    "runs": ("Callback", "EarlyStopping"),
    "theory": (),
}

__all__ = [
    "CFL",
    "Algorithm",
    "AllForOne",
    "AllForOneClassifier",
    "AllForOneError",
    "AllForOneRegressor",
    "Apfl",
    "BySimilarity",
    "Callback",
    "Client",
    "CoBo",
    "Compared",
    "Criterion",
    "CustomCriterion",
    "Ditto",
    "Diverged",
    "EarlyStopping",
    "FedALA",
    "FedAMP",
    "FedAvg",
    "FedFomo",
    "FreshSamples",
    "Ifca",
    "InputError",
    "Local",
    "MLflow",
    "Metric",
    "Oracle",
    "PFedGraph",
    "PFedMe",
    "Privacy",
    "Problem",
    "Settings",
    "Task",
    "Trained",
    "WandB",
    "WgaBc",
    "accuracy",
    "binary",
    "compare",
    "continuous",
    "digits",
    "load",
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
