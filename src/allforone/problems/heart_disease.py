"""Heart disease at four hospitals (UCI), prepared and split as FLamby does: 13 features, a logistic model."""

import csv
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError
from . import sources
from .base import Problem, Settings
from .client import Client
from .metrics import Metric

CENTRES = {"cleveland": "Cleveland", "hungarian": "Hungary", "switzerland": "Switzerland", "va": "VA Long Beach"}
COLUMNS = (
    "age",
    "sex",
    "cp",
    "trestbps",
    "chol",
    "fbs",
    "restecg",
    "thalach",
    "exang",
    "oldpeak",
    "slope",
    "ca",
    "thal",
    "num",
)
#: These columns are missing for most patients outside Cleveland, and left out.
DROPPED = ("slope", "ca", "thal")
NUMBERS = ("age", "sex", "trestbps", "chol", "fbs", "thalach", "exang", "oldpeak")
#: These columns name kinds: they become one-hot, with the first kind left out.
KINDS = {"cp": (2, 3, 4), "restecg": (1, 2)}


class Centre(NamedTuple):
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def heart_disease(
    seed: int = 127, split: int | Literal["seed"] = 43, scaling: Literal["apart", "together"] = "apart"
) -> Problem:
    """Four clients, one for each hospital. Who is trained on and who tests depends on `split` only; 43 is FLamby's.
    With `split="seed"` every seed splits the patients anew. `scaling` is by the mean and deviation of each hospital's
    own training patients, as FLamby does, or by those of all hospitals' together."""
    if scaling not in ("apart", "together"):
        raise InputError(f"scaling is {scaling!r}: must be 'apart' or 'together'")
    apart = scaling == "apart"
    centres = [centre(file, apart, seed if split == "seed" else split) for file in CENTRES]
    if not apart:
        everybody = torch.cat([data.train[0] for data in centres])
        centres = [scaled_by(everybody, data) for data in centres]
    sizes = [len(data.train[0]) for data in centres]
    return Problem(
        clients=[Client(*data, name=name) for name, data in zip(CENTRES.values(), centres, strict=True)],
        model=lambda: nn.Linear(13, 1),
        loss=F.binary_cross_entropy_with_logits,
        metrics={"accuracy": Metric(_share_right, percent=True)},
        settings=Settings(
            rounds=25,
            inner=int(np.mean(sizes)),
            batch_size=1,
            estimation=16,
            optimizer={"name": "SGD", "lr": 0.01},  # what was run; the paper prints 0.05 and weight decay 5e-4
            scheduler={"name": "StepLR", "step_size": 5, "gamma": 0.1},
        ),
        name="heart-disease",
    )


def _share_right(output: Tensor, target: Tensor) -> Tensor:
    return ((output > 0) == (target > 0.5)).double().mean()


def centre(name: str, scaled: bool = True, split: int = 43) -> Centre:
    """One hospital: split 66/34, and, if asked, scaled by the mean and deviation of its own training patients."""
    from sklearn.model_selection import train_test_split

    features, sick = read_centre(name)
    counts = np.bincount(sick.astype(int), minlength=2)
    train, test = train_test_split(
        np.arange(len(sick)),
        train_size=0.66,
        test_size=0.34,
        random_state=split,
        shuffle=True,
        stratify=sick if counts.min() > 2 else None,
    )
    x, y = torch.from_numpy(features).float(), torch.from_numpy(sick).float()[:, None]
    made = Centre((x[train], y[train]), (x[test], y[test]))
    return scaled_by(x[train], made) if scaled else made


def scaled_by(patients: Tensor, data: Centre) -> Centre:
    """A hospital's features less the mean of some patients', over their deviation."""
    mean, deviation = patients.mean(0), patients.std(0)
    unit = torch.where(deviation > 0, deviation, 1)  # of a column of equals nothing is known
    return Centre(*(((x - mean) / unit, y) for x, y in data))


def read_centre(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features [n, 13] and whether each patient is sick [n], of the patients for whom all is known."""
    file = f"processed.{name}.data"
    path = sources.folder("heart-disease") / file
    if not path.is_file():
        raise sources.missing("heart-disease", file)
    rows = []
    with path.open(newline="", encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(sources.lines_of(csv.reader(lines), "heart-disease", path), 1):
            if not line:
                continue
            patient = dict(zip(COLUMNS, line, strict=False))
            try:
                if len(line) != len(COLUMNS):
                    raise ValueError(f"{len(line)} columns")
                known = [patient[column] for column in COLUMNS if column not in DROPPED]
                if "?" not in known:
                    rows.append(_encoded({column: float(value) for column, value in patient.items() if value != "?"}))
            except ValueError as error:
                expected = f"14 numbers or ? a line (line {number}: {error})"
                raise sources.damaged("heart-disease", path, expected) from error
    if not rows:
        raise sources.damaged("heart-disease", path, "a table of patients")
    table = np.array(rows)
    return table[:, :-1], table[:, -1]


def _encoded(patient: dict[str, float]) -> list[float]:
    kinds = [float(patient[column] == kind) for column, levels in KINDS.items() for kind in levels]
    return [*(patient[column] for column in NUMBERS), *kinds, float(patient["num"] > 0)]
