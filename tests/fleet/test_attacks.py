"""Liars do little harm to honest clients, and what cannot be a gradient is never averaged."""

from functools import partial

import pytest
import torch

from allforone.algorithms import ALGORITHMS
from allforone.errors import InputError
from allforone.fleet import ATTACKS, Attack, Attacked, Loop, Optimizer, Stacked
from allforone.fleet.base import row
from allforone.problems import synthetic
from allforone.runs.training import Run, train

from .models import problem

EVERYONE = torch.full((4, 4), 0.25, dtype=torch.float64)


def attacked(kind, model="perceptron", liars=1):
    return Attacked(problem(model), seed=3, batch_size=4, attack=Attack(kind, liars))


@pytest.mark.parametrize("model", ["perceptron", "wide", "convolution", "batch norm", "dropout"])
def test_without_its_liars_the_fleet_is_the_usual_one(model):
    fleet, plain = attacked("flip", model), Stacked(problem(model), seed=3, batch_size=4)
    fleet.liars = []
    models = plain.initial()
    ours, theirs = (made.gradients(models, EVERYONE, 0) for made in (fleet, plain))
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-6) for name in ours)
    for mine, its in zip(fleet.compare(models, 0), plain.compare(models, 0), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-3, atol=1e-6)


def test_a_flipped_gradient_is_the_opposite_for_all_and_in_the_statistics_too():
    fleet, plain = attacked("flip"), Loop(problem("perceptron"), seed=3, batch_size=4)
    liar = fleet.liars[0]
    only = torch.zeros(4, 4, dtype=torch.float64)
    only[:, liar] = 1
    models = plain.initial()
    lie, truth = (made.gradients(models, only, 0) for made in (fleet, plain))
    assert all(torch.allclose(lie[name], -truth[name], atol=1e-6) for name in plain.trained)
    honest = (liar + 1) % 4
    batches = plain.batches(torch.ones(4), 0, "update", 4)
    halves = [(slice(0, 2)), (slice(2, 4))]
    mean = {
        k: torch.stack(
            [
                torch.cat(
                    [
                        g.flatten()
                        for g in plain.gradient(
                            row(models, honest), honest, k, (batches[k][0][half], batches[k][1][half]), 0
                        )[0].values()
                    ]
                )
                for half in halves
            ]
        ).mean(0)
        for k in (honest, liar)
    }
    expected = (-mean[liar] - mean[honest]).square().sum().double()
    torch.testing.assert_close(fleet.compare(models, 0).distance[honest, liar], expected, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("kind", ["nan", "inf", "short"])
def test_what_is_no_gradient_is_dropped_and_counted_and_the_others_take_its_weight(kind):
    fleet, plain = attacked(kind), Stacked(problem("perceptron"), seed=3, batch_size=4)
    models = plain.initial()
    without = EVERYONE.clone()
    without[:, fleet.liars] = 0
    ours, theirs = fleet.gradients(models, EVERYONE, 0), plain.gradients(models, without * 4 / 3, 0)
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-6) for name in ours)
    assert fleet.dropped.nonzero().flatten().tolist() == fleet.liars and fleet.dropped.sum() == 3  # by the others
    assert fleet.compare(models, 0).distance[:, fleet.liars].isnan().all()


@pytest.mark.parametrize("kind", [kind for kind in ATTACKS if kind != "mimicry"])
def test_honest_clients_stay_far_below_local_whatever_four_of_twenty_send(kind):
    subject = synthetic(seed=127, dimension=2)
    fleet = Attacked(subject, seed=127, attack=Attack(kind, 4))
    optimizer = Optimizer(partial(torch.optim.SGD, lr=subject.settings.optimizer["lr"]))
    result = train(Run(fleet, ALGORITHMS["all-for-one"](), optimizer, 40, 1, 40))
    honest = [k for k in range(20) if k not in fleet.liars]
    assert fleet.evaluate(result.stacked).excess[honest].clamp(min=1e-28).log10().mean() < -15  # Local: −11
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
