"""A fast way is gone where it gives what a plain loop gives, at the sizes that are used and as long as it does."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import allforone as afo
from allforone.errors import Inexact, Notice
from allforone.fleet import Optimizer, Stacked, everybody, exactness, surely
from allforone.fleet.fast_passes import WAYS
from allforone.fleet.stacked import Vectorised
from allforone.machines.loop import Loop

from .plain_loop import SEED, furthest, sgd, trained_by, trained_plainly, uneven
from .test_plain_loop import problem

#: Larger than any batch on which one would try a loss.
BATCH = 40


def linear():
    return nn.Linear(6, 3)


def bent():
    """At large steps its walks are chaotic."""
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))


def wide():
    """Too large to be vectorised."""
    return nn.Sequential(nn.Linear(6, 1500), nn.ReLU(), nn.Linear(1500, 3))


def hardest(output, target):
    """Mean of the 32 largest losses of a batch: of fewer samples, of all."""
    losses = F.cross_entropy(output, target, reduction="none")
    return losses.topk(min(32, len(losses))).values.mean()


class Normed(nn.Module):
    """Divides by the length of the whole batch, if that is large."""

    def __init__(self, least=8.0):
        super().__init__()
        self.layer, self.least = nn.Linear(6, 3), least

    def forward(self, x):
        return 5 * self.layer(x / x.norm().clamp(min=self.least))


@pytest.mark.parametrize("model", [linear, wide])
def test_a_loss_that_picks_the_hardest_of_a_batch_is_trained_as_in_a_plain_loop(model):
    subject, mix = problem(model, hardest), torch.full((4, 4), 0.25, dtype=torch.float64)
    found = trained_by(Stacked(subject, seed=SEED, batch_size=BATCH), mix, 10)
    assert furthest(found, trained_plainly(subject, mix, 10, BATCH)) < 1e-5


def test_a_layer_that_mixes_the_samples_of_large_batches_only_is_found_out():
    subject, mix = problem(Normed), uneven(4)
    found = trained_by(Stacked(subject, seed=SEED, batch_size=BATCH), mix, 10)
    assert furthest(found, trained_plainly(subject, mix, 10, BATCH)) < 1e-5


def rare(loss):
    """One sample in a thousand has the last label."""

    def client(k):
        x = torch.randn(250, 6, generator=torch.Generator().manual_seed(k))
        y = (x.sum(1) > 0).long()
        y[7 + k] = 2
        return afo.Client((x, y), (x, y))

    return afo.Problem(wide, loss, clients=[client(k) for k in range(4)])


@pytest.mark.parametrize(
    "loss",
    [nn.CrossEntropyLoss(weight=torch.tensor([1.0, 1.0, 50.0])), nn.CrossEntropyLoss(ignore_index=2)],
    ids=["weights", "ignored"],
)
def test_labels_that_weigh_differently_are_found_out_however_rare(loss):
    subject, mix = rare(loss), torch.full((4, 4), 0.25, dtype=torch.float64)
    fleet = Stacked(subject, seed=SEED, batch_size=8)
    assert not fleet.fast.splits
    assert furthest(trained_by(fleet, mix, 40), trained_plainly(subject, mix, 40, 8)) < 1e-4


class Grown(nn.Module):
    """Begins to mix the samples of a batch when its weights have grown."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        nn.init.zeros_(self.layer.weight)

    def forward(self, x):
        mixed = (self.layer.weight.norm() > 1).to(x.dtype)
        return self.layer(x - mixed * x.mean(0))


@pytest.mark.parametrize("vectorised", [True, False])
def test_a_way_that_stops_to_give_the_same_is_left_from_the_start_of_the_round_and_the_user_told(
    vectorised, monkeypatch
):
    monkeypatch.setattr(exactness, "AGAIN", 1)
    if not vectorised:
        monkeypatch.setattr("allforone.fleet.fast_passes.VECTORISED_PARAMETERS", 0)
    subject = problem(Grown)
    options = {"algorithm": afo.Oracle(), "rounds": 6, "inner": 5, "lr": 1.0, "batch_size": BATCH}
    for client in subject.clients:
        client.cluster = 0
    with pytest.warns(Notice, match=r"from this round on.*fleet loop"):
        found = afo.train(subject, **options)
    mix = torch.full((4, 4), 0.25, dtype=torch.float64)
    expected = trained_plainly(subject, mix, 30, BATCH, lambda parameters: torch.optim.SGD(parameters, lr=1.0))
    assert furthest(found.stacked, expected) < 1e-4


def test_a_run_whose_fast_ways_hold_is_looked_at_again_without_a_word(monkeypatch):
    monkeypatch.setattr(exactness, "AGAIN", 1)
    for model in (linear, wide):
        fleet = Stacked(problem(model), seed=SEED, batch_size=8)
        trained_by(fleet, uneven(4), 30)
        assert fleet.fast.concatenates and fleet.fast.splits and fleet.fast.vectorises is (model is linear)


