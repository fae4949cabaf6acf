"""Each client's gradient is clipped before it is weighted, on every fleet, as a plain PyTorch loop does it."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

import allforone as afo
from allforone.errors import InputError
from allforone.fleet import Optimizer, Stacked, everybody
from allforone.machines.loop import Loop
from allforone.problems.data import draw

from ..rounds import over
from .plain_loop import SEED, furthest, sgd, trained_by, uneven
from .test_plain_loop import problem

CLIP = 0.2


def normed():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def clipped_problem(model=None):
    subject = problem(model or (lambda: nn.Linear(6, 3)))
    return replace(subject, settings=replace(subject.settings, clip=CLIP))


def trained_with_clipping(subject, mix, steps, size):
    """As anybody would write it: a backward pass and a clip for each partner, then the weighted sum."""
    models = [copy.deepcopy(subject.initial_model(SEED)).train() for _ in subject.clients]
    clipped = 0
    for step in range(steps):
        for i, model in enumerate(models):
            before = {name: buffer.clone() for name, buffer in model.named_buffers()}
            total, after = [torch.zeros_like(p) for p in model.parameters()], {}
            for k, client in enumerate(subject.clients):
                for name, buffer in model.named_buffers():
                    buffer.copy_(before[name])
                x, y = draw(client.train, size, seed=SEED, client=k, step=step, purpose="update")
                model.zero_grad()
                subject.loss(model(x), y).backward()
                clipped += bool(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP) > CLIP)
                total = [t + float(mix[i, k]) * p.grad for t, p in zip(total, model.parameters(), strict=True)]
                if k == i:
                    after = {name: buffer.clone() for name, buffer in model.named_buffers()}
            with torch.no_grad():
                for parameter, slope in zip(model.parameters(), total, strict=True):
                    parameter -= 0.1 * slope
                for name, buffer in model.named_buffers():
                    buffer.copy_(after[name])
    assert clipped > 0
    return models


@pytest.mark.parametrize("fleet", [Loop, Stacked])
@pytest.mark.parametrize("model", [None, normed])
def test_gradients_are_clipped_client_by_client_as_in_a_plain_loop(model, fleet):
    subject, mix = clipped_problem(model), uneven(4)
    found = trained_by(fleet(subject, seed=SEED, batch_size=8), mix, 6)
    assert furthest(found, trained_with_clipping(subject, mix, 6, 8)) < 1e-6


def test_looks_and_walks_see_clipped_gradients_too():
    found = []
    for fleet in (
        Stacked(clipped_problem(), seed=SEED, batch_size=8),
        Loop(clipped_problem(), seed=SEED, batch_size=8),
    ):
        models, round = fleet.initial(), over(fleet, range(1))
        look = fleet.look(models, round, everybody(4), 8, 64)
        (walks,) = fleet.walks(models, everybody(4), Optimizer(sgd), round, 1)
        assert look.norm.max() <= CLIP**2 + 1e-6 and walks.ways.norm(dim=3).max() <= 0.1 * CLIP + 1e-6
        found.append((look.norm, walks.ways))
    assert all(torch.allclose(stacked, loop, atol=1e-6) for stacked, loop in zip(*found, strict=True))


def test_clip_is_an_argument_of_training_and_decides_the_numbers(tmp_path):
    subject = problem(nn.Linear(6, 3))
    options = {"algorithm": afo.Local(), "rounds": 2}
    clipped = afo.train(subject, clip=CLIP, out=tmp_path / "run", **options)
    free = afo.train(subject, **options)
    assert clipped.config.clip == CLIP and not torch.equal(clipped.stacked["weight"], free.stacked["weight"])
    with pytest.raises(InputError, match="clip"):
        afo.train(subject, out=tmp_path / "run", resume=True, clip=2 * CLIP, **options)
    for wrong in (0, -1.0, "much", float("inf")):
        with pytest.raises(InputError, match="clip"):
            afo.train(subject, clip=wrong, **options)
