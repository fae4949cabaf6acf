"""What each site gains over training alone, and how sure that is."""

import pytest
import torch

import allforone as afo
from allforone.errors import InputError

from .sites import hospitals


def test_a_gain_is_the_difference_of_two_plain_evaluations():
    result = afo.train(hospitals(), rounds=4, algorithm=afo.FedAvg())
    alone = afo.train(hospitals(), rounds=4, algorithm=afo.Local())
    table, problem = result.gains("loss"), hospitals()
    assert table["site"].to_list() == ["Hospital A", "Hospital B", "Hospital C"]
    for number, line in enumerate(table.iter_rows(named=True)):
        inputs, targets = problem.clients[number].test.tensors
        ours, theirs = (problem.loss(r.model(number)(inputs), targets).item() for r in (result, alone))
        assert line["gain"] == pytest.approx(theirs - ours, abs=1e-6)
        assert line["low"] < line["gain"] < line["high"]
    assert table["gain"][1] < 0 and table["high"][1] < 0  # the average is surely wrong for the one that differs


def test_the_interval_is_students_over_parts_of_the_test_data():
    from scipy.stats import ttest_1samp

    result = afo.train(hospitals(), rounds=4, algorithm=afo.FedAvg())
    alone, problem = result.alone, hospitals()
    inputs, targets = problem.clients[2].test.tensors
    parts = [
        (problem.loss(alone.model(2)(x), y) - problem.loss(result.model(2)(x), y)).item()
        for x, y in zip(inputs.tensor_split(20), targets.tensor_split(20), strict=True)
    ]
    low, high = ttest_1samp(parts, 0).confidence_interval(0.95)
    line = result.gains("loss").row(2, named=True)
    assert (line["high"] - line["low"]) == pytest.approx(high - low, rel=1e-4)
    assert (line["high"] + line["low"]) / 2 == pytest.approx((low + high) / 2, abs=1e-5)


def test_the_metric_of_the_run_is_taken_and_higher_is_better():
    result = afo.train(hospitals(), rounds=4, algorithm=afo.FedAvg())
    table = result.gains()
    assert set(table["metric"]) == {"accuracy"}
    assert table["gain"].to_list() == (table["ours"] - table["alone"]).to_list()
    with pytest.raises(InputError, match="known: accuracy, loss"):
        result.gains("auc")


def test_who_trains_alone_gains_nothing_and_a_known_loss_is_sure():
    result = afo.train(afo.synthetic(clients=4), rounds=3, algorithm=afo.Local())
    table = result.gains()
    assert table.select("gain", "low", "high").unique().rows() == [(0, 0, 0)]


def test_a_run_that_was_ended_early_is_compared_with_one_of_as_many_rounds():
    result = afo.train(hospitals(), rounds=6, callbacks=[lambda round: round.number == 2])
    assert result.rounds == 2 and result.alone.rounds == 2
    alone = afo.train(hospitals(), rounds=2, algorithm=afo.Local())
    assert all(result.alone.stacked[name].equal(alone.stacked[name]) for name in alone.stacked)


def test_a_guarded_run_is_compared_on_the_same_share_of_its_data():
    result = afo.train(hospitals(), rounds=2, guard=True)
    assert result.alone.config.guard and result.alone.roster == result.roster
    assert torch.tensor(result.gains()["gain"].to_list()).isfinite().all()
