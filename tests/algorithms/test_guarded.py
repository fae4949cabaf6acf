import math
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import allforone as afo
from allforone.algorithms import FedAvg, Guarded, Local, Oracle
from allforone.algorithms.guarded import KEPT, judge, latest, relative_difference
from allforone.errors import InputError, Notice
from allforone.fleet import Optimizer, Stacked
from allforone.problems import Problem, digits, hold_out, synthetic
from allforone.runs import Result

from ..rounds import train

pytestmark = pytest.mark.slow

SGD = Optimizer(partial(torch.optim.SGD, lr=0.2))


def run(problem: Problem, algorithm: object, rounds: int, inner: int = 1, optimizer: Optimizer = SGD) -> Result:
    return train(Stacked(problem, seed=127), algorithm, optimizer, rounds, inner)


def equal(one: Result, other: Result) -> bool:
    return all(torch.equal(one.stacked[name], other.stacked[name]) for name in one.stacked)


def test_where_averaging_hurts_every_client_is_given_its_local_model() -> None:
    problem = synthetic(dimension=2, clients=8)
    guarded, local = run(problem, Guarded(FedAvg()), 40), run(problem, Local(), 40)
    assert guarded.guard["alone"].all()
    assert equal(guarded, local)


def test_where_collaboration_helps_the_guard_changes_nothing_and_says_so() -> None:
    problem = synthetic(dimension=10, clients=8)
    guarded, oracle = run(problem, Guarded(Oracle()), 100), run(problem, Oracle(), 100)
    assert not guarded.guard["alone"].any()
    assert (guarded.guard["low"] > 0).all()
    assert equal(guarded, oracle)


def test_one_client_of_another_kind_alone_is_given_its_local_model() -> None:
    twins = synthetic(dimension=2, clients=8, clusters=1).clients[:7]
    stranger = synthetic(dimension=2, clients=1, clusters=1, seed=496).clients
    problem = replace(synthetic(dimension=2, clients=8), clients=[*twins, *stranger])
    found = run(problem, Guarded(FedAvg()), 60).guard
    assert found["alone"][7]
    assert found["gain"][7] < 0


def test_the_held_out_fifth_is_trained_on_by_nobody_and_what_is_left_is_the_rest() -> None:
    data = (torch.arange(50.0)[:, None], torch.arange(50.0)[:, None])
    clients = [afo.Client(data, data), afo.Client(data, data)]
    problem = Problem(partial(nn.Linear, 1, 1), F.mse_loss, clients=clients)
    for client in hold_out(problem, 0.2, seed=1).clients:
        kept, held = (
            set(part.take(torch.arange(len(part)))[1].flatten().tolist())  # type: ignore[arg-type]
            for part in (client.train, client.held)
        )
        assert len(held) == 10 and not kept & held and kept | held == set(range(50))


def test_a_guarded_run_draws_no_more_samples_for_finite_data() -> None:
    problem = hold_out(digits(), 0.2, seed=127)
    guarded, plain = (run(problem, algorithm, 3, 5) for algorithm in (Guarded(Oracle()), Oracle()))
    assert guarded.metrics["samples"].to_list() == plain.metrics["samples"].to_list()


def test_a_stream_is_judged_on_batches_before_they_are_trained_on_which_count_once() -> None:
    problem = synthetic(dimension=2, clients=4)
    guarded, plain = (run(problem, algorithm, 10) for algorithm in (Guarded(Oracle()), Oracle()))
    assert guarded.metrics["samples"].to_list() == plain.metrics["samples"].to_list()


def test_who_is_absent_is_not_judged() -> None:
    here = [True, False, True, False]
    fleet = Stacked(synthetic(dimension=2, clients=4), seed=127, participation=lambda step: here)
    losses, _ = fleet.new_losses(fleet.initial(), fleet.begin(1, range(3)))
    assert losses.isfinite().any(1).tolist() == here


def test_a_loss_that_is_not_finite_counts_as_much_worse() -> None:
    alone = torch.ones(4, 20, dtype=torch.float64)
    together = alone.clone()
    together[0], together[1, 0], together[2] = math.inf, math.inf, math.nan
    found = relative_difference(together, alone)
    assert (found[0] == 2).all() and found[1, 0] == 2 and (found[1, 1:] == 0).all() and (found[2] == 2).all()
    assert judge(found).alone.tolist() == [True, False, True, False]
    assert relative_difference(torch.full((1, 3), math.nan), torch.full((1, 3), math.nan)).isnan().all()


