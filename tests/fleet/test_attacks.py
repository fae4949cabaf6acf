"""Liars do little harm to honest clients, and what cannot be a gradient is never averaged."""

from functools import partial

import pytest
import torch

from allforone.algorithms import ALGORITHMS
from allforone.errors import InputError
from allforone.fleet import ATTACKS, Attack, Attacked, Loop, Optimizer, Stacked, row
from allforone.problems import synthetic

from ..rounds import at, evaluate, gradients, train
from .models import problem

EVERYONE = torch.full((4, 4), 0.25, dtype=torch.float64)


def attacked(kind, model="perceptron", liars=1, honest=Stacked):
    return Attacked(honest(problem(model), seed=3, batch_size=4), Attack(kind, liars))


@pytest.mark.parametrize("honest", [Stacked, Loop])
@pytest.mark.parametrize("model", ["perceptron", "wide", "convolution", "batch norm", "dropout"])
def test_without_its_liars_the_fleet_is_the_usual_one(model, honest):
    fleet, plain = attacked("flip", model, honest=honest), Stacked(problem(model), seed=3, batch_size=4)
    fleet.liars = []
    models = plain.initial()
    ours, theirs = (gradients(made, models, EVERYONE, 0) for made in (fleet, plain))
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-6) for name in ours)
    for mine, its in zip(*(made.compare(models, at(made, 0)) for made in (fleet, plain)), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("honest", [Stacked, Loop])
def test_a_flipped_gradient_is_the_opposite_for_all_and_in_the_statistics_too(honest):
    fleet, plain = attacked("flip", honest=honest), Loop(problem("perceptron"), seed=3, batch_size=4)
    liar = fleet.liars[0]
    only = torch.zeros(4, 4, dtype=torch.float64)
    only[:, liar] = 1
    models = plain.initial()
    lie, truth = (gradients(made, models, only, 0) for made in (fleet, plain))
    assert all(torch.allclose(lie[name], -truth[name], atol=1e-6) for name in plain.trained)
    other = (liar + 1) % 4
    batches = plain.batches.of(torch.ones(4), 0)
    halves = [(slice(0, 2)), (slice(2, 4))]
    mean = {
        k: torch.stack(
            [
                torch.cat(
                    [
                        g.flatten()
                        for g in plain.passes.gradient(
                            row(models, other), other, k, (batches[k][0][half], batches[k][1][half]), 0
                        )[0].values()
                    ]
                )
                for half in halves
            ]
        ).mean(0)
        for k in (other, liar)
    }
    expected = (-mean[liar] - mean[other]).square().sum().double()
    torch.testing.assert_close(
        fleet.compare(models, at(fleet, 0)).distance[other, liar], expected, rtol=1e-4, atol=1e-8
    )


@pytest.mark.parametrize("honest", [Stacked, Loop])
@pytest.mark.parametrize("kind", ["nan", "inf", "short"])
def test_what_is_no_gradient_is_refused_and_counted_and_the_others_take_its_weight(kind, honest):
    fleet, plain = attacked(kind, honest=honest), Stacked(problem("perceptron"), seed=3, batch_size=4)
    models = plain.initial()
    without = EVERYONE.clone()
    without[:, fleet.liars] = 0
    ours, theirs = gradients(fleet, models, EVERYONE, 0), gradients(plain, models, without * 4 / 3, 0)
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-6) for name in ours)
    refused = fleet.ledger.refused
    assert refused.nonzero().flatten().tolist() == fleet.liars and refused.sum() == 3  # by the others
    assert fleet.compare(models, at(fleet, 0)).distance[:, fleet.liars].isnan().all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in ATTACKS if kind != "mimicry"])
def test_honest_clients_stay_far_below_local_whatever_four_of_twenty_send(kind):
    subject = synthetic(seed=127, dimension=2)
    fleet = Attacked(Stacked(subject, seed=127), Attack(kind, 4))
    optimizer = Optimizer(partial(torch.optim.SGD, lr=subject.settings.optimizer["lr"]))
    result = train(fleet, ALGORITHMS["all-for-one"](), optimizer, 40, evaluate_every=40)
    honest = [k for k in range(20) if k not in fleet.liars]
    assert evaluate(fleet, result.stacked).excess[honest].clamp(min=1e-28).log10().mean() < -15  # Local: −11
    assert result.weights[-1][honest][:, fleet.liars].sum(1).max() < 0.2


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
