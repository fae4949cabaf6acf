"""How the models are updated. One file each, `init` and `step`."""

from collections.abc import Callable

from ..collaboration import Paper, binary, continuous
from .all_for_one import AllForOne, Weighting, default_weighting
from .base import Algorithm, Info, State
from .fedavg import FedAvg
from .local import Local
from .oracle import Oracle


def all_for_one_binary(
    threshold: float = 0.1, samples: int = 512, weighting: Weighting | None = None
) -> AllForOne:
    return AllForOne(binary(threshold), Paper(samples), weighting)


def all_for_one_continuous(samples: int = 512, weighting: Weighting | None = None) -> AllForOne:
    return AllForOne(continuous(), Paper(samples), weighting)


#: name on the command line → function from options to an algorithm
ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "all-for-one-binary": all_for_one_binary,
    "all-for-one-continuous": all_for_one_continuous,
    "oracle": Oracle,
    "local": Local,
    "fedavg": FedAvg,
}

__all__ = [
    "ALGORITHMS", "Algorithm", "AllForOne", "FedAvg", "Info", "Local", "Oracle", "State", "Weighting",
    "all_for_one_binary", "all_for_one_continuous", "default_weighting",
]