def test_a_run_without_a_guard_has_no_verdict_and_says_so() -> None:
    with pytest.raises(InputError, match="no guard watched"):
        _ = run(synthetic(dimension=2, clients=4), Local(), 2).guard


def test_the_gain_is_told_as_a_share_of_the_local_loss() -> None:
    result = run(synthetic(dimension=10, clients=8), Guarded(Oracle()), 100)
    assert (result.guard["gain"] <= 1).all() and (result.guard["gain"] > 0.9).all()


def test_too_little_data_for_a_guard_names_the_client_and_how_much_it_needs() -> None:
    data = (torch.zeros(12, 3), torch.zeros(12, dtype=torch.long))
    clients = [afo.Client(data, data, name="Basel")]
    with pytest.raises(InputError, match=r"client 0 \(Basel\).*12 training samples.*at least 25"):
        afo.train(nn.Linear(3, 2), clients, loss=F.cross_entropy, guard=True)


def test_a_site_too_small_for_the_guard_is_exempt_and_the_others_are_watched() -> None:
    problem = digits(clients=4)
    inputs, targets = problem.clients[2].train.tensors  # type: ignore[union-attr, misc]
    small = afo.Client((inputs[:12], targets[:12]), (inputs[12:], targets[12:]))
    problem = replace(problem, clients=[*problem.clients[:2], small, problem.clients[3]])
    with pytest.warns(Notice, match="the guard does not watch client 2: too few"):
        found = afo.train(problem, algorithm=FedAvg(), rounds=3, inner=5, guard=True).guard
    assert found["low"].is_null().to_list() == [False, False, True, False]
    assert not found["alone"][2]


def test_train_tells_each_clients_gain_with_its_interval(tmp_path) -> None:  # type: ignore[no-untyped-def]
    problem = digits()
    result = afo.train(
        problem.model, list(problem.clients), loss=F.cross_entropy, rounds=3, inner=5, guard=True, out=tmp_path / "run"
    )
    assert result.guard.columns == ["client", "gain", "low", "high", "alone"]
    assert (result.guard["low"] <= result.guard["gain"]).all() and len(result.guard) == 10
    again = afo.train(
        problem.model,
        list(problem.clients),
        loss=F.cross_entropy,
        rounds=4,
        inner=5,
        guard=True,
        out=tmp_path / "run",
        resume=True,
    )
    whole = afo.train(problem.model, list(problem.clients), loss=F.cross_entropy, rounds=4, inner=5, guard=True)
    assert all(torch.equal(again.stacked[name], whole.stacked[name]) for name in whole.stacked)


@given(st.lists(st.floats(-1, 1), min_size=5, max_size=KEPT), st.floats(-1, 1))
def test_the_interval_moves_with_the_differences_and_falls_back_only_when_all_of_it_says_hurt(
    values: list[float],
    shift: float,
) -> None:
    row = torch.full((1, KEPT), math.nan, dtype=torch.float64)
    row[0, -len(values) :] = torch.tensor(values, dtype=torch.float64)
    verdict, shifted = judge(row), judge(row + shift)
    assert math.isclose(float(shifted.gain), float(verdict.gain) - shift, abs_tol=1e-9)
    assert math.isclose(float(shifted.margin), float(verdict.margin), abs_tol=1e-6)
    assert bool(verdict.alone) == bool(verdict.gain + verdict.margin < 0)


def test_intervals_at_95_percent_hold_the_truth_in_95_of_100_cases() -> None:
    random = torch.Generator().manual_seed(0)
    differences = torch.randn(20_000, KEPT, generator=random, dtype=torch.float64) - 0.3
    verdict = judge(differences)
    held = ((verdict.gain - 0.3).abs() < verdict.margin).double().mean()
    assert abs(float(held) - 0.95) < 0.01


def test_held_out_data_replace_what_they_said_before_and_the_absent_keep_theirs() -> None:
    before = torch.ones(3, KEPT, dtype=torch.float64)
    fresh = torch.full((3, KEPT), math.nan, dtype=torch.float64)
    fresh[:, :4] = 7
    held, present = torch.tensor([True, False, False]), torch.tensor([True, True, False])
    after = latest(before, fresh, held, present)
    assert (after[0] == 7).sum() == 4 and after[0].isnan().sum() == KEPT - 4
    assert (after[1] == 7).sum() == 4 and (after[1] == 1).sum() == KEPT - 4
    assert torch.equal(after[2], before[2])
