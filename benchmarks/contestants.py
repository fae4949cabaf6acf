"""What is measured: problems of the paper's shapes with images drawn at random, since speed does not depend on them."""

from collections.abc import Callable
from functools import partial
from itertools import count

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from allforone.algorithms import Algorithm
from allforone.fleet import Fleet, InProcess, Models, Optimizer
from allforone.problems import Client, Problem
from allforone.problems.cifar10 import lenet
from allforone.problems.data import draw
from allforone.problems.digits import network as dense
from allforone.problems.images import crop_and_flip, normalise
from allforone.problems.ixi import UNet, dice_loss
from allforone.problems.mnist import network as cnn
from allforone.runs import PYTHON, Result, parse, train

SGD = Optimizer(partial(torch.optim.SGD, lr=1e-3, momentum=0.9))


def images(name: str, clients: int = 20, samples: int = 512) -> Problem:
    channels, side, model, augment = {
        "cifar10": (3, 32, lenet, crop_and_flip),
        "mnist": (1, 28, cnn, None),
    }[name]
    transform = partial(normalise, mean=[0.5] * channels, std=[0.25] * channels)

    def client(k: int) -> Client:
        random = torch.Generator().manual_seed(k)
        x = torch.randint(0, 256, (samples, channels, side, side), dtype=torch.uint8, generator=random)
        data = (x, torch.randint(0, 10, (samples,), generator=random))
        return Client(data, data, cluster=k % 2, transform=transform, augment=augment)

    return Problem(model, F.cross_entropy, name=name, clients=[client(k) for k in range(clients)])


def vectors(clients: int, samples: int = 64) -> Problem:
    """The digits' shape and network, for any number of clients."""

    def client(k: int) -> Client:
        random = torch.Generator().manual_seed(k)
        data = (torch.rand(samples, 64, generator=random), torch.randint(0, 10, (samples,), generator=random))
        return Client(data, data)

    return Problem(partial(dense, 32), F.cross_entropy, name="digits", clients=[client(k) for k in range(clients)])


def volumes(clients: int = 3, samples: int = 8) -> Problem:
    def client(k: int) -> Client:
        random = torch.Generator().manual_seed(k)
        x = torch.randn(samples, 1, 48, 60, 48, generator=random)
        data = (x, (x[:, 0] > 0).to(torch.uint8))
        return Client(data, data)

    return Problem(UNet, dice_loss, name="ixi", clients=[client(k) for k in range(clients)])


def ten_collaborators(clients: int) -> Tensor:
    """Every client listens to ten, itself among them, with equal weight: every other one around it."""
    mix = torch.zeros(clients, clients, dtype=torch.float64)
    for i in range(clients):
        mix[i, (i + 2 * torch.arange(min(10, clients))) % clients] = 1
    return mix / mix.sum(1, keepdim=True)


def apart(models: Models) -> Models:
    """The same a little away from each other, as models of a run are: equal ones would pass together."""
    random = torch.Generator().manual_seed(0)
    return {name: tensor + 1e-3 * torch.randn(tensor.shape, generator=random) for name, tensor in models.items()}


def descend(
    fleet: InProcess, models: Models, mix: Tensor, updates: int = 1, optimizer: Optimizer = SGD
) -> Callable[[], object]:
    """The next `updates` updates of a run at every call."""
    numbers = count(1)

    def run() -> object:
        number = next(numbers)
        round = fleet.begin(number, range((number - 1) * updates, number * updates))
        return fleet.descend(models, mix, optimizer, round)

    return run


def trained(
    fleet: Fleet, problem: Problem, algorithm: Algorithm, optimizer: Optimizer, rounds: int, inner: int = 1
) -> Result:
    """A run of the training loop, in memory."""
    config = parse({"problem": PYTHON, "rounds": rounds, "inner": inner})
    return train(config, problem, fleet, algorithm, optimizer)


def own_optimizer(problem: Problem) -> Optimizer:
    """The one that the problem's settings name: SGD without momentum for the small ones."""
    chosen = dict(problem.settings.optimizer)
    return Optimizer(partial(getattr(torch.optim, chosen.pop("name")), **chosen))


def plain(problem: Problem, batch: int, samples: int, drawing: bool = False) -> Callable[[], object]:
    """Ordinary training of one model, in the order in memory that is best for it.

    On one prepared batch again and again, which is the limit of what its passes allow; or, drawing, on batches that are
    drawn and augmented as ours are.
    `samples` must be a multiple of `batch`, for else the last, smaller batch would be missing.
    """
    assert samples % batch == 0, f"{samples} samples are no whole number of batches of {batch}"
    module: nn.Module = problem.initial_model(0).train()
    train = problem.clients[0].train
    x, y = train.take(torch.arange(batch) % len(train))  # type: ignore[union-attr, arg-type]
    order = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    if order:
        module, x = module.to(memory_format=order), x.to(memory_format=order)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3, momentum=0.9)

    def run() -> None:
        for step in range(samples // batch):
            inputs, targets = x, y
            if drawing:
                inputs, targets = draw(train, batch, seed=0, client=0, step=step, purpose="update")
                inputs = inputs.to(memory_format=order) if order else inputs
            optimizer.zero_grad()
            problem.loss(module(inputs), targets).backward()
            optimizer.step()

    return run