class Recurrent(nn.Module):
    def __init__(self, kind, hidden):
        super().__init__()
        self.layer, self.last = kind(2, hidden, batch_first=True), nn.Linear(hidden, 3)

    def forward(self, x):
        return self.last(self.layer(x.reshape(-1, 3, 2))[0][:, -1])


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU])
def test_recurrent_layers_with_few_units_are_trained_as_in_a_plain_loop(kind):
    subject, mix = problem(lambda: Recurrent(kind, 2)), uneven(4)
    fleet = Stacked(subject, seed=SEED, batch_size=8)
    assert furthest(trained_by(fleet, mix, 5), trained_plainly(subject, mix, 5, 8)) < 1e-5
    looked, plain = (
        made.look(made.initial(), made.begin(1, range(1)), everybody(4), 8, 4)
        for made in (fleet, Loop(subject, seed=SEED))
    )
    assert torch.allclose(looked.norm, plain.norm, rtol=1e-3)


def test_where_vmap_fails_in_a_run_the_round_goes_the_plain_way_and_nobodys_data_are_blamed(monkeypatch):
    def fails(*_):
        raise RuntimeError("output with shape [2] doesn't match the broadcast shape [2, 2]")

    subject = problem(linear)
    options = {"rounds": 3, "batch_size": 8}
    expected = afo.train(subject, fleet="loop", **options)
    for method in ("gradients", "look"):
        with monkeypatch.context() as patched:
            inside = {"__init__": Vectorised.__init__}
            patched.setattr(
                "allforone.fleet.stacked.Vectorised", type("Failing", (Vectorised,), {**inside, method: fails})
            )
            with pytest.warns(Notice, match="RuntimeError"):
                found = afo.train(subject, **options)
        assert all(torch.allclose(found.stacked[name], expected.stacked[name], atol=1e-5) for name in found.stacked)


class Leaning(nn.Module):
    """Mixes the samples of a batch by a few thousandths when its weights have grown."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        nn.init.zeros_(self.layer.weight)

    def forward(self, x):
        mixed = 3e-3 * (self.layer.weight.norm() > 1).to(x.dtype)
        return self.layer(x - mixed * x.mean(0))


def test_a_difference_of_a_few_thousandths_is_seen(monkeypatch):
    monkeypatch.setattr(exactness, "AGAIN", 1)
    subject, mix = problem(Leaning), uneven(4)
    fleet = Stacked(subject, seed=SEED, batch_size=BATCH)
    with pytest.warns(Notice, match=r"another gradient than one by one, by 0\.00"):
        surely(partial(trained_by, fleet, mix, 30, lambda parameters: torch.optim.SGD(parameters, lr=1.0)))
    assert fleet.left == WAYS


@pytest.mark.parametrize("wrong", ["look", "walks"])
def test_looks_and_walks_that_stop_to_give_the_same_are_seen(wrong, monkeypatch):
    fleet = Stacked(problem(linear), seed=SEED, batch_size=8)
    models, ids = fleet.initial(), everybody(4)
    rounds = [fleet.begin(number, range(5 * number, 5 * number + 5)) for number in range(4)]

    def asked(round):
        if wrong == "look":
            return fleet.look(models, round, ids, 8, 4)
        return list(fleet.walks(models, ids, Optimizer(sgd), round, 2))

    monkeypatch.setattr(exactness, "AGAIN", 10)
    asked(rounds[0])
    loss = fleet.small.loss
    monkeypatch.setattr(fleet.small, "loss", lambda output, target: 1.003 * loss(output, target))
    asked(rounds[1])  # nobody's turn
    with pytest.warns(Notice, match=f"{wrong}.* one by one, by 0.00"), pytest.raises(Inexact):
        asked(rounds[2])
    asked(rounds[2])
    assert not fleet.fast.vectorises


def test_long_walks_that_rounding_drives_apart_are_no_alarm():
    fleet = Stacked(problem(bent), seed=SEED, batch_size=8)
    wild = Optimizer(partial(torch.optim.SGD, lr=4.0))
    (walks,) = fleet.walks(fleet.initial(), everybody(4), wild, fleet.begin(1, range(50)), 2)
    assert walks.ways.isfinite().all() and not fleet.left


def test_a_run_that_left_a_fast_way_goes_on_without_it(tmp_path, monkeypatch):
    monkeypatch.setattr(exactness, "AGAIN", 10)
    subject = problem(Grown)
    for client in subject.clients:
        client.cluster = 0
    options = {"algorithm": afo.Oracle(), "inner": 5, "lr": 1.0, "batch_size": BATCH}
    with pytest.warns(Notice, match="from this round on"):
        whole = afo.train(subject, rounds=8, **options)
    with pytest.warns(Notice, match="from this round on"):
        afo.train(subject, rounds=7, out=tmp_path / "run", **options)
    again = afo.train(subject, rounds=8, out=tmp_path / "run", resume=True, **options)
    assert all(torch.equal(again.stacked[name], whole.stacked[name]) for name in whole.stacked)
