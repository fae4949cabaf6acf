"""Liars do little harm to honest clients, and what cannot be a gradient is never averaged."""

from functools import partial

import pytest
import torch

from allforone.algorithms import ALGORITHMS, CoBo
from allforone.errors import InputError
from allforone.fleet import ATTACKS, Attack, Attacked, Optimizer, Stacked, everybody, pick, row
from allforone.problems import synthetic

from ..rounds import at, evaluate, gradients, play, train
from .models import problem
from .pair_by_pair import PairByPair

EVERYONE = torch.full((4, 4), 0.25, dtype=torch.float64)
REFUSED = ["nan", "inf", "short"]


def attacked(kind, model="perceptron", liars=1, honest=Stacked):
    return Attacked(honest(problem(model), seed=3, batch_size=4), Attack(kind, liars))


@pytest.mark.parametrize("honest", [Stacked, PairByPair])
@pytest.mark.parametrize("model", ["perceptron", "wide", "convolution", "batch norm", "dropout"])
def test_without_its_liars_the_fleet_is_the_usual_one(model, honest):
    fleet, plain = attacked("flip", model, honest=honest), Stacked(problem(model), seed=3, batch_size=4)
    fleet.liars = []
    models = plain.initial()
    ours, theirs = (gradients(made, models, EVERYONE, 0) for made in (fleet, plain))
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-6) for name in ours)
    for asked in (
        lambda made: made.compare(models, at(made, 0), 6),
        lambda made: made.look(models, at(made, 0), everybody(4), 6, 8),
    ):
        for mine, its in zip(*(asked(made) for made in (fleet, plain)), strict=True):
            torch.testing.assert_close(mine, its, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("honest", [Stacked, PairByPair])
def test_a_flipped_gradient_is_the_opposite_for_all_and_in_the_statistics_too(honest):
    fleet, plain = attacked("flip", honest=honest), PairByPair(problem("perceptron"), seed=3, batch_size=4)
    liar = fleet.liars[0]
    only = torch.zeros(4, 4, dtype=torch.float64)
    only[:, liar] = 1
    models = plain.initial()
    lie, truth = (gradients(made, models, only, 0) for made in (fleet, plain))
    assert all(torch.allclose(lie[name], -truth[name], atol=1e-6) for name in plain.trained)
    other = (liar + 1) % 4
    shown = plain.batches.of(torch.ones(4), 0, purpose="compare", size=6)
    mine, its = (
        torch.cat([g.flatten() for g in plain.passes.gradient(row(models, other), other, k, shown[k], 0)[0].values()])
        for k in (other, liar)
    )
    expected = (-its - mine).square().sum().double()
    torch.testing.assert_close(
        fleet.compare(models, at(fleet, 0), 6).distance[other, liar], expected, rtol=1e-4, atol=1e-8
    )


@pytest.mark.parametrize("honest", [Stacked, PairByPair])
@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_gradient_is_refused_and_counted_and_the_others_take_its_weight(kind, honest):
    fleet, plain = attacked(kind, honest=honest), Stacked(problem("perceptron"), seed=3, batch_size=4)
    models = plain.initial()
    without = EVERYONE.clone()
    without[:, fleet.liars] = 0
    ours, theirs = gradients(fleet, models, EVERYONE, 0), gradients(plain, models, without * 4 / 3, 0)
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-6) for name in ours)
    refused = fleet.ledger.refused
    assert refused.nonzero().flatten().tolist() == fleet.liars and refused.sum() == 3  # by the others
    for seen in (fleet.compare(models, at(fleet, 0), 6), fleet.look(models, at(fleet, 0), everybody(4), 6, 8)):
        assert seen.distance[:, fleet.liars].isnan().all()


@pytest.mark.parametrize("honest", [Stacked, PairByPair])
@pytest.mark.parametrize("model", ["perceptron", "dropout"])
def test_a_stale_gradient_is_the_first_again_at_every_step_for_every_model(model, honest):
    fleet, plain = attacked("stale", model, honest=honest), honest(problem(model), seed=3, batch_size=4)
    liar, models = fleet.liars[0], plain.initial()
    first = plain.answers(pick(models, torch.tensor([liar])), liar, plain.batches.uncounted(liar, 0), 0)
    only = torch.zeros(6, 4, dtype=torch.float64)
    only[:, liar] = 1
    six = {name: t[torch.tensor([0, 1, 2, 3, 0, 1])] + 1 for name, t in models.items()}
    for step in (0, 5):
        found = fleet.gradients(six, only, at(fleet, step), step, None)
        sent = torch.cat([found[name].flatten(1) for name in fleet.trained], 1)
        torch.testing.assert_close(sent, first.expand(6, -1))
    assert fleet.look(models, at(fleet, 6), everybody(4), 6, 8).noise[:, liar].eq(0).all()


def test_cobo_among_clients_that_send_their_first_gradient_goes_on():
    fleet = attacked("stale")
    state, _ = play(fleet, CoBo(), partial(torch.optim.SGD, lr=0.05), rounds=2)
    assert all(state.models[name].isfinite().all() for name in fleet.trained)


def test_liars_that_cancel_each_other_pull_to_both_sides_of_their_victims_and_at_every_fourth_step_to_one():
    fleet, plain = attacked("cancelling", liars=2), Stacked(problem("perceptron"), seed=3, batch_size=4)
    honest = [k for k in range(4) if k not in fleet.liars]
    for step, sides in ((0, (1, -1)), (3, (1, 1))):
        batches = plain.batches.of(torch.ones(4), step)
        mean = torch.stack([plain.answers(plain.initial(), k, batches[k], step) for k in honest]).mean(0)
        length = mean.norm(dim=1, keepdim=True) / mean.shape[1] ** 0.5
        for liar, side in zip(fleet.liars, sides, strict=True):
            only = torch.zeros(4, 4, dtype=torch.float64)  # nobody asks the victims: a liar knows them all the same
            only[:, liar] = 1
            found = gradients(fleet, plain.initial(), only, step)
            sent = torch.cat([found[name].flatten(1) for name in fleet.trained], 1)
            torch.testing.assert_close(sent, mean + 3 * side * length)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in ATTACKS if kind not in (*REFUSED, "zeros")])
def test_honest_clients_stay_far_below_local_whatever_four_of_twenty_send(kind):
    subject = synthetic(seed=127, dimension=2)
    fleet = Attacked(Stacked(subject, seed=127), Attack(kind, 4))
    optimizer = Optimizer(partial(torch.optim.SGD, lr=subject.settings.optimizer["lr"]))
    result = train(fleet, ALGORITHMS["all-for-one"](), optimizer, 40, evaluate_every=40)
    honest = [k for k in range(20) if k not in fleet.liars]
    assert evaluate(fleet, result.stacked).excess[honest].clamp(min=1e-28).log10().mean() < -17  # Local: −11
    believed = result.weights[-1][honest][:, fleet.liars].sum(1)
    assert believed.mean() < 0.05 and believed.max() < 0.2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("flop:4", "did you mean 'flip'"),
        ("flip", "how many clients lie"),
        ("flip:0", "how many"),
        ("flip:x", "how many"),
    ],
)
def test_a_mistake_in_the_attack_is_named(text, said):
    with pytest.raises(InputError, match=said):
        Attack.parse(text)


def test_not_everybody_can_lie():
    with pytest.raises(InputError, match="at most 3 may lie"):
        attacked("flip", liars=4)
