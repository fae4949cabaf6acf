"""Scikit-learn's 1,797 real 8×8 images of handwritten digits, dealt to clients: real data without a download."""

from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import nn

from ..errors import InputError
from . import splits
from .base import Client, Problem, Settings, accuracy

SPLITS = {"cluster": splits.cluster, "iid": splits.iid, "dirichlet": splits.dirichlet, "shards": splits.shards}


def digits(
    seed: int = 127,
    clients: int = 10,
    split: Literal["cluster", "iid", "dirichlet", "shards"] = "cluster",
    hidden: int = 32,
    test_share: float = 0.5,
) -> Problem:
    """Handwritten digits and a network of one hidden layer. With the cluster split, even clients see 0–4, odd 5–9.

    Half of each client's images test its model: the set is small, so this leaves little to train on, where
    collaboration matters, and enough to tell algorithms apart.
    """
    if not 0 < test_share < 1:
        raise InputError(f"test_share is {test_share}: must be between 0 and 1")
    from sklearn.datasets import load_digits  # slow to import, and only this problem needs it

    images, labels = load_digits(return_X_y=True)
    inputs = torch.from_numpy(images).float() / 16
    targets = torch.from_numpy(labels).long()
    dealt = SPLITS[split](targets, clients, seed=seed)

    def client(i: int) -> Client:
        part = dealt.parts[i]  # in random order already, except for shards
        part = part[torch.randperm(len(part), generator=torch.Generator().manual_seed(seed))]
        test, train = part.tensor_split([max(1, round(test_share * len(part)))])
        cluster = None if dealt.clusters is None else dealt.clusters[i]
        return Client((inputs[train], targets[train]), (inputs[test], targets[test]), cluster=cluster)

    return Problem(
        clients=[client(i) for i in range(clients)],
        model=partial(network, hidden),
        loss=F.cross_entropy,
        accuracy=accuracy,
        settings=Settings(rounds=30, inner=10, batch_size=16, estimation=64, optimizer={"name": "SGD", "lr": 0.2}),
        name="digits",
    )


def network(hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))
