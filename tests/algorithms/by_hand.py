"""Clients by hand: what an algorithm's equations are written out with, one vector and one gradient at a time."""

from functools import partial
from itertools import combinations

import torch
import torch.nn.functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from allforone.fleet import Stacked
from allforone.problems.data import draw

from ..fleet.models import problem
from ..rounds import play

LR, INNER, CLIENTS = 0.1, 2, 4
PLAIN = partial(torch.optim.SGD, lr=LR)


class ByHand:
    """Clients whose models are vectors, and whose losses and gradients are asked of PyTorch one at a time."""

    def __init__(self, sizes=(12, 6)):
        self.subject = problem("perceptron", sizes=sizes)
        self.module = self.subject.initial_model(3)
        self.start = parameters_to_vector(self.module.parameters()).detach().double()
        sizes = torch.tensor([float(len(client.train)) for client in self.subject.clients])
        self.shares = (sizes / sizes.sum()).double()

    def loss(self, theta, k, step):
        x, y = draw(self.subject.clients[k].train, 5, seed=3, client=k, step=step, purpose="update")
        vector_to_parameters(theta.float(), self.module.parameters())
        return F.cross_entropy(self.module(x), y)

    def gradient(self, theta, k, step):
        found = torch.autograd.grad(self.loss(theta, k, step), list(self.module.parameters()))
        return torch.cat([part.flatten() for part in found]).double()

    def mean(self, models, group):
        return sum(self.shares[i] * models[i] for i in group) / self.shares[group].sum()

    def check(self, algorithm, models, rounds):
        """Train, and compare with the models [N, P] that were made by hand."""
        state, info = play(Stacked(self.subject, seed=3), algorithm, PLAIN, rounds, INNER)
        found = torch.cat([tensor.flatten(1) for tensor in state.models.values()], 1)
        torch.testing.assert_close(found.double(), torch.stack(list(models)), rtol=1e-3, atol=1e-5)
        return state, info


def rounds_of(count):
    return [range(INNER * number, INNER * (number + 1)) for number in range(count)]


def sides(count):
    """Every way to cut into two."""
    whole = set(range(count))
    return [
        [sorted(side), sorted(whole - set(side))]
        for size in range(1, count // 2 + 1)
        for side in combinations(range(count), size)
    ]


def closest(ways, cut):
    return max(float(F.cosine_similarity(ways[i], ways[k], dim=0)) for i in cut[0] for k in cut[1])
