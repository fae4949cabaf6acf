"""What the hospitals learn together: whether a patient is ill, from thirteen numbers. All have this same file."""

from torch import nn

import allforone as afo


def model():
    return nn.Sequential(nn.Linear(13, 16), nn.ReLU(), nn.Linear(16, 2))


task = afo.Task(
    model,
    nn.CrossEntropyLoss(),
    metrics={"accuracy": afo.accuracy},
    settings=afo.Settings(rounds=20, inner=5, batch_size=16, optimizer={"name": "SGD", "lr": 0.05}),
    name="heart disease",
)
