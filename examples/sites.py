"""Your own sites: change `site_data` to read yours, then

allforone run examples/sites.py:problem
allforone compare examples/sites.py:problem --seeds 3
"""

import torch
import torch.nn.functional as F
from torch import nn

import allforone as afo


def site_data(site: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs [n, 8] and labels [n] of one site: here invented, in two kinds of sites."""
    random = torch.Generator().manual_seed(site)
    inputs = torch.randn(120, 8, generator=random)
    rule = torch.tensor([1.0, -1, 1, -1, 0, 0, 0, 0]) if site % 2 else torch.tensor([0.0, 0, 0, 0, 1, 1, -1, -1])
    noise = 0.5 * torch.randn(120, generator=random)
    return inputs, (inputs @ rule + noise > 0).long()


def problem(sites: int = 6) -> afo.Problem:
    clients = []
    for site in range(sites):
        inputs, labels = site_data(site)
        clients.append(afo.Client((inputs[:40], labels[:40]), (inputs[40:], labels[40:]), name=f"site {site}"))
    return afo.Problem(
        model=lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)),
        loss=F.cross_entropy,
        metrics={"accuracy": afo.accuracy},
        settings=afo.Settings(rounds=40, inner=5, batch_size=8, estimation=40, optimizer={"name": "SGD", "lr": 0.1}),
        name="sites",
        clients=clients,
    )
