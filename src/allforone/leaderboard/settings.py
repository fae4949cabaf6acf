"""On what contestants are compared: each setting by its name. A new one is added here, and nowhere else.

Nothing is imported that takes long: the command line reads the names for its help.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

#: Seeds on which no constant of any algorithm was chosen.
SEEDS = (127, 496, 1729)
#: The share of every client's training data that is held out in every setting, to choose the best round by.
VALIDATION = 0.2


@dataclass(frozen=True)
class Published:
    """What others printed for a setting, as they printed it."""

    source: str
    rule: str  #: what they measured, where that is not what we measure
    numbers: Mapping[str, tuple[float, float]]  #: contestant → mean and deviation, in %


@dataclass(frozen=True)
class Setting:
    """A problem, and how long it is learned."""

    name: str
    about: str
    problem: Mapping[str, Any]
    run: Mapping[str, Any]  #: keys of a config, `rounds` among them; what is not given is the problem's
    head: str | None = None  #: which parameters are the last layer's; None where there is no other
    seeds: tuple[int, ...] = SEEDS
    published: Published | None = None

    @property
    def rounds(self) -> int:
        return int(self.run["rounds"])

    def base(self) -> dict[str, Any]:
        """The config of its runs, without algorithm and seed."""
        return {"problem": dict(self.problem), "hold_out": VALIDATION, "title": self.name, **self.run}


#: How a pool of images is dealt, beside what it is called.
DEALS: dict[str, tuple[str, dict[str, Any]]] = {
    "iid": ("dealt evenly", {"split": "iid"}),
    "dirichlet-0.1": ("labels in shares of Dirichlet(0.1)", {"split": "dirichlet", "concentration": 0.1}),
    "dirichlet-0.5": ("labels in shares of Dirichlet(0.5)", {"split": "dirichlet", "concentration": 0.5}),
    "clusters": ("half of the clients see labels 0–4, half 5–9", {"split": "cluster"}),
    "shards": ("two shards of samples sorted by label each", {"split": "shards"}),
}


def _dealt(
    name: str, problem: dict[str, Any], about: str, least: int, run: dict[str, Any], head: str
) -> dict[str, Setting]:
    """One setting for each way to deal. `least`: what Dirichlet must leave everybody, so that some can be held out."""
    found = {}
    for dealt, (told, options) in DEALS.items():
        enough = {"least": least} if options["split"] == "dirichlet" else {}
        called = name.replace("*", dealt)
        found[called] = Setting(called, f"{about}, {told}", {**problem, **options, **enough}, run, head)
    return found


FEDALA = "FedALA (Zhang et al., AAAI 2023), table 2"
FEDALA_RULE = "the best of 2,000 rounds by test accuracy, mean over all test images, 4-layer CNN"
_FEDALA: dict[str, Any] = {
    "run": {
        **{"rounds": 5, "inner": 180, "batch_size": 10},
        "optimizer": {"lr": 0.005, "momentum": 0.0, "weight_decay": 0.0},
    },
    "head": "11.*",
}
_AS_FEDALA = (
    "batch 10, one pass over the training data a round, step 0.005. Shortened: 5 rounds instead of 2,000, and LeNet "
    "instead of their 4-layer CNN"
)

SETTINGS: dict[str, Setting] = {
    **_dealt("digits-*", {"name": "digits"}, "ten clients with about 90 images each", 50, {"rounds": 30}, "2.*"),
    **_dealt(
        "digits-*-poor",
        {"name": "digits", "samples_per_client": 30},
        "ten clients with at most 30 images each",
        50,
        {"rounds": 30},
        "2.*",
    ),
    **_dealt(
        "mnist-*",
        {"name": "mnist", "clients": 10},
        "ten clients with about 5,600 images each",
        400,
        {"rounds": 10, "inner": 50},
        "9.*",
    ),
    **_dealt(
        "mnist-*-poor",
        {"name": "mnist", "clients": 10, "samples_per_client": 300},
        "ten clients with 300 images each",
        400,
        {"rounds": 20, "inner": 20},
        "9.*",
    ),
    "cifar10-pfedgraph": Setting(
        "cifar10-pfedgraph",
        "as pFedGraph (Ye et al., ICML 2023) has it: ten clients in five clusters of two labels, 5,000 images each, a "
        "fifth of them for validation; rounds of 200 updates, batch 64, step 0.01 with momentum 0.9, decay 1e-5, "
        "LeNet. Shortened: 10 rounds instead of 50",
        {"name": "cifar10", "clients": 10, "split": "cluster", "clusters": 5, "test_share": 1 / 6},
        {
            **{"rounds": 10, "inner": 200, "batch_size": 64},
            "optimizer": {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-5},
        },
        "11.*",
    ),
    "cifar10-fedala-labels": Setting(
        "cifar10-fedala-labels",
        f"as FedALA's pathological setting: twenty clients of one size with two labels each, in five groups, 75/25; "
        f"{_AS_FEDALA}",
        {
            **{"name": "cifar10", "clients": 20, "split": "cluster", "clusters": 5, "test_share": 0.25},
            "augmented": False,
        },
        **_FEDALA,
        published=Published(
            FEDALA,
            FEDALA_RULE,
            {
                **{"fedavg": (55.09, 0.83), "fedprox": (55.06, 0.75), "fedavg-c": (92.13, 0.03)},
                **{"fedprox-c": (92.12, 0.03), "per-fedavg": (89.63, 0.23), "fedrep": (91.93, 0.14)},
                **{"pfedme": (90.11, 0.10), "ditto": (92.39, 0.06), "fedamp": (90.79, 0.16)},
                **{"fedphp": (90.01, 0.00), "fedfomo": (91.85, 0.02), "apple": (90.97, 0.05)},
                **{"partialfed": (89.60, 0.13), "fedala": (92.44, 0.02)},
            },
        ),
    ),
    "cifar10-fedala-dirichlet": Setting(
        "cifar10-fedala-dirichlet",
        f"as FedALA's practical setting: twenty clients, labels in shares of Dirichlet(0.1), 75/25, as many updates "
        f"for each; {_AS_FEDALA}",
        {
            **{"name": "cifar10", "clients": 20, "split": "dirichlet", "concentration": 0.1, "least": 40},
            **{"test_share": 0.25, "augmented": False},
        },
        **_FEDALA,
        published=Published(
            FEDALA,
            FEDALA_RULE,
            {
                **{"fedavg": (59.16, 0.47), "fedprox": (59.21, 0.40), "fedavg-c": (90.34, 0.01)},
                **{"fedprox-c": (90.33, 0.01), "per-fedavg": (87.74, 0.19), "fedrep": (90.40, 0.24)},
                **{"pfedme": (88.09, 0.32), "ditto": (90.59, 0.01), "fedamp": (88.70, 0.18)},
                **{"fedphp": (88.92, 0.02), "fedfomo": (88.06, 0.02), "apple": (89.37, 0.11)},
                **{"partialfed": (87.38, 0.08), "fedala": (90.67, 0.03)},
            },
        ),
    ),
    "heart-disease": Setting(
        "heart-disease",
        "four hospitals, logistic model, their patients split anew with every seed",
        {"name": "heart-disease", "split": "seed"},
        {"rounds": 25},
        seeds=tuple(range(20)),
    ),
}

#: What is run with --quick where no name is given: sites that are all alike, all unlike, and of two kinds.
QUICK = ["digits-iid", "digits-dirichlet-0.1", "digits-clusters"]


def quick(setting: Setting) -> Setting:
    """The same for a first look: few rounds, one seed."""
    return replace(setting, run={**setting.run, "rounds": 5}, seeds=setting.seeds[:1])
