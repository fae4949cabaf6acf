"""One look for all figures: a colour and a name for every algorithm, told apart by the colour-blind too (Okabe–Ito)."""

from ..catalogue import split_options

COLOURS = {
    "all-for-one": "#B2182B",
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
    "run": "#B2182B",
}
SPARE = ("#444444", "#1B7837", "#2166AC", "#999933", "#332288", "#AA4499")

LABELS = {
    "all-for-one": "All-for-one",
    "all-for-one-binary": "All-for-one, binary (paper)",
    "all-for-one-continuous": "All-for-one, continuous (paper)",
    "oracle": "Oracle (knows the clusters)",
    "local": "Local",
    "fedavg": "FedAvg",
    "ditto": "Ditto",
    "cobo": "CoBo",
    "wga-bc": "WGA-BC",
    "apfl": "APFL",
    "fedavg-finetune": "FedAvg, fine-tuned",
    "ifca": "IFCA (knows how many clusters)",
    "run": "This run",
}


def label(algorithm: str) -> str:
    """`ditto:as_published=true` is «Ditto, as published»."""
    name, options = split_options(algorithm)
    said = [option.removesuffix("=true").replace("_", " ").replace("=", " ") for option in options]
    return ", ".join([LABELS.get(name, name), *said])


def colours(algorithms: list[str]) -> dict[str, str]:
    spare = iter(SPARE * (1 + len(algorithms) // len(SPARE)))
    return {name: COLOURS.get(name) or next(spare) for name in algorithms}
