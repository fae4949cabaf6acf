"""How the models are updated. One file each, `init` and `step`."""

from ..catalogue import ALGORITHMS, PAPER_ALGORITHMS
from ..collaboration import Online, Paper, binary, continuous
from .all_for_one import AllForOne, Weighting, default_weighting
from .apfl import Apfl
from .base import Algorithm, Info, State, Verdict
from .cobo import CoBo
from .ditto import Ditto
from .fedavg import FedAvg
from .guarded import Guarded
from .ifca import Ifca
from .local import Local
from .oracle import Oracle
from .wga_bc import WgaBc


def all_for_one(memory: float = 0.9, every: int = 1) -> AllForOne:
    return AllForOne(continuous(), Online(memory, every))


def all_for_one_binary(threshold: float = 0.1, samples: int = 512, weighting: Weighting | None = None) -> AllForOne:
    return AllForOne(binary(threshold), Paper(samples), weighting)


def all_for_one_continuous(samples: int = 512, weighting: Weighting | None = None) -> AllForOne:
    return AllForOne(continuous(), Paper(samples), weighting)


def fedavg(proximal: float = 0.0) -> FedAvg:
    return FedAvg(proximal)


def fedavg_finetune(proximal: float = 0.0, finetune: int = 5) -> FedAvg:
    return FedAvg(proximal, finetune)


__all__ = [
    "ALGORITHMS",
    "PAPER_ALGORITHMS",
    "Algorithm",
    "AllForOne",
    "Apfl",
    "CoBo",
    "Ditto",
    "FedAvg",
    "Guarded",
    "Ifca",
    "Info",
    "Local",
    "Oracle",
    "State",
    "Verdict",
    "Weighting",
    "WgaBc",
    "all_for_one",
    "all_for_one_binary",
    "all_for_one_continuous",
    "default_weighting",
]
