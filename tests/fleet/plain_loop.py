"""N models trained in a loop as anybody would write it: what every fleet is held to."""

import copy

import torch
from torch import Tensor, nn

import allforone as afo
from allforone.fleet import Optimizer
from allforone.problems.data import draw

from ..rounds import over

SEED = 127


def sgd(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def give(model: nn.Module, inputs):
    return model(inputs)


def trained_plainly(
    problem: afo.Problem, mix: Tensor, steps: int, batch_size: int, make=sgd, call=give
) -> list[nn.Module]:
    """Updates by Σ_k mix[i, k] g_k(θ_i), one loss and one backward pass for each pair."""
    models = [copy.deepcopy(problem.initial_model(SEED)).train() for _ in problem.clients]
    return go_on_plainly(models, problem, mix, steps, batch_size, make, call)


def go_on_plainly(models, problem, mix, steps, batch_size, make=sgd, call=give) -> list[nn.Module]:
    optimizers = [make(model.parameters()) for model in models]
    for step in range(steps):
        for i, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            optimizer.zero_grad()
            for k, client in enumerate(problem.clients):
                if mix[i, k]:
                    x, y = draw(client.train, batch_size, seed=SEED, client=k, step=step, purpose="update")
                    (float(mix[i, k]) * problem.loss(call(model, x), y)).backward()
            optimizer.step()
    return models


def trained_by(fleet, mix: Tensor, steps: int, make=sgd) -> dict[str, Tensor]:
    return fleet.descend(fleet.initial(), mix, Optimizer(make), over(fleet, range(steps)))[0]


def furthest(stacked: dict[str, Tensor], models: list[nn.Module]) -> float:
    """The largest difference between a fleet's models and those of the loop."""
    return max(
        float((stacked[name][i] - tensor.detach()).abs().max())
        for i, model in enumerate(models)
        for name, tensor in (*model.named_parameters(), *model.named_buffers())
    )


def uneven(n: int) -> Tensor:
    """Weights of which no two are the same."""
    weights = torch.rand(n, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 2 * torch.eye(n)
    return weights / weights.sum(1, keepdim=True)
