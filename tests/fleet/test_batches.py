"""What draws the clients' batches: each is drawn once, counted once, and is what its name says."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import Dataset

import allforone as afo
from allforone.algorithms import WgaBc
from allforone.fleet import Loop, Stacked
from allforone.fleet.batches import Batches
from allforone.problems.data import draw

from ..rounds import go_on, play
from .models import MODELS, clients

EVERYONE = torch.ones(3, dtype=torch.bool)
SGD = partial(torch.optim.SGD, lr=0.05)


class Counting(Dataset):
    """Tensors, read item by item; knows how often."""

    def __init__(self, tensors):
        self.tensors, self.read = tensors, 0

    def __len__(self):
        return len(self.tensors[0])

    def __getitem__(self, i):
        self.read += 1
        return tuple(tensor[i] for tensor in self.tensors)


def counted(model, fleet, count=3, size=4):
    """A fleet of clients that count what is read, and their data, of which nothing is read yet."""
    given = clients(count)
    data = [Counting(client.train.tensors) for client in given]
    subject = afo.Problem(
        MODELS[model],
        F.cross_entropy,
        clients=[afo.Client(part, client.test.tensors) for part, client in zip(data, given, strict=True)],
    )
    made = fleet(subject, seed=3, batch_size=size)
    for part in data:
        part.read = 0
    return made, data


@pytest.mark.slow
@pytest.mark.parametrize("inner", [1, 3])
@pytest.mark.parametrize("model", ["perceptron", "wide", "batch norm"])
@pytest.mark.parametrize("fleet", [Stacked, Loop])
def test_the_batch_that_all_for_one_looks_at_is_drawn_once_and_counted_once(fleet, model, inner):
    made, data = counted(model, fleet)
    state, _ = play(made, afo.AllForOne(), SGD, rounds=1, inner=inner)
    assert [part.read for part in data] == made.ledger.samples.tolist() == [4 * inner] * 3
    go_on(afo.AllForOne(), state, made, rounds=3, inner=inner, done=1)
    assert [part.read for part in data] == made.ledger.samples.tolist() == [4 * 4 * inner] * 3


@pytest.mark.parametrize("algorithm", [afo.AllForOne(), WgaBc()], ids=lambda algorithm: algorithm.name)
@pytest.mark.parametrize("inner", [1, 3])
def test_a_batch_made_ahead_is_not_made_again_in_the_next_round(inner, algorithm):
    made = []

    def transform(inputs):
        made.append(len(inputs))
        return inputs

    torch.set_num_threads(2)  # on one core nothing is made ahead
    given = [afo.Client(c.train.tensors, c.test.tensors, transform=transform) for c in clients(4)]
    fleet = Stacked(afo.Problem(MODELS["wide"], F.cross_entropy, clients=given), seed=3, batch_size=4)
    made.clear()
    play(fleet, algorithm, SGD, rounds=4, inner=inner)
    assert fleet.ledger.samples.tolist() == [4 * 4 * inner] * 4
    assert len(made) == 4 * (4 * inner + 1)  # and one that the next round would have used


def test_batches_are_those_of_their_names_whatever_was_asked_before():
    given = clients(3)
    batches = Batches(given, seed=7, size=5)

    def assert_named(found, step, purpose="update", size=5):
        for k, batch in found.items():
            named = draw(given[k].train, size, seed=7, client=k, step=step, purpose=purpose)
            assert all(ours.equal(theirs) for ours, theirs in zip(batch, named, strict=True))

    for step in (0, 1, 1, 4, 2):
        assert_named(batches.of(EVERYONE, step), step)
    assert_named(batches.of(EVERYONE, 3, purpose="compare", size=9), 3, "compare", 9)
    batches.draw_ahead(EVERYONE, 5)
    for step, (inputs, targets) in enumerate(batches.stacked([0, 2], range(5, 9)), 5):
        assert_named({0: (inputs[0], targets[0]), 2: (inputs[1], targets[1])}, step)
    assert_named({1: batches.uncounted(1, 9)}, 9)


def test_a_batch_is_counted_once_however_often_it_is_asked_for_and_by_whom():
    batches = Batches(clients(3), seed=7, size=5)
    two = torch.tensor([True, False, True])
    for _ in range(3):
        batches.of(two, 0)
    assert batches.samples.tolist() == [5, 0, 5]
    list(batches.stacked([0, 1], range(3)))
    assert batches.samples.tolist() == [15, 15, 5]
    batches.uncounted(2, 1)
    assert batches.samples.tolist() == [15, 15, 5]
    batches.of(two, 0, purpose="compare", size=7)
    assert batches.samples.tolist() == [22, 15, 12]


def test_halves_are_those_of_the_updates_batch():
    batches = Batches(clients(3), seed=7, size=5)
    whole, halves = batches.of(EVERYONE, 2), batches.to_compare(EVERYONE, 2, None, least=1)
    for k, (one, other) in halves.items():
        assert one[0].equal(whole[k][0][:2]) and other[0].equal(whole[k][0][2:4])
    assert batches.samples.tolist() == [5, 5, 5]


def test_a_batch_too_small_for_halves_is_one_half_and_that_of_the_step_before_the_other():
    batches = Batches(clients(3), seed=7, size=1)
    before, now = batches.of(EVERYONE, 1), batches.of(EVERYONE, 2)
    for k, (one, other) in batches.to_compare(EVERYONE, 2, None, least=1).items():
        assert one[0].equal(before[k][0]) and other[0].equal(now[k][0])
    assert batches.samples.tolist() == [2, 2, 2]
