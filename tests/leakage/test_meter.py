"""What is recovered from a site's answers, and what is not."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import allforone as afo
from allforone.errors import InputError
from allforone.leakage import by_matching, layers, measure, read_off
from allforone.leakage.inversion import Known
from allforone.machines.site import Site
from allforone.machines.wire import decode, encode


def data(count=40, features=6, classes=None):
    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, features, generator=random)
    if classes is None:
        return inputs, (inputs.sum(1, keepdim=True) > 0).float()
    return inputs, torch.randint(classes, (count,), generator=random)


def problem(model, loss, some, **more):
    return afo.Problem(model, loss, clients=[afo.Client(some, None, name="Geneva")], **more)


LOGISTIC = problem(nn.Linear(6, 1), F.binary_cross_entropy_with_logits, data())
SQUARES = problem(nn.Linear(6, 1), F.mse_loss, data())


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4))


NETWORK = problem(network, F.cross_entropy, data(classes=4))
SMOOTH = problem(
    lambda: nn.Sequential(nn.Linear(6, 20, bias=False), nn.Tanh(), nn.Linear(20, 4)), F.cross_entropy, data(classes=4)
)


@pytest.mark.parametrize("attacked", [LOGISTIC, SQUARES, NETWORK], ids=["logistic", "least squares", "network"])
def test_a_batch_of_one_is_recovered_exactly_and_its_label_too(attacked):
    (leak,) = measure(attacked, [1], answers=6)
    assert leak.attack == "analytic" and leak.whole
    assert leak.exact == leak.samples == leak.labels == 6
    assert leak.correlation == pytest.approx(1, abs=1e-4) and leak.chance < 0.9


def test_clipping_alone_hides_nothing():
    (leak,) = measure(LOGISTIC, [1], clip=0.1)
    assert leak.exact == leak.samples == 4


def test_with_large_noise_recovered_samples_are_like_others_as_much_as_like_the_true_ones():
    (leak,) = measure(LOGISTIC, [1], answers=40, clip=1.0, noise=100.0)
    assert leak.exact == 0
    assert abs(leak.correlation - leak.chance) < 0.25 and abs(leak.correlation) < 0.25


def test_of_labels_that_are_yes_or_no_noise_leaves_about_half():
    (leak,) = measure(LOGISTIC, [1], answers=40, clip=1.0, noise=100.0)
    assert 8 < leak.labels < 32


def test_a_row_that_saw_one_sample_of_many_tells_it():
    model = nn.Sequential(nn.Linear(3, 3, bias=True), nn.ReLU(), nn.Linear(3, 2))
    with torch.no_grad():
        model[0].weight.copy_(10 * torch.eye(3))
        model[0].bias.zero_()
    inputs, targets = 2 * torch.eye(3) - 1, torch.tensor([0, 1, 0])
    loss = F.cross_entropy(model(inputs), targets)
    names = [name for name, _ in model.named_parameters()]
    gradient = dict(zip(names, torch.autograd.grad(loss, list(model.parameters())), strict=True))
    found = read_off(gradient, "0.", inputs)
    assert len(found) == 3
    assert torch.cdist(found, inputs.double()).amin(0).max() < 1e-5


def test_noise_of_the_meter_is_that_of_the_mean_of_a_batch():
    seen = {}
    for noise in (0.0, 2.0):
        measure(LOGISTIC, [8], answers=1, clip=0.5, noise=noise, change=lambda g, n=noise: seen.setdefault(n, g))
    small, large = (torch.cat([t.flatten() for t in seen[n].values()]) for n in (0.0, 2.0))
    assert small.norm() <= 0.5  # a mean of eight that have at most this norm
    assert (large - small).std() == pytest.approx(2.0 * 0.5 / 8, rel=0.6)


def test_the_attack_sees_the_gradient_as_it_was_changed():
    (leak,) = measure(LOGISTIC, [1], change=lambda gradient: {name: 0 * tensor for name, tensor in gradient.items()})
    assert leak.exact == 0 and leak.correlation == 0


def test_where_all_data_are_in_the_answer_there_is_no_chance_to_compare_with():
    (leak,) = measure(NETWORK, [40], answers=1)
    assert math.isnan(leak.chance) and leak.samples == 40 and leak.labels > 30


def test_who_asks_may_ask_for_one_sample_whatever_the_batch_size():
    """So larger batches hide samples from who reads along only, as docs/privacy.md says."""
    site = Site(LOGISTIC, LOGISTIC.clients[0], 0, seed=127, batch_size=32)
    models = {name: tensor.detach()[None] for name, tensor in LOGISTIC.model.named_parameters()}
    about = {"steps": [0, 1], "samples": 1, "sketch": 0, "told": 0, "whole": True, "owners": [0]}
    told = decode(site.answer(encode({"ask": "look", "round": 1, "models": models, **about})))["means"][0]
    found, everybody = told[:-1] / told[-1], LOGISTIC.clients[0].train.tensors[0]
    assert (everybody - found).norm(dim=1).min() < 1e-4


def known_of(attacked) -> Known:
    module = attacked.initial_model(0)
    model = {name: tensor.detach() for name, tensor in module.named_parameters()}
    like = tuple(torch.zeros_like(tensor[:1]) for tensor in attacked.clients[0].train.tensors)
    return Known(module, model, list(model), attacked.loss, like)


def test_only_a_layer_that_is_given_the_raw_inputs_tells_them():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 4)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.layer(inputs.tanh())

    assert layers(known_of(NETWORK)) == ("1.", "3.")
    assert layers(known_of(LOGISTIC)) == ("", "")
    assert layers(known_of(SMOOTH)) == (None, "2.")
    assert layers(known_of(problem(Scaled, F.cross_entropy, data(classes=4)))) == (None, "layer.")


def test_without_such_a_layer_a_search_finds_what_is_like_the_sample():
    done = []
    (leak,) = measure(SMOOTH, [1], answers=3, steps=150, seconds=3600, watch=lambda now, of: done.append((now, of)))
    assert leak.attack == "matching" and leak.whole and leak.labels == 3
    assert leak.correlation > 0.9 > leak.chance
    assert done[-1] == (450, 450) and len(done) >= 450


def test_a_search_ends_when_its_time_is_over_and_says_so():
    (leak,) = measure(SMOOTH, [1], answers=2, steps=10**9, seconds=0.2)  # which would take weeks
    assert not leak.whole


def test_a_search_that_has_no_time_gives_its_first_guess():
    known = known_of(SMOOTH)
    gradient = dict(zip(known.trained, known.gradient((torch.ones(1, 6), torch.tensor([2]))), strict=True))
    found = by_matching(known, gradient, 1, torch.tensor([2]), steps=9, until=0.0, seed=5)
    assert torch.equal(found.inputs, known.invented(1, 5)) and not found.whole


WORDS = problem(
    lambda: nn.Sequential(nn.Embedding(9, 3), nn.Flatten(), nn.Linear(6, 4)),
    F.cross_entropy,
    (torch.randint(9, (40, 2), generator=torch.Generator().manual_seed(1)), data(classes=4)[1]),
)


@pytest.mark.parametrize(
    ("given", "more", "said"),
    [
        (NETWORK, {"batch_sizes": [0]}, "batch size 0"),
        (NETWORK, {"batch_sizes": []}, "no batch size"),
        (NETWORK, {"batch_sizes": [41]}, r"batch size 41: client 0 \(Geneva\) has 40 samples"),
        (NETWORK, {"client": 1}, "client 1: there are 1"),
        (NETWORK, {"answers": 0}, "answers is 0"),
        (NETWORK, {"steps": 0}, "steps is 0"),
        (NETWORK, {"seconds": 0.0}, "seconds is 0"),
        (NETWORK, {"clip": 0.0}, "clip is 0"),
        (NETWORK, {"clip": 1.0, "noise": -1.0}, "noise is -1"),
        (NETWORK, {"noise": 1.0}, "give clip, too"),
        (SMOOTH, {"analytic": True}, "leave out --analytic"),
        (WORDS, {}, "the search needs real numbers"),
        (afo.synthetic(clients=2), {}, "all clients draw from streams"),
    ],
)
def test_what_cannot_be_measured_is_refused(given, more, said):
    with pytest.raises(InputError, match=said):
        measure(given, **{"batch_sizes": [1], "answers": 1, **more})
