"""How the models are updated. One file each, `init` and `step`."""

from ..catalogue import ALGORITHMS, PAPER_ALGORITHMS
from .all_for_one import AllForOne, all_for_one_round
from .apfl import Apfl
from .base import Algorithm, Info, Memory, State, Verdict, Weighted, advance
from .by_similarity import BySimilarity, Weighting, all_for_one_binary, all_for_one_continuous, default_weighting
from .cfl import CFL
from .cobo import CoBo
from .ditto import Ditto
from .fedala import FedALA
from .fedamp import FedAMP
from .fedavg import FedAvg, fedavg_finetune
from .fedfomo import FedFomo
from .guarded import Guarded
from .ifca import Ifca
from .joining import Joining
from .keeping import Keeping, keeping
from .local import Local
from .oracle import Oracle
from .pfedgraph import PFedGraph
from .pfedme import PFedMe
from .wga_bc import WgaBc

__all__ = [
    "ALGORITHMS",
    "CFL",
    "PAPER_ALGORITHMS",
    "Algorithm",
    "AllForOne",
    "Apfl",
    "BySimilarity",
    "CoBo",
    "Ditto",
    "FedALA",
    "FedAMP",
    "FedAvg",
    "FedFomo",
    "Guarded",
    "Ifca",
    "Info",
    "Joining",
    "Keeping",
    "Local",
    "Memory",
    "Oracle",
    "PFedGraph",
    "PFedMe",
    "State",
    "Verdict",
    "Weighted",
    "Weighting",
    "WgaBc",
    "advance",
    "all_for_one_binary",
    "all_for_one_continuous",
    "all_for_one_round",
    "default_weighting",
    "fedavg_finetune",
    "keeping",
]
