"""What draws the clients' batches: each is drawn once, counted once, and is what its name says."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import Dataset

import allforone as afo
from allforone.algorithms import FedAvg, WgaBc
from allforone.fleet import Stacked
from allforone.fleet.batches import Batches
from allforone.machines.loop import Loop
from allforone.problems import synthetic
from allforone.problems.data import draw

from ..rounds import go_on, play
from .models import MODELS, clients, problem

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
def test_what_all_for_one_looks_at_is_drawn_once_and_counted_once(fleet, model, inner):
    made, data = counted(model, fleet)
    drawn_once = fleet is Stacked  # a site keeps nothing between two questions, so it draws again
    state, _ = play(made, afo.AllForOne(6), SGD, rounds=1, inner=inner)
    assert made.ledger.samples.tolist() == [6 + 4 * inner] * 3
    assert not drawn_once or [part.read for part in data] == made.ledger.samples.tolist()
    go_on(afo.AllForOne(6), state, made, rounds=3, inner=inner, done=1)
    assert made.ledger.samples.tolist() == [4 * (6 + 4 * inner)] * 3
    assert not drawn_once or [part.read for part in data] == made.ledger.samples.tolist()


#: Fewer than are looked at, as many, and more, in one batch and in several, with halves and without.
@pytest.mark.parametrize(("inner", "size"), [(1, 1), (1, 2), (1, 3), (1, 20), (3, 1), (3, 3), (9, 2)])
def test_a_stream_shows_what_it_trains_on_so_that_looking_costs_no_sample(inner, size):
    def fleet():
        return Stacked(synthetic(seed=5, dimension=3, clients=4), seed=1, batch_size=size)

    whole, local, first, second = (fleet() for _ in range(4))
    play(whole, afo.AllForOne(), SGD, rounds=3, inner=inner)
    play(local, afo.Local(), SGD, rounds=3, inner=inner)
    state, _ = play(first, afo.AllForOne(), SGD, rounds=1, inner=inner)
    second.ledger = first.ledger
    go_on(afo.AllForOne(), state, second, rounds=2, inner=inner, done=1)
    assert whole.ledger.samples.tolist() == local.ledger.samples.tolist() == [3 * inner * size] * 4
    assert second.ledger.samples.tolist() == whole.ledger.samples.tolist()


@pytest.mark.parametrize(
    ("algorithm", "shown"), [(afo.AllForOne(6), 6), (WgaBc(), 0)], ids=lambda value: getattr(value, "name", "")
)
@pytest.mark.parametrize("inner", [1, 3])
def test_a_batch_made_ahead_is_not_made_again_in_the_next_round(inner, algorithm, shown):
    made = []

    def transform(inputs):
        made.append(len(inputs))
        return inputs

    torch.set_num_threads(2)  # on one core nothing is made ahead
    given = [afo.Client(c.train.tensors, c.test.tensors, transform=transform) for c in clients(4)]
    fleet = Stacked(afo.Problem(MODELS["wide"], F.cross_entropy, clients=given), seed=3, batch_size=4)
    made.clear()
    play(fleet, algorithm, SGD, rounds=4, inner=inner)
    assert fleet.ledger.samples.tolist() == [4 * (4 * inner + shown)] * 4
    assert made.count(6) == (16 if shown else 0)
    assert made.count(4) == 4 * (4 * inner + 1)  # and one that the next round would have used


@pytest.mark.slow
@pytest.mark.parametrize("stop", [1, 2])
@pytest.mark.parametrize("inner", [1, 2])
@pytest.mark.parametrize("algorithm", [afo.AllForOne(), FedAvg(finetune=5)], ids=lambda algorithm: algorithm.name)
def test_a_run_that_was_interrupted_has_counted_the_same_samples(algorithm, inner, stop):
    def fleet():
        return Stacked(problem("batch norm"), seed=3, batch_size=2, participation=0.7)

    whole, first, second = fleet(), fleet(), fleet()
    play(whole, algorithm, SGD, rounds=4, inner=inner)
    state, _ = play(first, algorithm, SGD, rounds=stop, inner=inner)
    second.ledger = first.ledger
    go_on(algorithm, state, second, rounds=4 - stop, inner=inner, done=stop)
    assert second.ledger.samples.tolist() == whole.ledger.samples.tolist()


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
    assert batches.tally.samples.tolist() == [5, 0, 5]
    list(batches.stacked([0, 1], range(3)))
    assert batches.tally.samples.tolist() == [15, 15, 5]
    batches.uncounted(2, 1)
    assert batches.tally.samples.tolist() == [15, 15, 5]
    batches.of(two, 0, purpose="compare", size=7)
    assert batches.tally.samples.tolist() == [22, 15, 12]


def streams(size):
    return Batches(synthetic(seed=5, dimension=3, clients=3).clients, seed=7, size=size)


def assert_parts(found, *expected):
    """Of the inputs of every client."""
    for k, parts in found.items():
        for (inputs, _), wanted in zip(parts, expected, strict=True):
            assert inputs.equal(wanted[k])


def test_of_finite_data_halves_are_those_of_a_sample_drawn_to_be_looked_at():
    given = clients(3)
    batches = Batches(given, seed=7, size=5)
    shown = {k: draw(given[k].train, 7, seed=7, client=k, step=2, purpose="look")[0] for k in range(3)}
    found = batches.to_look_at(EVERYONE, range(2, 4), 7, least=1)
    assert_parts(found, {k: x[:3] for k, x in shown.items()}, {k: x[4:] for k, x in shown.items()})
    assert batches.tally.samples.tolist() == [7, 7, 7]


def test_who_has_a_single_sample_shows_it_twice():
    x, y = clients(1)[0].train.tensors
    batches = Batches([afo.Client((x[:1], y[:1]), (x, y))], seed=7, size=5)
    assert_parts(batches.to_look_at(EVERYONE[:1], range(1), 16, least=1), [x[:1]], [x[:1]])


def test_a_stream_shows_the_first_batches_of_the_round():
    batches = streams(4)
    found = batches.to_look_at(EVERYONE, range(3, 9), 8, least=1)
    assert batches.tally.samples.tolist() == [8, 8, 8]
    first, second = ({k: x for k, (x, _) in batches.of(EVERYONE, step).items()} for step in (3, 4))
    assert_parts(found, second, first)
    assert batches.tally.samples.tolist() == [8, 8, 8]


@pytest.mark.parametrize(("step", "other"), [(2, 1), (0, 1)])
def test_a_round_too_short_for_halves_shows_the_step_before_too_at_the_first_that_after(step, other):
    batches = streams(1)
    found = batches.to_look_at(EVERYONE, range(step, step + 1), 16, least=1)
    assert batches.tally.samples.tolist() == [1, 1, 1]
    now, then = ({k: batches.uncounted(k, number)[0] for k in range(3)} for number in (step, other))
    assert_parts(found, now, then)
