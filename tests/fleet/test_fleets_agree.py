"""The fast fleet gives what the plain loop gives, for every algorithm and every kind of model."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

import allforone as afo
from allforone.algorithms import ALGORITHMS
from allforone.fleet import Stacked, everybody
from allforone.machines.loop import Loop

from ..rounds import at, evaluate, play
from .models import MODELS, problem


def options(name: str) -> dict:
    return {"samples": 9} if ("-binary" in name or "-continuous" in name) else {}


MOMENTUM = partial(torch.optim.SGD, lr=0.05, momentum=0.9)


def run(fleet, algorithm, rounds=2, inner=2, make=MOMENTUM):
    return play(fleet, algorithm, make, rounds, inner)


def assert_same(fast, plain):
    for name in plain:
        torch.testing.assert_close(fast[name], plain[name], rtol=2e-4, atol=2e-5)


#: One for each question of a fleet: looks, walks, rows of its own and of others, losses; comparisons are asked below.
ASKING = ["all-for-one", "all-for-one-round", "apfl", "ifca"]
#: One for each way of a pass: all at once, concatenated, one by one. On the last, which has buffers, every algorithm is
#: tried, as on one like the first in tests/test_testing.py.
WAYS = {name: [*ASKING, "all-for-one-binary", "ditto"] for name in ("perceptron", "wide")} | {"batch norm": ALGORITHMS}
PAIRS = [(model, name) for model in MODELS for name in WAYS.get(model, ASKING)]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "algorithm"), PAIRS)
def test_stacked_equals_loop(model, algorithm):
    made = ALGORITHMS[algorithm](**options(algorithm))
    fast, plain = (fleet(problem(model), seed=3) for fleet in (Stacked, Loop))
    (fast_state, fast_info), (plain_state, plain_info) = run(fast, made), run(plain, made)
    assert_same(fast_state.models, plain_state.models)
    torch.testing.assert_close(fast_info.weights, plain_info.weights, rtol=1e-3, atol=1e-5)
    assert fast.ledger.samples.equal(plain.ledger.samples)
    torch.testing.assert_close(
        evaluate(fast, fast_state.models).loss, evaluate(plain, plain_state.models).loss, rtol=1e-3, atol=1e-5
    )


ASKED = {
    "compare": lambda fleet: fleet.compare(fleet.initial(), at(fleet, 7), 9),
    "look": lambda fleet: fleet.look(fleet.initial(), at(fleet, 7), everybody(len(fleet.roster)), 9, 16),
}


SIZES = {"perceptron": (1, 3, 6), "wide": (1, 3, 6), "batch norm": (3, 6)}  # which needs two samples


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize(("model", "size"), [(model, size) for model in MODELS for size in SIZES.get(model, (3,))])
def test_comparisons_agree(model, size, asked):
    here = torch.tensor([True, False, True, True])
    fast, plain = (
        fleet(problem(model), seed=3, batch_size=size, participation=lambda step: here) for fleet in (Stacked, Loop)
    )
    ours, theirs = (ASKED[asked](fleet) for fleet in (fast, plain))
    assert ours.distance[1].isnan().all() and ours.distance[:, 1].isnan().all()
    for mine, its in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-3, atol=1e-6, equal_nan=True)
    assert fast.ledger.samples.equal(plain.ledger.samples) and fast.ledger.samples[1] == 0


@pytest.mark.parametrize("model", ["perceptron", "wide", "batch norm"])
def test_clients_of_unequal_size_agree(model):
    subject = problem(model, sizes=(3, 12, 7))
    fast, plain = (fleet(subject, seed=3) for fleet in (Stacked, Loop))
    made = ALGORITHMS["all-for-one-binary"](samples=9)
    assert_same(run(fast, made)[0].models, run(plain, made)[0].models)
    assert fast.ledger.samples.equal(plain.ledger.samples)


def batch_loss(output, target):
    """Not a mean over samples: one minus a soft Dice over the batch."""
    chosen = output.softmax(1).gather(1, target[:, None])
    return 1 - 2 * chosen.sum() / (output.softmax(1).sum() + len(target)) + F.cross_entropy(output, target).square()


@pytest.mark.parametrize("model", ["perceptron", "wide", "batch norm"])
def test_losses_that_are_not_means_over_samples_agree(model):
    fast, plain = (fleet(problem(model, loss=batch_loss), seed=3) for fleet in (Stacked, Loop))
    made = ALGORITHMS["oracle"]()
    assert_same(run(fast, made)[0].models, run(plain, made)[0].models)


@pytest.mark.parametrize("size", [2, 10])
def test_the_synthetic_problem_agrees_in_double_precision(size):
    subject = afo.synthetic(seed=3, dimension=size, clients=6)
    made = ALGORITHMS["all-for-one-continuous"](samples=2)
    fast, plain = (
        run(fleet(subject, seed=3), made, rounds=8, make=partial(torch.optim.SGD, lr=0.1))[0].models
        for fleet in (Stacked, Loop)
    )
    torch.testing.assert_close(fast["weight"], plain["weight"], rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_the_unet_of_ixi_agrees_buffers_included():
    from allforone.problems.ixi import UNet, dice_loss

    random = torch.Generator().manual_seed(0)
    clients = []
    for shift in (0.0, 1.0, 2.0):
        x = torch.randn(4, 1, 8, 8, 8, generator=random) + shift
        clients.append(afo.Client((x, (x[:, 0] > shift).to(torch.uint8)), (x, (x[:, 0] > shift).to(torch.uint8))))
    subject = afo.Problem(UNet, dice_loss, settings=afo.Settings(batch_size=2), clients=clients)
    made = ALGORITHMS["all-for-one-binary"](samples=2, threshold=0.01)
    fast, plain = (run(fleet(subject, seed=3), made)[0].models for fleet in (Stacked, Loop))
    assert_same(fast, plain)
    name = "down2.0.1.running_mean"
    assert not torch.allclose(fast[name][0], fast[name][1])  # every client its own statistics


def test_the_ways_are_chosen_by_trying_them():
    ways = {}
    for model in MODELS:
        fast = Stacked(problem(model), seed=3).fast
        ways[model] = "all at once" if fast.vectorises else "concatenated" if fast.concatenates else "one by one"
    assert ways == {
        "linear": "all at once",
        "perceptron": "all at once",
        "wide": "concatenated",
        "convolution": "all at once",
        "batch norm": "one by one",
        "group norm": "all at once",
        "dropout": "one by one",
        "tied": "all at once",
        "frozen": "all at once",
        "gate": "concatenated",
        "centred": "one by one",
        "noisy": "one by one",
        "in place": "all at once",
        "still norm": "concatenated",
        "in place parameter": "all at once",
    }
