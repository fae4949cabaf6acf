"""Scikit-learn's 1,797 real 8×8 images of handwritten digits, dealt to clients: real data without a download."""

from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError, short
from .base import Problem, Settings
from .images import deal
from .metrics import accuracy

#: Units of the hidden layer.
MOST_HIDDEN = 100_000


def digits(
    seed: int = 127,
    clients: int = 10,
    split: Literal["cluster", "iid", "dirichlet", "shards"] = "cluster",
    hidden: int = 32,
    test_share: float = 0.5,
    samples_per_client: int | None = None,
    clusters: int | None = None,
    concentration: float | None = None,
    least: int | None = None,
) -> Problem:
    """Handwritten digits and a network of one hidden layer. With the cluster split, even clients see 0–4, odd 5–9.

    Half of each client's images test its model: the set is small, so this leaves little to train on, where
    collaboration matters, and enough to tell algorithms apart.

    Args:
        seed: decides who gets which images.
        clients: how many.
        split: how the images are dealt: "cluster", "iid", "dirichlet" or "shards".
        hidden: units of the hidden layer.
        test_share: the share of each client's images that tests its model.
        samples_per_client: at most so many of its others are trained on, by default all.
        clusters: of the cluster split: into how many groups the digits fall; by default two.
        concentration: of Dirichlet, by default 0.5: the smaller, the more unlike the clients.
        least: of Dirichlet: images that every client has, at least.

    Example:
        >>> import allforone as afo
        >>> len(afo.digits(clients=5).clients)
        5
    """
    if not 1 <= hidden <= MOST_HIDDEN:
        raise InputError(
            f"hidden is {short(hidden)}: must be between 1 and {MOST_HIDDEN}, for each client has a network"
        )
    inputs, targets = read_digits()
    return Problem(
        clients=deal(
            inputs,
            targets,
            clients=clients,
            split=split,
            seed=seed,
            test_share=test_share,
            samples_per_client=samples_per_client,
            clusters=clusters,
            concentration=concentration,
            least=least,
        ),
        model=partial(network, hidden),
        loss=F.cross_entropy,
        metrics={"accuracy": accuracy},
        settings=Settings(rounds=30, inner=10, batch_size=16, estimation=64, optimizer={"name": "SGD", "lr": 0.2}),
        name="digits",
    )


@cache
def read_digits() -> tuple[Tensor, Tensor]:
    """Images [n, 64] from 0 to 1 and labels [n]; read once, since a comparison deals them for every run.

    Read from scikit-learn's file, without scikit-learn, which takes longer to import than torch.
    """
    package = find_spec("sklearn")
    assert package and package.origin
    table = np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    return torch.from_numpy(table[:, :-1]).float() / 16, torch.from_numpy(table[:, -1]).long()


def network(hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))
