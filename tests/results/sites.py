"""Three hospitals, of which A and C have the same task."""

import torch
import torch.nn.functional as F
from torch import nn

import allforone as afo


def hospital(name, kind, seed):
    random = torch.Generator().manual_seed(seed)
    inputs = torch.randn(90, 4, generator=random)
    rule = torch.tensor([1.0, -1, 0.5, 0]) if kind == 0 else torch.tensor([-1.0, 1, -0.5, 0])
    labels = (inputs @ rule + 0.3 * torch.randn(90, generator=random) > 0).long()
    return afo.Client((inputs[:30], labels[:30]), (inputs[30:], labels[30:]), name=name)


def hospitals():
    clients = [hospital("Hospital A", 0, 0), hospital("Hospital B", 1, 1), hospital("Hospital C", 0, 2)]
    return afo.Problem(
        lambda: nn.Linear(4, 2),
        F.cross_entropy,
        metrics={"accuracy": afo.accuracy},
        settings=afo.Settings(rounds=3, inner=2, batch_size=8, optimizer={"name": "SGD", "lr": 0.2, "momentum": 0.9}),
        name="hospitals",
        clients=clients,
    )
