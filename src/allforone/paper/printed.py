"""What the paper prints in its tables of the real data sets: (train, test) for Mnist, Cifar10, Heart disease, Ixi."""

Pair = tuple[float, float]

#: Of its table of settings, what is looked at where something else was run.
SETTINGS = {
    "mnist": {"step size": 0.1, "decay": 5e-4},
    "cifar10": {"step size": 0.1, "decay": 5e-4},
    "heart-disease": {"step size": 0.05, "decay": 5e-4},
    "ixi": {"step size": 0.01, "decay": 5e-4},
}


def _row(*numbers: float) -> dict[str, Pair]:
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return dict(zip(("mnist", "cifar10", "heart-disease", "ixi"), pairs, strict=True))


ACCURACY = {
    "all-for-one-binary": _row(100.0, 99.2, 69.9, 64.2, 88.9, 82.3, 97.3, 97.2),
    "all-for-one-continuous": _row(100.0, 99.1, 70.7, 63.5, 88.9, 82.1, 97.3, 97.2),
    "local": _row(100.0, 99.1, 75.2, 59.0, 77.8, 82.1, 97.3, 97.3),
    "fedavg": _row(98.9, 98.7, 30.1, 30.8, 62.2, 75.2, 91.5, 91.5),
    "ditto": _row(100.0, 99.1, 76.5, 58.5, 77.8, 81.9, 97.3, 97.3),
    "cobo": _row(100.0, 99.1, 76.2, 58.7, 88.9, 81.9, 97.4, 97.3),
    "wga-bc": _row(96.3, 96.3, 4.8, 4.7, 55.6, 66.3, 93.2, 93.1),
    "apfl": _row(100.0, 99.1, 75.8, 58.7, 77.8, 82.1, 70.4, 70.4),
}
LOG_LOSS = {
    "all-for-one-binary": _row(-4.01, -1.64, -0.11, -0.04, -0.67, -0.41, -1.57, -1.56),
    "all-for-one-continuous": _row(-3.99, -1.59, -0.12, -0.04, -0.68, -0.41, -1.57, -1.56),
    "local": _row(-4.10, -1.53, -0.21, 0.05, -0.52, -0.41, -1.58, -1.57),
    "fedavg": _row(-1.61, -1.40, 0.26, 0.26, -0.22, -0.26, -1.08, -1.08),
    "ditto": _row(-3.86, -1.52, -0.22, 0.06, -0.41, -0.40, -1.58, -1.57),
    "cobo": _row(-4.01, -1.53, -0.21, 0.05, -0.60, -0.41, -1.58, -1.57),
    "wga-bc": _row(-0.94, -0.91, 0.36, 0.36, -0.12, -0.16, -1.20, -1.19),
    "apfl": _row(-3.94, -1.54, -0.22, 0.05, -0.43, -0.41, -0.53, -0.54),
}
#: The table of standard deviations; its rows of losses repeat the means, so there is nothing to compare with
ACCURACY_STD = {
    "all-for-one-binary": _row(0.0, 0.4, 7.5, 5.1, 13.7, 8.2, 0.1, 0.1),
    "all-for-one-continuous": _row(0.0, 0.4, 7.8, 5.5, 13.7, 8.3, 0.1, 0.1),
    "local": _row(0.0, 0.4, 7.8, 5.0, 25.7, 8.3, 0.1, 0.1),
    "fedavg": _row(1.2, 0.5, 27.5, 28.2, 22.0, 5.5, 1.8, 2.0),
    "ditto": _row(0.0, 0.4, 6.8, 4.5, 22.0, 8.4, 0.1, 0.1),
    "cobo": _row(0.0, 0.4, 7.6, 5.1, 16.6, 8.5, 0.1, 0.1),
    "wga-bc": _row(1.8, 0.8, 7.2, 6.9, 12.6, 5.0, 2.6, 2.6),
    "apfl": _row(0.0, 0.4, 8.4, 5.0, 17.5, 8.4, 4.8, 5.0),
}
