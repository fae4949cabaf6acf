"""Every fleet gives what a plain PyTorch loop gives, also for models that do unusual things."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import allforone as afo
from allforone.errors import InputError
from allforone.fleet import Stacked, everybody
from allforone.machines.loop import Loop

from .plain_loop import SEED, furthest, trained_by, trained_plainly, uneven

FLEETS = pytest.mark.parametrize("fleet", [Loop, Stacked])


def problem(model, loss=F.cross_entropy, clients=4, samples=60):
    def client(k):
        random = torch.Generator().manual_seed(k)
        x = torch.randn(samples, 6, generator=random)
        y = (x @ torch.randn(6, 3, generator=random)).argmax(1)
        return afo.Client((x, y), (x, y))

    return afo.Problem(model, loss, clients=[client(k) for k in range(clients)])


class Checkpointed(nn.Module):
    """Computes its hidden layers again in the backward pass."""

    def __init__(self, dropout=0.0, reentrant=False):
        super().__init__()
        self.first, self.last, self.reentrant = nn.Linear(6, 16), nn.Linear(16, 3), reentrant
        self.hidden = nn.Sequential(nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Dropout(dropout))

    def forward(self, x):
        return self.last(checkpoint(self.hidden, self.first(x), use_reentrant=self.reentrant))


@FLEETS
def test_what_is_computed_again_in_the_backward_pass_is_computed_with_the_models_own_weights(fleet):
    subject, mix = problem(Checkpointed), uneven(4)
    made = fleet(subject, seed=SEED, batch_size=8)
    assert furthest(trained_by(made, mix, 20), trained_plainly(subject, mix, 20, 8)) < 1e-5
    assert fleet is Loop or not made.fast.vectorises


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_dropout_that_is_computed_again_draws_what_it_drew_on_any_number_of_cores(threads):
    torch.set_num_threads(threads)
    subject, mix = problem(lambda: Checkpointed(0.5), clients=8), uneven(8)
    found, expected = (trained_by(kind(subject, seed=SEED, batch_size=8), mix, 2) for kind in (Stacked, Loop))
    assert all(torch.allclose(found[name], expected[name], atol=1e-6) for name in found)


@pytest.mark.filterwarnings("ignore:None of the inputs")
def test_a_checkpoint_that_calls_backward_itself_is_refused_with_the_remedy():
    with pytest.raises(InputError, match="use_reentrant=False"):
        Stacked(problem(lambda: Checkpointed(reentrant=True)), seed=SEED)


class StillNorm(nn.Module):
    """A BatchNorm that its own `train()` keeps as it is."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.norm.running_mean.fill_(0.5)

    def forward(self, x):
        return self.last(self.norm(self.first(x)).relu())

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self


@FLEETS
@pytest.mark.parametrize("judged", [False, True])
def test_a_model_is_put_to_training_by_its_own_train(fleet, judged):
    model = StillNorm()
    subject, mix = problem(model.eval() if judged else model), uneven(4)
    found = trained_by(fleet(subject, seed=SEED, batch_size=8), mix, 5)
    assert furthest(found, trained_plainly(subject, mix, 5, 8)) < 1e-5
    assert model.training is not judged


def test_a_layer_that_the_user_froze_is_frozen_in_every_training_with_the_same_module():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    model[1].eval()
    clients, found = list(problem(model).clients), []
    for _ in range(2):
        found.append(afo.train(model, clients, loss=F.cross_entropy, rounds=2).stacked)
        assert [layer.training for layer in model.modules()] == [True, True, False, True, True]
    assert not found[0]["1.running_mean"].any()
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


class Words(nn.Module):
    """An embedding whose gradients are sparse."""

    def __init__(self):
        super().__init__()
        self.words, self.last = nn.Embedding(50, 8, sparse=True), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.words((x * 10).long() % 50).mean(1))


@FLEETS
def test_an_embedding_with_sparse_gradients_is_trained_like_any_other(fleet):
    subject, mix = problem(Words), uneven(4)
    made = fleet(subject, seed=SEED, batch_size=8)
    assert furthest(trained_by(made, mix, 5), trained_plainly(subject, mix, 5, 8)) < 1e-5
    made.look(made.initial(), made.begin(1, range(1)), everybody(4), 8, 16)
