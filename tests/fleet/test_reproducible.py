"""The run's seed decides everything, whatever the model draws from; nothing of the process around it does."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import allforone as afo
from allforone.errors import InputError


def clients(count=4):
    def client(k):
        x = torch.randn(40, 6, generator=torch.Generator().manual_seed(k))
        return afo.Client((x, (x.sum(1) > 0).long()), (x, (x.sum(1) > 0).long()))

    return [client(k) for k in range(count)]


class Jittered(nn.Linear):
    """Draws from Python's and numpy's generators, in training and when it is judged."""

    def forward(self, x):
        return super().forward(x * (1 + random.random()) + float(np.random.rand()))


@pytest.mark.parametrize("fleet", ["loop", "stacked"])
def test_a_forward_pass_that_draws_from_python_and_numpy_follows_the_runs_seed(fleet):
    found = []
    for outside in (1, 2):
        random.seed(outside)
        np.random.seed(outside)
        found.append(afo.train(lambda: Jittered(6, 2), clients(), loss=F.cross_entropy, rounds=3, fleet=fleet))
    one, other = found
    assert all(torch.equal(one.stacked[name], other.stacked[name]) for name in one.stacked)
    assert one.metrics.drop("seconds").equals(other.metrics.drop("seconds"))


@pytest.mark.parametrize("made", [True, False], ids=["module", "function"])
def test_lazy_layers_start_by_the_runs_seed_and_the_users_stay_lazy(made):
    def model():
        return nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.LazyLinear(2))

    given, found = model(), []
    for outside, seed in ((1, 7), (2, 7), (2, 8)):
        torch.manual_seed(outside)
        start = given if made else model
        found.append(afo.train(start, clients(), loss=F.cross_entropy, rounds=1, seed=seed, lr=1e-6).stacked)
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    assert not torch.allclose(found[1]["0.weight"], found[2]["0.weight"], atol=1e-2)
    assert given[0].has_uninitialized_params()


def test_autocast_around_the_training_is_refused_and_inside_the_model_is_not():
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(InputError, match="in the model's forward"):
        afo.train(nn.Linear(6, 2), clients(), loss=F.cross_entropy, rounds=1)

    class Half(nn.Linear):
        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return super().forward(x)

    assert afo.train(Half(6, 2), clients(), loss=F.cross_entropy, rounds=1).models


def test_a_step_size_beside_an_optimizer_is_refused():
    with pytest.raises(InputError, match=r"lr=0.1 is given beside an optimizer.*leave one out"):
        afo.train(nn.Linear(6, 2), clients(), loss=F.cross_entropy, optimizer=torch.optim.SGD, lr=0.1)
