"""How the models are updated. One file each, `init` and `step`."""

from collections.abc import Callable

from .all_for_one import (
    AllForOne,
    Weighting,
    all_for_one,
    all_for_one_binary,
    all_for_one_continuous,
    default_weighting,
)
from .apfl import Apfl
from .base import Algorithm, Info, Memory, State, Verdict, Weighted, advance
from .cobo import CoBo
from .ditto import Ditto
from .fedavg import FedAvg, fedavg, fedavg_finetune
from .guarded import Guarded
from .ifca import Ifca
from .local import Local
from .oracle import Oracle
from .wga_bc import WgaBc

#: name on the command line → function from options to an algorithm
ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "all-for-one": all_for_one,
    "all-for-one-binary": all_for_one_binary,
    "all-for-one-continuous": all_for_one_continuous,
    "oracle": Oracle,
    "local": Local,
    "fedavg": fedavg,
    "ditto": Ditto,
    "cobo": CoBo,
    "wga-bc": WgaBc,
    "apfl": Apfl,
    "fedavg-finetune": fedavg_finetune,
    "ifca": Ifca,
}

#: All-for-one, and what the paper compares it with
PAPER_ALGORITHMS = [name for name in ALGORITHMS if name not in ("fedavg-finetune", "ifca")]

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
    "Memory",
    "Oracle",
    "State",
    "Verdict",
    "Weighted",
    "Weighting",
    "WgaBc",
    "advance",
    "all_for_one",
    "all_for_one_binary",
    "all_for_one_continuous",
    "default_weighting",
    "fedavg",
    "fedavg_finetune",
]
