"""One look for all figures: a colour and a name for every algorithm, told apart by the colour-blind too (Okabe–Ito)."""

COLOURS = {
    "all-for-one-binary": "#0072B2",
    "all-for-one-continuous": "#56B4E9",
    "oracle": "#009E73",
    "local": "#E69F00",
    "fedavg": "#D55E00",
}
SPARE = ("#CC79A7", "#7F7F7F", "#8C6D31", "#6A3D9A", "#B2182B")

LABELS = {
    "all-for-one-binary": "All-for-one, binary",
    "all-for-one-continuous": "All-for-one, continuous",
    "oracle": "Oracle (knows the clusters)",
    "local": "Local",
    "fedavg": "FedAvg",
}


def label(algorithm: str) -> str:
    return LABELS.get(algorithm, algorithm)


def colours(algorithms: list[str]) -> dict[str, str]:
    spare = iter(SPARE * (1 + len(algorithms) // len(SPARE)))
    return {name: COLOURS.get(name) or next(spare) for name in algorithms}
