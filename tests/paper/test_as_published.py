"""What the paper's authors ran under the names of their own algorithm and of FedAvg; and what that explains."""

import os
from functools import partial
from pathlib import Path

import pytest
import torch

from allforone.algorithms import FedAvg, advance
from allforone.fleet import Optimizer, Round, Stacked
from allforone.paper import as_published
from allforone.paper.as_published import PATIENCE, all_for_one_binary, all_for_one_continuous
from allforone.paper.printed import ACCURACY

from ..fleet.models import problem
from ..rounds import at, play

SGD = partial(torch.optim.SGD, lr=0.05)


def first_round(algorithm):
    fleet = Stacked(problem("linear"), seed=3)
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
    fleet, algorithm = Stacked(problem("linear"), seed=3), all_for_one_continuous(samples=9)
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
def test_as_run_and_averaged_by_its_authors_heart_disease_is_what_the_paper_prints(tmp_path):
    from benchmarks.heart import CHANGES, OURS, accuracy, measured_all

    from allforone.problems import heart_disease

    found = measured_all(tmp_path / "heart.jsonl", workers=1, changes=CHANGES[-1:])
    sizes = [client.size for client in heart_disease().clients]
    for rule in OURS:
        assert accuracy(found, CHANGES[-1], rule, sizes) == pytest.approx(ACCURACY[rule]["heart-disease"][1], abs=0.3)
