"""Clients may be absent: only those who are there are asked and updated."""

from functools import partial

import pytest
import torch

import allforone as afo
from allforone.algorithms import ALGORITHMS
from allforone.errors import InputError
from allforone.fleet import Loop, Optimizer, Stacked, restricted
from allforone.problems import synthetic
from allforone.runs.training import Run, train

from .models import problem

HERE = torch.tensor([True, False, True, True])
ADAM, MOMENTUM = partial(torch.optim.Adam, lr=0.01), partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=0.1)


def partly(step):
    return HERE if step < 4 else ~HERE


@pytest.mark.parametrize("model", ["perceptron", "wide", "batch norm"])
@pytest.mark.parametrize("make", [ADAM, MOMENTUM])
@pytest.mark.parametrize("fleet", [Stacked, Loop])
def test_who_is_absent_stays_as_it_was_and_is_not_asked(fleet, make, model):
    made = fleet(problem(model), seed=3, participation=partly)
    start = made.initial()
    mix = torch.full((4, 4), 0.25, dtype=torch.float64)
    models, optimizer = made.descend(start, mix, Optimizer(make), range(2))
    assert all(models[name][1].equal(start[name][1]) for name in start)
    assert not any(models[name][0].equal(start[name][0]) for name in made.trained)
    assert made.samples[1] == 0 and (made.samples[HERE] > 0).all()
    later, _ = made.descend(models, mix, optimizer, range(4, 6))
    assert all(later[name][HERE].equal(models[name][HERE]) for name in models)  # momentum does not carry them on
    fresh = fleet(problem(model), seed=3).descend(start, torch.eye(4).double(), Optimizer(make), range(4, 6))[0]
    alone = made.descend(models, torch.eye(4).double(), optimizer, range(4, 6))[0]
    if make is MOMENTUM:  # Adam's step counter is common to all
        assert all(torch.allclose(alone[name][1], fresh[name][1], atol=1e-6) for name in start)


def test_weights_among_those_present_keep_their_sum():
    mix = torch.rand(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    among = restricted(mix, HERE)
    torch.testing.assert_close(among.sum(1), torch.where(HERE, mix.sum(1), 0))
    torch.testing.assert_close(among[0, 2] / among[0, 3], mix[0, 2] / mix[0, 3])
    assert (among[:, 1] == 0).all()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_lives_with_absence_and_the_record_tells_who_was_there(algorithm):
    options = {"samples": 4} if algorithm.startswith("all-for-one-") else {}
    fleet = Stacked(problem("perceptron"), seed=3, participation=0.5)
    run = Run(fleet, ALGORITHMS[algorithm](**options), Optimizer(MOMENTUM), 8)
    result = train(run)
    told = result.metrics.filter(result.metrics["round"] > 0)["present"].to_numpy().reshape(8, 4).astype(bool)
    assert (torch.from_numpy(told) == torch.stack([fleet.present(step) for step in range(8)])).all()
    assert 0 < told.mean() < 1
    assert all(tensor.isfinite().all() for tensor in result.stacked.values())


def test_fedavg_averages_those_who_are_there():
    fleet = Stacked(problem("perceptron"), seed=3, participation=lambda step: [True, False, False, False])
    algorithm = afo.FedAvg()
    state, info = algorithm.step(algorithm.init(fleet.initial(), Optimizer(MOMENTUM)), fleet, range(1))
    alone, _ = fleet.descend(fleet.initial(), torch.eye(4).double(), Optimizer(MOMENTUM), range(1))
    assert info.weights[0].tolist() == [1, 0, 0, 0]
    assert all(torch.allclose(state.models[name][3], alone[name][0]) for name in alone)


@pytest.mark.parametrize("wrong", [0.0, -1, 1.5, lambda step: [True]])
def test_a_share_that_is_none_is_refused(wrong):
    with pytest.raises(InputError, match="participation"):
        Stacked(problem("linear"), seed=0, participation=wrong).present(0)


def test_with_three_in_ten_there_collaboration_reaches_far_below_local():
    ends = {}
    for name in ("all-for-one", "local"):
        subject = synthetic(seed=127, dimension=10)
        fleet = Stacked(subject, seed=127, participation=0.3)
        optimizer = Optimizer(partial(torch.optim.SGD, lr=subject.settings.optimizer["lr"]))
        result = train(Run(fleet, ALGORITHMS[name](), optimizer, 300, 1, 300))
        ends[name] = fleet.evaluate(result.stacked).excess.log10().mean()
    assert ends["all-for-one"] <= -10 and ends["local"] > -4


@pytest.mark.parametrize(
    "name", ["all-for-one", "all-for-one-binary", "local", "fedavg", "ditto", "cobo", "wga-bc", "apfl"]
)
def test_a_round_in_which_nobody_is_there_changes_nothing(name):
    problem = synthetic(dimension=2, clients=4)
    fleet = Stacked(problem, seed=1, participation=lambda step: [step != 1] * 4)
    algorithm = ALGORITHMS[name]()
    state = algorithm.init(fleet.initial(), Optimizer(partial(torch.optim.SGD, lr=0.1)))
    first, _ = algorithm.step(state, fleet, range(1))
    second, _ = algorithm.step(first, fleet, range(1, 2))
    assert all(torch.equal(first.models[key], second.models[key]) for key in first.models)
    algorithm.step(second, fleet, range(2, 3))
