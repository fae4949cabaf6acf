"""What the paper's authors ran under the names of their own algorithm and of FedAvg; and what that explains."""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from benchmarks.heart import CHANGES, PRINTED, accuracy, changes_table, kept_as
from benchmarks.judge import accuracies
from benchmarks.resplits import RULES, WORLDS, gains

from allforone.algorithms import FedAvg, advance
from allforone.fleet import Optimizer, Round, Stacked
from allforone.paper import as_published
from allforone.paper.as_published import PATIENCE, all_for_one_binary, all_for_one_continuous
from allforone.paper.printed import ACCURACY
from allforone.problems import heart_disease

from ..fleet.models import problem
from ..problems.test_formats import write_heart
from ..rounds import at, play

SGD = partial(torch.optim.SGD, lr=0.05)


def first_round(algorithm):
    fleet = Stacked(problem("linear", sizes=(12, 30)), seed=3)
    state = algorithm.init(fleet.initial(), Optimizer(SGD))
    r = algorithm.estimator(fleet, state.models, {}, at(fleet, 0))[0].similarity
    return r, algorithm.collaborate(state, fleet, at(fleet, 0))[0].weights, fleet.roster.sizes


def test_binary_weights_follow_data_and_continuous_ones_do_not():
    r, weights, sizes = first_round(all_for_one_binary(threshold=0.1, samples=9))
    expected = (r >= 0.1) * sizes
    torch.testing.assert_close(weights, expected / expected.sum(1, keepdim=True))
    assert len(sizes.unique()) > 1 and (r > 0).sum() > len(r)
    r, weights, _ = first_round(all_for_one_continuous(samples=9))
    torch.testing.assert_close(weights, r / r.sum(1, keepdim=True))


def test_who_was_unlike_five_times_running_is_never_listened_to_again():
    fleet, algorithm = Stacked(problem("linear", sizes=(12, 30)), seed=3), all_for_one_continuous(samples=9)
    state = algorithm.init(fleet.initial(), Optimizer(SGD))
    unlike = torch.zeros(4, 4, dtype=torch.float64)
    unlike[0, 1:] = PATIENCE
    unlike[1, 2] = PATIENCE - 1
    everybody, some = torch.ones(4, dtype=torch.bool), torch.tensor([True, True, False, True])
    info, own = algorithm.collaborate(state._replace(own={"unlike": unlike}), fleet, Round(1, range(1), everybody))
    assert info.weights[0].tolist() == [1, 0, 0, 0] and (own["unlike"][0, 1:] == PATIENCE + 1).all()
    assert (own["unlike"] == 0)[1:].equal((info.similarity > 0)[1:])
    _, own = algorithm.collaborate(state._replace(own={"unlike": unlike}), fleet, Round(1, range(1), some))
    assert own["unlike"][1, 2] == PATIENCE - 1  # who is not there says nothing


def test_the_last_client_has_no_part_in_fedavg_and_is_given_it():
    everybody = problem("perceptron")
    ours, info = play(Stacked(everybody, seed=3), as_published.FedAvg(), SGD, rounds=3, inner=2)
    assert (info.weights[:, -1] == 0).all() and info.weights.sum(1).allclose(torch.ones(4).double())
    fleet = Stacked(everybody, seed=3)
    state = FedAvg().init(fleet.initial(), Optimizer(SGD))
    for number in range(3):
        present = torch.tensor([True, True, True, False])
        round = Round(number + 1, range(2 * number, 2 * number + 2), present)
        state, _ = advance(FedAvg(), state, fleet, round)
    for name, tensor in ours.models.items():
        torch.testing.assert_close(tensor, state.common["model"][name].expand_as(tensor))


@pytest.mark.slow
@pytest.mark.skipif(
    not Path(os.environ.get("ALLFORONE_DATA", "/nowhere"), "heart_disease").is_dir(),
    reason="the real data are not here: set ALLFORONE_DATA to a folder with heart_disease",
)
def test_as_run_and_averaged_by_its_authors_heart_disease_is_what_the_paper_prints():
    """Of the 25 rounds the first ten: from then on the step is a hundredth, and nothing moves."""
    change = CHANGES[-1]._replace(world=replace(CHANGES[-1].world, rounds=10))
    sizes = [client.size for client in heart_disease().clients]
    for rule, make in change.rules.items():
        name = change.world.name, kept_as(rule, make)
        found = {(*name, seed): accuracies(change.world, make, seed) for seed in change.world.seeds}
        assert accuracy(found, change, rule, sizes) == pytest.approx(ACCURACY[rule]["heart-disease"][1], abs=0.3)


def test_each_row_of_single_changes_has_one_change_more():
    """Of four clients, of 10, 20, 30 and 40 samples, with accuracies in that order."""
    found = {
        (change.world.name, kept_as(rule, make), seed): [10.0, 20.0, 30.0, 40.0 + (change.world is PRINTED)]
        for change in CHANGES
        for rule, make in change.rules.items()
        for seed in change.world.seeds
    }
    means = [accuracy(found, change, "local", [10, 20, 30, 40]) for change in CHANGES]
    assert means == pytest.approx([30.4, 30, 1400 / 60, 20, 20])
    rows = [[cell.text for cell in row] for row in changes_table(found, [10, 20, 30, 40]).rows]
    assert rows[2][3] == "23.3 (-6.7)" and rows[-1] == ["the paper prints", "82.3", "82.1", "82.1", "75.2"]


def test_gains_over_alone_are_paired_by_split(monkeypatch, tmp_path):
    monkeypatch.setenv("ALLFORONE_DATA", str(tmp_path))
    write_heart(tmp_path)
    world = replace(WORLDS["apart"], seeds=(0, 1))
    found = {(world.name, rule, seed): [50.0 + 10 * seed] * 4 for rule in RULES for seed in world.seeds}
    found |= {(world.name, "FedAvg", seed): [51.0 + 12 * seed, 50 + 10 * seed, 0, 0] for seed in world.seeds}
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in gains(found, world, [3, 1, 0, 0]).rows}
    assert rows["Local"] == ["55.0"] * 5 and rows["pooled"] == ["+0.00 ± 0.00"] * 5
    assert rows["FedAvg"][:2] == ["+2.00 ± 1.00", "+0.00 ± 0.00"] and rows["FedAvg"][4] == "+1.50 ± 0.75"
