"""On streams every client also goes on alone, and takes the better way once it is sure."""

from functools import partial

import pytest
import torch

from allforone.algorithms import AllForOne, Local, State
from allforone.algorithms.guarded import KEPT
from allforone.algorithms.race import begin, race
from allforone.fleet import Optimizer, Stacked
from allforone.problems import Problem, synthetic
from allforone.testing import MOMENTUM, check_algorithm, small_problem

from ..rounds import evaluate, over, play

SGD = partial(torch.optim.SGD, lr=0.1)


def streams(**options):
    return Stacked(synthetic(seed=5, dimension=3, clients=4, **options), seed=3)


def raced(together, alone, differences):
    """One round of a race whose past differences are these, from given models; the state and the race after it."""
    fleet = streams()
    begun = begin({"weight": alone}, Optimizer(MOMENTUM), 4)
    begun["differences"] = differences
    return race(State({"weight": together}, Optimizer(MOMENTUM)), begun, fleet, over(fleet, range(1)))


def certain(value):
    """Differences that leave no doubt."""
    return value + 1e-3 * torch.randn(4, KEPT, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_who_is_surely_better_alone_goes_on_from_there_and_the_race_begins_anew():
    far, near = torch.full((4, 1, 3), 1e3).double(), torch.zeros(4, 1, 3).double()
    state, after = raced(far, near, certain(1.0))
    assert state.models["weight"].equal(after["alone"]["weight"]) and state.models["weight"].abs().max() < 1e3
    assert after["differences"].isnan().all()


def test_who_is_surely_better_together_is_followed_by_its_other_self():
    far, near = torch.full((4, 1, 3), 1e3).double(), torch.zeros(4, 1, 3).double()
    state, after = raced(near, far, certain(-1.0))
    assert state.models["weight"].equal(near) and after["alone"]["weight"].equal(near)
    assert after["differences"].isnan().all()


def test_while_nothing_is_sure_both_go_their_own_way():
    start = torch.zeros(4, 1, 3).double()
    state, after = raced(start, start + 0.1, torch.full((4, KEPT), torch.nan).double())
    assert state.models["weight"].equal(start) and not after["alone"]["weight"].equal(start)
    assert (~after["differences"].isnan()).sum(1).eq(1).all()


def test_clients_of_finite_data_do_not_race():
    state, _ = play(Stacked(small_problem(), seed=3), AllForOne(), SGD, rounds=2)
    assert "race" not in state.own


def test_beside_streams_those_of_finite_data_keep_their_models():
    made = synthetic(seed=5, dimension=3, clients=3)
    clients = [
        *made.clients[:2],
        type(made.clients[2])(made.clients[2].train.draw(20, torch.Generator()), made.clients[2].test),
    ]
    fleet = Stacked(Problem(made.model, made.loss, settings=made.settings, clients=clients), seed=3)
    state, _ = play(fleet, AllForOne(), SGD, rounds=6)
    assert state.own["race"]["differences"][2].isnan().all() and all(t.isfinite().all() for t in state.models.values())


def test_it_takes_no_more_samples_than_training_alone():
    fleets = [streams(), streams()]
    for fleet, algorithm in zip(fleets, (AllForOne(), Local()), strict=True):
        play(fleet, algorithm, SGD, rounds=5, inner=2)
    assert fleets[0].ledger.samples.equal(fleets[1].ledger.samples)


@pytest.mark.slow
def test_of_streams_too_all_promises_of_an_algorithm_are_kept():
    for algorithm in (AllForOne(), AllForOne(exchange="round")):
        check_algorithm(algorithm, synthetic(seed=5, dimension=3, clients=3, noise=0.5))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"spread": 0.3}, {"spread": 3.0}, {"clients": 12, "clusters": 12, "dimension": 4}])
def test_where_nobody_is_alike_it_is_not_behind_training_alone_by_a_third_of_a_decade(options):
    problem = synthetic(seed=11, **options)
    reached = {}
    for algorithm in (AllForOne(), Local()):
        fleet = Stacked(problem, seed=11)
        make = partial(torch.optim.SGD, lr=problem.settings.optimizer["lr"])
        state, _ = play(fleet, algorithm, make, rounds=40)
        reached[algorithm.name] = float(-evaluate(fleet, state.models).excess.log10().mean())
    assert reached["all-for-one"] > reached["local"] - 0.3
