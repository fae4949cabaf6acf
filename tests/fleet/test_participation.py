"""Clients may be absent: only those who are there are asked and updated."""

from functools import partial

import pytest
import torch

import allforone as afo
from allforone.algorithms import ALGORITHMS, Info, Weighted, advance
from allforone.errors import InputError
from allforone.fleet import Optimizer, Stacked, among_present, mean
from allforone.machines.loop import Loop
from allforone.problems import synthetic

from ..rounds import at, evaluate, go_on, over, train
from .models import problem

HERE = torch.tensor([True, False, True, True])
ADAM, MOMENTUM = partial(torch.optim.Adam, lr=0.01), partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=0.1)


def alike(one, other, rows=slice(None)):
    """Whether the memories are the same, bit for bit, in these rows of every tensor."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key], rows) for key in one)
    if isinstance(one, Optimizer):
        return alike(slots(one), slots(other), rows)
    return bool(torch.isclose(one[rows], other[rows], rtol=0, atol=0, equal_nan=True).all())


def slots(optimizer):
    """What torch keeps of every row."""
    state = optimizer.state["optimizer"]["state"] if optimizer.state else {}
    return {f"{number} {name}": slot for number, kept in state.items() for name, slot in kept.items() if slot.dim()}


def partly(step):
    return HERE if step < 4 else ~HERE


class Everyone(Weighted):
    """All listen to all, with the same weight."""

    def collaborate(self, state, fleet, round):
        n = len(fleet.roster)
        return Info(torch.full((n, n), 1 / n, dtype=torch.float64)), {}


@pytest.mark.parametrize("model", ["perceptron", "wide", "batch norm"])
@pytest.mark.parametrize("make", [ADAM, MOMENTUM])
@pytest.mark.parametrize("fleet", [Stacked, Loop])
def test_who_is_absent_stays_as_it_was_and_is_not_asked(fleet, make, model):
    made = fleet(problem(model), seed=3, participation=partly)
    start = Everyone().init(made.initial(), Optimizer(make))
    first, _ = advance(Everyone(), start, made, over(made, range(2)))
    assert all(first.models[name][1].equal(start.models[name][1]) for name in start.models)
    assert not any(first.models[name][0].equal(start.models[name][0]) for name in made.trained)
    assert made.ledger.samples[1] == 0 and (made.ledger.samples[HERE] > 0).all()
    later, _ = advance(Everyone(), first, made, made.begin(2, range(4, 6)))
    for name, before in first.models.items():
        assert later.models[name][HERE].equal(before[HERE])  # momentum does not carry them on
    others = fleet(problem(model), seed=3)
    fresh, _ = advance(afo.Local(), start, others, over(others, range(4, 6)))
    alone, _ = advance(afo.Local(), first, made, made.begin(2, range(4, 6)))
    if make is MOMENTUM:  # Adam's step counter is common to all
        assert all(torch.allclose(alone.models[name][1], fresh.models[name][1], atol=1e-6) for name in start.models)


def test_weights_among_those_present_keep_their_sum():
    mix = torch.rand(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    among = among_present(mix, HERE, torch.arange(4))
    torch.testing.assert_close(among.sum(1), torch.where(HERE, mix.sum(1), 0))
    torch.testing.assert_close(among_present(mix, HERE, None).sum(1), mix.sum(1))  # of models that are nobody's
    torch.testing.assert_close(among_present(mix[:2], HERE, torch.tensor([3, 1])).sum(1), mix[:2].sum(1) * HERE[[3, 1]])
    torch.testing.assert_close(among[0, 2] / among[0, 3], mix[0, 2] / mix[0, 3])
    assert (among[:, 1] == 0).all()


#: That every one lives with absence, bit for bit, is proved in tests/algorithms/test_absence.py.
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["all-for-one", "all-for-one-round", "fedavg", "apfl", "ifca"])
def test_algorithms_live_with_absence_for_long_and_the_record_tells_who_was_there(algorithm):
    fleet = Stacked(problem("perceptron"), seed=3, participation=0.5)
    result = train(fleet, ALGORITHMS[algorithm](), Optimizer(MOMENTUM), 8)
    told = result.metrics.filter(result.metrics["round"] > 0)["present"].to_numpy().reshape(8, 4).astype(bool)
    assert (torch.from_numpy(told) == torch.stack([at(fleet, step).present for step in range(8)])).all()
    assert 0 < told.mean() < 1
    assert all(tensor.isfinite().all() for tensor in result.stacked.values())


def test_fedavg_averages_those_who_are_there():
    fleet = Stacked(problem("perceptron"), seed=3, participation=lambda step: [True, False, False, False])
    algorithm = afo.FedAvg()
    start = algorithm.init(fleet.initial(), Optimizer(MOMENTUM))
    state, info = advance(algorithm, start, fleet, over(fleet, range(1)))
    alone, _ = fleet.descend(fleet.initial(), torch.eye(4).double(), Optimizer(MOMENTUM), over(fleet, range(1)))
    assert info.weights[0].tolist() == [1, 0, 0, 0]
    for name, tensor in alone.items():
        assert torch.allclose(state.common["model"][name][0], tensor[0])
        assert torch.allclose(state.models[name][0], tensor[0])
        assert state.models[name][1:].equal(start.models[name][1:])  # the absent are not given it


@pytest.mark.parametrize("wrong", [0.0, -1, 1.5, lambda step: [True]])
def test_a_share_that_is_none_is_refused(wrong):
    with pytest.raises(InputError, match="participation"):
        Stacked(problem("linear"), seed=0, participation=wrong).begin(1, range(1))


@pytest.mark.slow
def test_with_three_in_ten_there_collaboration_reaches_far_below_local():
    ends = {}
    for name in ("all-for-one", "local"):
        subject = synthetic(seed=127, dimension=10)
        fleet = Stacked(subject, seed=127, participation=0.3)
        optimizer = Optimizer(partial(torch.optim.SGD, lr=subject.settings.optimizer["lr"]))
        result = train(fleet, ALGORITHMS[name](), optimizer, 300, evaluate_every=300)
        ends[name] = evaluate(fleet, result.stacked).excess.log10().mean()
    assert ends["all-for-one"] <= -6.5 and ends["local"] > -4  # the oracle: −14


#: One for each kind of question that is asked of streams; all are tried on data in tests/algorithms/test_absence.py.
@pytest.mark.parametrize(
    "name", ["all-for-one", "all-for-one-round", "all-for-one-binary", "apfl", "cobo", "fedala", "fedfomo", "ifca"]
)
def test_a_round_of_streams_in_which_nobody_is_there_changes_nothing(name):
    problem = synthetic(dimension=2, clients=4)
    fleet = Stacked(problem, seed=1, participation=lambda step: [step != 1] * 4)
    algorithm = ALGORITHMS[name]()
    state = algorithm.init(fleet.initial(), Optimizer(partial(torch.optim.SGD, lr=0.1)))
    first, _ = go_on(algorithm, state, fleet, 1)
    second, _ = go_on(algorithm, first, fleet, 1, done=1)
    assert all(torch.equal(first.models[key], second.models[key]) for key in first.models)
    assert alike(first.own, second.own) and alike(first.common, second.common)
    go_on(algorithm, second, fleet, 1, done=2)


@pytest.mark.parametrize("fleet", [Stacked, Loop])
def test_who_is_absent_is_asked_for_no_loss_and_not_judged(fleet):
    made = fleet(problem("perceptron"), seed=3, participation=lambda step: HERE)
    round, models = over(made, range(2)), made.initial()
    assert made.losses(models, round).isfinite().all(0).equal(HERE) and made.ledger.samples[1] == 0
    judged = made.evaluate(models, round)
    assert judged.known.equal(HERE) and judged.loss.isfinite().equal(HERE)
    assert judged.metrics["accuracy"].isfinite().equal(HERE)
    assert evaluate(made, models).known.all()  # before the training, everybody is


def test_a_mean_does_not_read_the_models_of_those_who_are_absent():
    mask = torch.tensor([[0.0, -torch.inf], [torch.nan, torch.inf], [2.0, -torch.inf]])
    assert mean({"mask": mask}, torch.tensor([0.5, 0.0, 0.5]))["mask"].tolist() == [[1.0, -torch.inf]]
