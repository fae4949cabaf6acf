"""Partners whose difference is known still lower the noise; where it is not known, nothing is corrected."""

from functools import partial

import pytest
import torch

import allforone as afo
from allforone.algorithms import AllForOne, advance
from allforone.algorithms import all_for_one as module
from allforone.collaboration import correction
from allforone.collaboration.least_error import Difference, Setting
from allforone.fleet import Optimizer, Stacked
from allforone.problems import synthetic

SETTING = Setting(torch.eye(2, dtype=torch.bool), torch.ones(2, 2), torch.zeros(2, 2), torch.ones(2), torch.zeros(2))


def table(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def seen(length, chance):
    return Difference(torch.zeros(2, 2, 1), table([0, length], [length, 0]), table([0, chance], [chance, 0]))


def record(came, foretold=1.0):
    return {"came": table([0, came], [came, 0]), "foretold": table([0, foretold], [foretold, 0])}


@pytest.mark.parametrize(
    ("length", "chance", "came", "corrected"),
    [(1.0, 0.0, 1.0, 1.0), (1.0, 0.1, 1.0, 0.6), (1.0, 0.3, 1.0, 0.0), (1.0, 0.0, 0.5, 0.5), (1.0, 0.0, -2.0, 0.0)],
)
def test_a_difference_is_corrected_as_far_as_it_stands_out_and_came_again(length, chance, came, corrected):
    share = correction.share(record(came), seen(length, chance), SETTING)
    torch.testing.assert_close(share, table([0, corrected], [corrected, 0]))


def test_differences_never_foretold_are_not_corrected():
    assert not correction.share(correction.no_record(2, 2), seen(1.0, 0.0), SETTING).any()


def test_the_step_is_that_of_the_partners_gradients_less_their_known_differences():
    random = torch.Generator().manual_seed(0)
    weights, corrected = torch.rand(2, 3, 3, generator=random, dtype=torch.float64)
    mean = torch.randn(3, 3, 5, generator=random, dtype=torch.float64)
    size = torch.randn(3, generator=random, dtype=torch.float64)
    shift = correction.shift(weights, corrected, Difference(mean, weights, weights), size)
    for i in range(3):
        expected = sum(weights[i, k] * corrected[i, k] * mean[i, k] * size[i].exp().sqrt() for k in range(3))
        torch.testing.assert_close(shift[i], expected)


def excess(algorithm, problem, rounds, seed):
    fleet = Stacked(problem, seed=seed)
    state = algorithm.init(fleet.initial(), Optimizer(partial(torch.optim.SGD, lr=0.125)))
    for n in range(rounds):
        state, _ = advance(algorithm, state, fleet, fleet.begin(n + 1, range(n, n + 1)))
    return float(fleet.evaluate(state.models, fleet.begin(0, range(0))).excess.log10().mean())


def test_where_every_optimum_is_another_and_labels_are_noisy_correction_gains():
    gains = []
    for seed in (11, 12):
        problem = synthetic(seed=seed, dimension=5, clients=12, clusters=1, spread=1.0, noise=1.0)
        without, corrected = (excess(AllForOne(correct=way), problem, 150, seed) for way in (False, True))
        gains.append(without - corrected)
    assert sum(gains) / 2 > 0.05


def test_between_two_looks_the_weights_stay_and_nobody_sends_but_for_updates():
    result = afo.train(afo.digits(clients=4), algorithm=AllForOne(every=3), rounds=6)
    weights = result.weights
    assert torch.equal(weights[0], weights[1]) and torch.equal(weights[1], weights[2])
    assert torch.equal(weights[3], weights[5]) and not torch.equal(weights[2], weights[3])
    sent = result.metrics.filter(result.metrics["client"] == 0).sort("round")["messages"].diff().to_list()[1:]
    updates = [2 * 10 * int((w != 0).sum() - 4) for w in weights]
    assert sent == [now + looking for now, looking in zip(updates, [2 * 12 - 12, 0, 0] * 2, strict=True)]


@pytest.mark.parametrize(
    "options",
    [{"samples": 0}, {"sketch": 1.5}, {"every": 0}, {"every": True}, {"correct": 1}, {"every": 2, "correct": True}],
)
def test_options_that_make_no_sense_are_refused_by_name(options):
    with pytest.raises(afo.InputError, match=next(iter(options))):
        AllForOne(**options)


def test_correction_that_does_not_fit_is_refused_before_anything_is_done(monkeypatch):
    monkeypatch.setattr(module, "MOST_DIFFERENCES", 100)
    with pytest.raises(afo.InputError, match="train without it"):
        afo.train(afo.digits(clients=3), algorithm=AllForOne(correct=True), rounds=1)


def test_who_comes_back_between_two_looks_trains():
    here = [torch.tensor([True, True, False, True]), torch.ones(4, dtype=torch.bool)]
    fleet = Stacked(afo.digits(clients=4), seed=1, participation=lambda step: here[min(step, 1)])
    algorithm = AllForOne(every=2)
    state = algorithm.init(fleet.initial(), Optimizer(partial(torch.optim.SGD, lr=0.1)))
    for n in range(2):
        before = state.models
        state, info = advance(algorithm, state, fleet, fleet.begin(n + 1, range(n, n + 1)))
    torch.testing.assert_close(info.weights.sum(1), torch.ones(4, dtype=torch.float64))
    assert not torch.equal(state.models["0.weight"][2], before["0.weight"][2])
