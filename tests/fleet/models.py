"""Small models of every kind that a fleet must get right, and clients for them."""

import torch
import torch.nn.functional as F
from torch import nn

import allforone as afo

CHANNELS, SIDE, CLASSES = 2, 4, 3


class Tied(nn.Module):
    """The same matrix twice."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32)
        self.second.weight = self.first.weight
        self.last = nn.Linear(32, CLASSES)

    def forward(self, x):
        return self.last(self.second(self.first(x.flatten(1)).relu()))


class Gate(nn.Module):
    """Control flow that depends on the data, which vmap cannot trace."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, CLASSES)

    def forward(self, x):
        x = self.layer(x.flatten(1))
        return x if x.abs().max() > 1e9 else 2 * x


class Centred(nn.Module):
    """A layer of the user's own that mixes samples, and starts at zero so that it hides it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, CLASSES)
        nn.init.zeros_(self.layer.weight)

    def forward(self, x):
        x = x.flatten(1)
        return self.layer(x - x.mean(0)) if self.training else self.layer(x)


class Noisy(nn.Module):
    """Randomness that no layer type announces."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, CLASSES)

    def forward(self, x):
        x = x.flatten(1)
        return self.layer(x + 0.1 * torch.randn_like(x) if self.training else x)


class InPlace(nn.Module):
    """Changes its input."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, CLASSES)

    def forward(self, x):
        return self.layer(x.mul_(0.9).flatten(1))


class InPlaceParameter(nn.Module):
    """Changes its input by a parameter, which vmap would refuse if models shared the input."""

    def __init__(self):
        super().__init__()
        self.factor, self.layer = nn.Parameter(torch.ones(32)), nn.Linear(32, CLASSES)

    def forward(self, x):
        x = x.flatten(1)
        x *= self.factor
        return self.layer(x)


class Tokens(nn.Module):
    """Its output has more rows than its input, as language models that flatten their tokens do."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, CLASSES)
        self.register_buffer("mask", torch.full((2, 2), -torch.inf))

    def forward(self, x):
        return self.layer(x.reshape(-1, 16)).reshape(-1, CLASSES)


def still_norm() -> nn.Module:
    """A BatchNorm that the user froze."""
    model = nn.Sequential(nn.Conv2d(CHANNELS, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, CLASSES))
    model[1].eval()
    return model


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(32, 8), nn.Tanh(), nn.Linear(8, CLASSES))
    model[1].weight.requires_grad_(False)
    return model


MODELS = {
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(32, CLASSES)),
    "perceptron": lambda: nn.Sequential(nn.Flatten(), nn.Linear(32, 8), nn.Tanh(), nn.Linear(8, CLASSES)),
    "wide": lambda: nn.Sequential(nn.Flatten(), nn.Linear(32, 400), nn.ReLU(), nn.Linear(400, CLASSES)),
    "convolution": lambda: nn.Sequential(
        nn.Conv2d(CHANNELS, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, CLASSES)
    ),
    "batch norm": lambda: nn.Sequential(
        nn.Conv2d(CHANNELS, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, CLASSES)
    ),
    "group norm": lambda: nn.Sequential(
        nn.Conv2d(CHANNELS, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(16, CLASSES)
    ),
    "dropout": lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(32, CLASSES)),
    "tied": Tied,
    "frozen": frozen,
    "gate": Gate,
    "centred": Centred,
    "noisy": Noisy,
    "in place": InPlace,
    "in place parameter": InPlaceParameter,
    "still norm": still_norm,
}


def clients(count: int = 4, sizes: tuple[int, ...] = (12,)) -> list[afo.Client]:
    """Clients in two clusters; `sizes` are repeated over them."""
    random = torch.Generator().manual_seed(0)
    found = []
    for i in range(count):
        size = sizes[i % len(sizes)]
        x = torch.randn(size + 6, CHANNELS, SIDE, SIDE, generator=random) + (i % 2)
        y = (x.flatten(1).sum(1) > 32 * (i % 2)).long() + (i % 2)
        found.append(afo.Client((x[:size], y[:size]), (x[size:], y[size:]), cluster=i % 2))
    return found


def problem(model: str, count: int = 4, sizes: tuple[int, ...] = (12,), loss=F.cross_entropy) -> afo.Problem:
    return afo.Problem(
        MODELS[model],
        loss,
        metrics={"accuracy": afo.accuracy},
        settings=afo.Settings(batch_size=5, estimation=9),
        clients=clients(count, sizes),
    )
