"""Batches of any shape give on every fleet what a plain PyTorch loop gives."""

import pytest
import torch

import allforone as afo
from allforone.fleet import Optimizer, Stacked, everybody
from allforone.machines.loop import Loop
from allforone.problems import hold_out

from ..rounds import over
from .any_batch import CASES, CLIENTS
from .plain_loop import SEED, furthest, sgd, trained_by, trained_plainly, uneven

EVERY = pytest.mark.parametrize("name", CASES)
FLEETS = pytest.mark.parametrize("fleet", [Loop, Stacked])
#: Cases of which all partners may go in one pass: those whose batches of the trial are alike.
IN_ONE_PASS = {"image_and_age", "named_items", "tags_of_all_lengths", "two_targets"}


@EVERY
@FLEETS
def test_a_batch_of_any_shape_is_trained_on_as_in_a_plain_loop(name, fleet):
    case = CASES[name]()
    made = fleet(case.problem, seed=SEED, batch_size=6)
    expected = trained_plainly(case.problem, uneven(CLIENTS), 7, 6, call=case.call)
    assert furthest(trained_by(made, uneven(CLIENTS), 7), expected) < 1e-5


@EVERY
def test_fast_ways_are_taken_where_they_are_exact(name):
    made = Stacked(CASES[name]().problem, seed=SEED, batch_size=6)
    assert made.fast.concatenates == (name in IN_ONE_PASS)
    assert made._all_at_once(torch.ones(CLIENTS) > 0) == (name in ("image_and_age", "two_targets"))


@EVERY
@FLEETS
def test_a_model_is_judged_on_test_data_of_any_shape_as_by_hand(name, fleet, monkeypatch):
    monkeypatch.setattr("allforone.fleet.judge.PASSED_NUMBERS", 40)  # several passes
    problem, call = CASES[name]()
    made = fleet(problem, seed=SEED, batch_size=6)
    found = made.evaluate(made.initial(), made.begin(0, range(0))).loss
    model = problem.initial_model(SEED).eval()
    for k, client in enumerate(problem.clients):
        x, y = client.test.take(torch.arange(len(client.test)))
        with torch.no_grad():
            assert torch.isclose(found[k], problem.loss(call(model, x), y).double(), atol=1e-6)


@EVERY
def test_looks_walks_and_new_losses_are_those_of_the_loop(name):
    problem = hold_out(CASES[name]().problem, 0.3, SEED)
    found = []
    for fleet in (Stacked(problem, seed=SEED, batch_size=5), Loop(problem, seed=SEED, batch_size=5)):
        models, round = trained_by(fleet, uneven(CLIENTS), 3), over(fleet, range(3, 6))
        look = fleet.look(models, round, everybody(CLIENTS), 8, 16)
        (walks,) = fleet.walks(models, everybody(CLIENTS), Optimizer(sgd), round, 2)
        new = fleet.new_losses(models, round).losses
        found.append((look.distance, look.noise, walks.ways, new, fleet.losses(models, round), look.read, walks.read))
    for stacked, loop in zip(*found, strict=True):
        assert torch.allclose(stacked.double(), loop.double(), rtol=1e-3, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("name", ["two_targets", "of_all_lengths"])
def test_worker_threads_give_what_one_thread_gives(name):
    problem, found = CASES[name]().problem, []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(trained_by(Stacked(problem, seed=SEED, batch_size=6), uneven(CLIENTS), 3))
    assert all(torch.equal(found[0][key], found[1][key]) for key in found[0])


@pytest.mark.parametrize("name", ["named_items", "of_all_lengths", "two_targets"])
def test_a_run_on_any_batch_goes_on_as_if_it_had_never_stopped(name, tmp_path):
    problem = CASES[name]().problem
    whole = afo.train(problem, rounds=4, batch_size=6)
    afo.train(problem, rounds=2, batch_size=6, out=tmp_path / "run")
    resumed = afo.train(problem, rounds=4, batch_size=6, out=tmp_path / "run", resume=True)
    assert all(torch.equal(whole.stacked[key], resumed.stacked[key]) for key in whole.stacked)
