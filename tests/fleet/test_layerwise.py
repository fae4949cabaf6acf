"""Clipped sums made layer by layer are those of single samples; where samples might meet, they are not made so."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from allforone.fleet import layerwise
from allforone.fleet.layerwise import Chain


def convolutional():
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, stride=2, padding=1),
        nn.ReLU(inplace=True),
        nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(3, 4, 2, bias=False, dilation=2)),
        nn.Flatten(),
        nn.Linear(4, 3),
    )


def squared(output, target):
    return (output - target[:, None]).square().mean()


def trained_of(module):
    return [name for name, parameter in module.named_parameters() if parameter.requires_grad]


def one_after_the_other(module, loss, batch, clip):
    """With autograd alone: [sum of clipped gradients] in the order of the parameters that are trained."""
    wanted = [p for p in module.parameters() if p.requires_grad]
    total = [torch.zeros_like(p) for p in wanted]
    for x, y in zip(batch[0].split(1), batch[1].split(1), strict=True):
        found = torch.autograd.grad(loss(module(x), y), wanted)
        length = torch.cat([part.flatten() for part in found]).norm()
        total = [a + b * min(1.0, clip / float(length)) for a, b in zip(total, found, strict=True)]
    return total


@pytest.mark.parametrize("loss", [F.cross_entropy, squared])
@pytest.mark.parametrize("clip", [0.3, 2.0, 1e6])
def test_a_chain_of_convolutions_sums_up_the_clipped_gradients_of_single_samples(loss, clip, monkeypatch):
    monkeypatch.setattr(layerwise, "PATCHED_NUMBERS", 500)  # patches in pieces
    torch.manual_seed(0)
    module = convolutional()
    module[0].bias.requires_grad_(False)
    batch = torch.randn(7, 2, 12, 12), torch.randint(0, 3, (7,))
    trained = trained_of(module)
    chain = Chain.of(module, loss, trained)
    found = chain.clipped({name: p.detach() for name, p in module.named_parameters()}, batch, clip)
    assert list(found) == trained
    for part, expected in zip(found.values(), one_after_the_other(module, loss, batch, clip), strict=True):
        torch.testing.assert_close(part, expected)


def test_a_layer_that_is_called_twice_counts_twice():
    same = nn.Tanh()
    module = nn.Sequential(nn.Linear(4, 4), same, same, nn.Linear(4, 3))
    batch = torch.randn(5, 4), torch.randint(0, 3, (5,))
    model = {name: p.detach() for name, p in module.named_parameters()}
    found = Chain.of(module, F.cross_entropy, trained_of(module)).clipped(model, batch, 0.5)
    for part, expected in zip(found.values(), one_after_the_other(module, F.cross_entropy, batch, 0.5), strict=True):
        torch.testing.assert_close(part, expected)


class Centred(nn.Linear):
    """Of which each sample has a part in all others."""

    def forward(self, x):
        return super().forward(x - x.mean(0))


class Turned(nn.Sequential):
    def forward(self, x):
        return super().forward(x.flip(0))


def tied():
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.ReLU(), layer)


def hooked():
    module = nn.Sequential(nn.Linear(4, 3))
    module[0].register_forward_pre_hook(lambda layer, given: (given[0] - given[0].mean(0),))
    return module


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(Centred(4, 3)),
        lambda: Turned(nn.Linear(4, 3)),
        lambda: nn.Sequential(nn.Linear(4, 4), nn.Softmax(0), nn.Linear(4, 3)),
        lambda: nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)),
        lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)),
        lambda: nn.Sequential(nn.Conv2d(2, 2, 3, groups=2)),
        tied,
        hooked,
    ],
)
def test_what_is_not_known_to_treat_samples_alone_is_no_chain(make):
    module = make()
    assert Chain.of(module, F.cross_entropy, trained_of(module)) is None


@pytest.mark.parametrize("shape", [(6, 5, 4), (4,)])
def test_what_might_not_be_a_batch_is_left_to_others(shape):
    module = nn.Sequential(nn.Linear(4, 3))
    model = {name: p.detach() for name, p in module.named_parameters()}
    batch = torch.randn(shape), torch.zeros(shape[0], dtype=torch.long)
    assert Chain.of(module, F.cross_entropy, trained_of(module)).clipped(model, batch, 1.0) is None
