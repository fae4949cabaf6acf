"""A run gone through a second time, next to its bound."""

from functools import partial

import pytest
import torch

from allforone.algorithms import AllForOne, BySimilarity, FedAvg, Local, Oracle
from allforone.collaboration import FreshSamples, continuous
from allforone.errors import InputError
from allforone.fleet import Optimizer, Stacked
from allforone.machines.loop import Loop
from allforone.problems import digits, synthetic
from allforone.runs import carried
from allforone.theory import trajectory

from ..rounds import train

SGD = Optimizer(partial(torch.optim.SGD, lr=0.2))
NOISY = {"dimension": 3, "clients": 6, "noise": 1.0, "spread": 0.1}


def fleet(seed=127, kind=Stacked, **options):
    return kind(synthetic(seed, **{**NOISY, **options}), seed=seed, batch_size=4)


@pytest.mark.slow
@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("inner", [1, 3])
@pytest.mark.parametrize("algorithm", [Local(), AllForOne(), BySimilarity(continuous(), FreshSamples(8), "definition")])
def test_a_trajectory_finds_the_run_again(algorithm, inner, participation):
    def fresh():
        return Stacked(synthetic(127, **NOISY), seed=127, batch_size=4, participation=participation)

    result, found = train(fresh(), algorithm, SGD, 8, inner), trajectory(fresh(), algorithm, SGD, 8, inner)
    metrics = carried(result.metrics)  # who is absent is not judged: its model is as it was
    measured = torch.tensor(metrics["excess_loss"].to_list(), dtype=torch.float64).reshape(9, 6)
    torch.testing.assert_close(found.excess[::inner], measured)
    assert found.bound.shape == (8 * inner + 1, 6)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [Local(), Oracle()])
def test_the_mean_over_many_runs_stays_under_both_bounds(algorithm):
    fleets = [Loop(synthetic(127, **NOISY), seed=seed, batch_size=4) for seed in range(30)]
    runs = [trajectory(fleet, algorithm, SGD, 12) for fleet in fleets]
    excess, bound, sharper = (
        torch.stack([getattr(run, name) for run in runs]).mean((0, 2)) for name in ("excess", "bound", "sharper")
    )
    assert (excess <= bound * (1 + 1e-9)).all()
    assert (excess <= 1.15 * sharper).all()  # the spectrum is flat, so this one is an equality but for chance
    assert (sharper <= bound * (1 + 1e-9)).all()


def test_the_effective_variance_of_the_true_similarity_is_at_most_the_sufficient_one():
    found = trajectory(fleet(spectrum=[0.8, 1.0, 1.2]), AllForOne(), SGD, 20)
    assert (found.effective <= found.sufficient * (1 + 1e-9)).all()
    assert (found.effective <= found.alone * (1 + 1e-9)).all()


def test_alone_the_noise_is_ones_own():
    found = trajectory(fleet(), Local(), SGD, 5)
    torch.testing.assert_close(found.remaining, found.alone)


@pytest.mark.parametrize(
    ("make", "algorithm", "optimizer", "said"),
    [
        (lambda: Stacked(digits(clients=2), seed=1), Local(), SGD, "constants are not known"),
        (fleet, FedAvg(), SGD, "FedAvg: the bound is about"),
        (fleet, Local(), Optimizer(partial(torch.optim.Adam, lr=0.1)), "plain SGD"),
        (fleet, Local(), Optimizer(partial(torch.optim.SGD, lr=0.1, momentum=0.9)), "plain SGD"),
    ],
)
def test_what_the_bound_does_not_speak_of_is_refused(make, algorithm, optimizer, said):
    with pytest.raises(InputError, match=said):
        trajectory(make(), algorithm, optimizer, 2)
