"""One look for all figures: a colour for every algorithm, told apart by the colour-blind too (Okabe–Ito); its label."""

from ..algorithms import ALGORITHMS, Algorithm
from ..catalogue import split_options

COLOURS = {
    "all-for-one": "#B2182B",
    "all-for-one-round": "#4B4ACF",
    "all-for-one-binary": "#0072B2",
    "all-for-one-continuous": "#56B4E9",
    "oracle": "#009E73",
    "local": "#E69F00",
    "fedavg": "#D55E00",
    "ditto": "#CC79A7",
    "cobo": "#7F7F7F",
    "wga-bc": "#8C6D31",
    "apfl": "#6A3D9A",
    "fedavg-finetune": "#F0A070",
    "ifca": "#B8A800",
    "fedamp": "#44AA99",
    "fedfomo": "#882255",
    "fedala": "#117733",
    "pfedgraph": "#C9A227",
    "cfl": "#661100",
    "pfedme": "#6699CC",
    "run": "#B2182B",
}
SPARE = ("#444444", "#1B7837", "#2166AC", "#999933", "#332288", "#AA4499")

#: What a run that was started from Python is called in a comparison, and on its page.
FROM_PYTHON = {"run": "This run"}


def made(algorithm: str) -> Algorithm | None:
    """The algorithm of this name with its default options; None where only its name is known."""
    name, _ = split_options(algorithm)
    return ALGORITHMS[name]() if name in ALGORITHMS else None


def label(algorithm: str) -> str:
    """`ditto:penalty=1` is «Ditto, penalty 1»."""
    name, options = split_options(algorithm)
    own = made(algorithm)
    said = [option.removesuffix("=true").replace("_", " ").replace("=", " ") for option in options]
    return ", ".join([own.label if own else FROM_PYTHON.get(name, name), *said])


def needs_clusters(algorithm: str) -> bool:
    """Whether it is told the true clusters, and so is no rival of the others."""
    own = made(algorithm)
    return own is not None and own.needs_clusters


def linestyle(algorithm: str) -> str:
    """Dashed where it is told what the others are not."""
    return "--" if needs_clusters(algorithm) else "-"


def colours(algorithms: list[str]) -> dict[str, str]:
    spare = iter(SPARE * (1 + len(algorithms) // len(SPARE)))
    return {name: COLOURS.get(name) or next(spare) for name in algorithms}
