"""N stacked models under one torch optimizer are N optimizers."""

from functools import partial

import pytest
import torch

from allforone.errors import InputError
from allforone.fleet import Optimizer

ELEMENTWISE = {
    "sgd": partial(torch.optim.SGD, lr=0.1),
    "momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True),
    "adam": partial(torch.optim.Adam, lr=0.1),
    "adamw": partial(torch.optim.AdamW, lr=0.1, amsgrad=True),
    "rmsprop": partial(torch.optim.RMSprop, lr=0.1, centered=True),
    "adagrad": partial(torch.optim.Adagrad, lr=0.1),
    "adadelta": partial(torch.optim.Adadelta, lr=0.1),
    "nadam": partial(torch.optim.NAdam, lr=0.1),
}
SCHEDULES = {
    "none": None,
    "step": partial(torch.optim.lr_scheduler.StepLR, step_size=2, gamma=0.5),
    "cosine": partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=5),
    "milestones": partial(torch.optim.lr_scheduler.MultiStepLR, milestones=[1, 3], gamma=0.1),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_stacked_equals_separate(name, schedule):
    random = torch.Generator().manual_seed(0)
    start = torch.randn(3, 4, 2, generator=random)
    slopes = torch.randn(5, 2, 3, 4, 2, generator=random) * torch.tensor([1, 10, 0.1])[:, None, None]
    make, scheduler = ELEMENTWISE[name], SCHEDULES[schedule]

    models, optimizer = {"w": start}, Optimizer(make, scheduler)
    for rounds in slopes:
        running = optimizer.start(models, ["w"])
        for slope in rounds:
            running.apply({"w": slope})
        models, optimizer = running.finish()

    for i in range(3):
        alone = start[i].clone()
        plain = make([alone])
        plan = scheduler(plain) if scheduler else None
        for rounds in slopes:
            for slope in rounds:
                alone.grad = slope[i].clone()
                plain.step()
            if plan:
                plan.step()
        torch.testing.assert_close(models["w"][i], alone)
    assert optimizer.lr == pytest.approx(plain.param_groups[0]["lr"])


@pytest.mark.parametrize(
    "make",
    [
        partial(torch.optim.LBFGS, lr=0.1),
        partial(torch.optim.Muon, lr=0.1),
        partial(torch.optim.Adafactor, lr=0.1),
    ],
    ids=["lbfgs", "muon", "adafactor"],
)
def test_optimizers_that_would_mix_sites_are_refused(make):
    with pytest.raises(InputError, match="optimizer"):
        Optimizer(make)


def test_the_step_size_is_known_before_the_first_round():
    assert Optimizer(partial(torch.optim.Adam, lr=0.3)).lr == 0.3
