"""What makes the fleet fast changes nothing but the speed."""

import shutil

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

import allforone as afo
from allforone.errors import InputError
from allforone.fleet import Compiled, Optimizer, Stacked, everybody, fast_passes
from allforone.machines.loop import Loop
from allforone.problems.data import Finite, draw, draw_many
from allforone.problems.mnist import network

from ..rounds import at, evaluate, gradients, over
from .models import problem

SGD = Optimizer(lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9))


def images(model=network, loss=F.cross_entropy, clients=6, samples=24):
    def client(k):
        random = torch.Generator().manual_seed(k)
        data = (torch.randn(samples, 1, 28, 28, generator=random), torch.randint(0, 10, (samples,), generator=random))
        return afo.Client(data, data)

    return afo.Problem(model, loss, metrics={"accuracy": afo.accuracy}, clients=[client(k) for k in range(clients)])


def weights(n=6):
    return torch.rand(n, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture
def cores():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def with_dropout():
    return nn.Sequential(*network()[:7], nn.Dropout(), *network()[7:])


def normalised():
    return nn.Sequential(*network()[:3], nn.BatchNorm2d(10), *network()[3:])


@pytest.mark.parametrize(("model", "passes"), [(network, 3), (normalised, 10)])
def test_equal_models_with_equal_weights_pass_once_where_nobody_s_buffers_move(model, passes, monkeypatch):
    fleet, asked = Stacked(images(model), seed=0, batch_size=4), []
    mix = torch.zeros(6, 6, dtype=torch.float64)
    mix[:4, :2], mix[4:, 4] = 0.5, 1.0
    models = fleet.initial()
    for tensor in models.values():
        if tensor.is_floating_point():
            tensor[2] += 0.01  # row 2 is another model than rows 0, 1 and 3 of the same weights
    differentiate = fleet.passes.differentiate
    monkeypatch.setattr(fleet.passes, "differentiate", lambda *given: asked.append(1) or differentiate(*given))
    monkeypatch.setattr(fleet.fast, "compare", lambda *given: None)
    found = gradients(fleet, models, mix, 0)
    expected = gradients(Loop(images(model), seed=0, batch_size=4), models, mix, 0)
    assert len(asked) == passes  # of pairs, where each client passes on its own
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("model", [network, with_dropout])
def test_one_core_and_two_give_the_same_bits(model, cores):
    found = []
    for count in (1, 2):
        cores(count)
        fleet = Stacked(images(model), seed=0, batch_size=4)
        models, _ = fleet.descend(fleet.initial(), weights(), SGD, over(fleet, range(3)))
        judged = evaluate(fleet, models)
        looked = fleet.look(models, at(fleet, 0), everybody(len(fleet.roster)), 6, 16)
        found.append([*models.values(), *looked, judged.loss, judged.metrics["accuracy"]])
        assert torch.get_num_threads() == count
    assert all(one.equal(two) for one, two in zip(*found, strict=True))


@pytest.mark.slow
def test_dropout_draws_the_same_masks_on_many_cores_as_in_the_loop(cores):
    cores(2)
    fast, plain = (fleet(images(with_dropout), seed=0, batch_size=4) for fleet in (Stacked, Loop))
    ours, theirs = (gradients(fleet, fast.initial(), weights(), 0) for fleet in (fast, plain))
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-5) for name in ours)


def test_a_mistake_in_a_thread_is_named_and_leaves_the_cores_as_they_were(cores):
    cores(2)
    subject = images()
    fleet = Stacked(subject, seed=0, batch_size=4)
    subject.clients[4].train.tensors[1].fill_(11)
    with pytest.raises(InputError, match="client 4: the loss fails"):
        gradients(fleet, fleet.initial(), torch.eye(6), 0)
    assert torch.get_num_threads() == 2


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 3, 5, 8])
def test_a_pass_in_pieces_is_the_whole_pass(size, monkeypatch):
    monkeypatch.setattr(fast_passes, "PASSED_SAMPLES", size)
    fast, plain = (fleet(images(), seed=0, batch_size=4) for fleet in (Stacked, Loop))
    assert fast.fast.splits
    models = fast.initial()
    ours, theirs = (gradients(fleet, models, weights(), 0) for fleet in (fast, plain))
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-5) for name in ours)
    compared = (fleet.compare(models, at(fleet, 0), 13) for fleet in (fast, plain))
    for mine, its in zip(*compared, strict=True):
        assert torch.allclose(mine, its, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "loss",
    [
        lambda o, y: F.cross_entropy(o, y, weight=torch.arange(1.0, 11.0)),
        lambda o, y: F.cross_entropy(o, y) + o.std(),
        lambda o, y: F.cross_entropy(o, y).sqrt(),
    ],
    ids=["classes weigh differently", "a statistic of the batch", "a root of the mean"],
)
def test_a_loss_that_is_no_mean_over_samples_is_never_split(loss):
    assert not Stacked(images(loss=loss), seed=0, batch_size=4).fast.splits


def test_no_pass_holds_more_samples_than_memory_is_meant_for(monkeypatch):
    monkeypatch.setattr(fast_passes, "PASSED_SAMPLES", 10)
    fleet = Stacked(images(), seed=0, batch_size=4)
    seen = []
    fleet.passes.module.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    module = fleet.passes.module
    fleet.passes.workers.each = lambda work, items, meanwhile=None: [work(module, item) for item in items]
    gradients(fleet, fleet.initial(), torch.ones(6, 6), 0)
    fleet.compare(fleet.initial(), at(fleet, 0), 24)
    assert max(seen) == 10


def test_convolutions_are_channels_last_and_a_model_that_needs_the_usual_order_keeps_it():
    class Viewing(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution, self.last = nn.Conv2d(1, 20, 5), nn.Linear(20 * 24 * 24, 10)

        def forward(self, x):
            return self.last(self.convolution(x).view(len(x), -1))

    fast, viewing = Stacked(images(), seed=0, batch_size=4), Stacked(images(Viewing), seed=0, batch_size=4)
    assert fast.fast.channels_last and not viewing.fast.channels_last
    ours, theirs = (
        gradients(fleet, viewing.initial(), weights(), 0)
        for fleet in (viewing, Loop(images(Viewing), seed=0, batch_size=4))
    )
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-5) for name in ours)


def test_batches_drawn_ahead_are_those_drawn_in_time_and_counted_when_used(cores):
    found = []
    for count in (1, 2):
        cores(count)
        subject = images()
        for client in subject.clients:
            client.train.augment = lambda x, generator: x + torch.rand(1, generator=generator)
        fleet = Stacked(subject, seed=0, batch_size=4)
        found += [
            (gradients(fleet, fleet.initial(), weights(), step)["0.weight"], fleet.ledger.samples)
            for step in (0, 1, 5, 6)
        ]
    for (gradient, samples), (again, counted) in zip(found[:4], found[4:], strict=True):
        assert gradient.equal(again) and samples.equal(counted)


class Stream:
    def draw(self, size, generator):
        return torch.randn(size, 2, generator=generator), torch.randn(size, generator=generator)


def test_many_batches_drawn_at_once_are_those_drawn_one_by_one():
    pair = (torch.arange(14.0).reshape(7, 2), torch.arange(7))
    for data in (
        Finite(pair),
        Finite(pair, transform=lambda x: x - x.mean(0)),
        Finite(TensorDataset(*pair)),
        Stream(),
        Finite(pair, augment=lambda x, generator: x + torch.rand(1, generator=generator)),
    ):
        name = {"seed": 1, "client": 2, "purpose": "update"}
        many = draw_many(data, 3, steps=range(2, 9), **name)
        for place, step in enumerate(range(2, 9)):
            for found, expected in zip(many, draw(data, 3, step=step, **name), strict=True):
                assert found[place].equal(expected)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile needs a C++ compiler")
def test_compiled_steps_are_the_plain_ones_whoever_listens_to_whom():
    made = [fleet(problem("perceptron"), seed=0, batch_size=4) for fleet in (Compiled, Stacked)]
    models = made[0].initial()
    for mix in (weights(4), torch.eye(4), torch.ones(4, 4).tril() / 4):
        compiled, plain = (fleet.descend(models, mix, SGD, over(fleet, range(3)))[0] for fleet in made)
        assert all(torch.allclose(compiled[name], plain[name], atol=1e-5) for name in plain)
