"""N stacked models under one torch optimizer are N optimizers."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

import allforone as afo
from allforone.errors import InputError
from allforone.fleet import Optimizer
from allforone.problems.data import draw

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


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.norm, self.head = torch.nn.Linear(4, 5), torch.nn.LayerNorm(5), torch.nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.norm(self.body(x)).relu())


def no_decay_on_biases(parameters):
    parameters = list(parameters)
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.5},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.05)


def fast_head(named_parameters):
    named = dict(named_parameters)
    groups = [
        {"params": [p for name, p in named.items() if name.startswith("head")], "lr": 0.2},
        {"params": [p for name, p in named.items() if not name.startswith("head")]},
    ]
    return torch.optim.Adagrad(groups, lr=0.01, initial_accumulator_value=0.1)


@pytest.mark.parametrize("make", [no_decay_on_biases, fast_head])
@pytest.mark.parametrize("rounds", [1, 2])
def test_groups_of_parameters_are_those_that_one_model_alone_would_have(make, rounds):
    def client(k):
        x = torch.randn(40, 4, generator=torch.Generator().manual_seed(k))
        return afo.Client((x, (x.sum(1) > 0).long()), (x, (x.sum(1) > 0).long()))

    problem = afo.Problem(Small, F.cross_entropy, clients=[client(k) for k in range(3)])
    found = afo.train(problem, algorithm=afo.Local(), optimizer=make, rounds=rounds, inner=6 // rounds, batch_size=8)
    for i, given in enumerate(problem.clients):
        model = problem.initial_model(127)
        optimizer = make(model.named_parameters() if make is fast_head else model.parameters())
        for step in range(6):
            x, y = draw(given.train, 8, seed=127, client=i, step=step, purpose="update")
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        for name, tensor in model.named_parameters():
            torch.testing.assert_close(found.stacked[name][i], tensor.detach(), rtol=1e-4, atol=1e-5)


def test_a_function_that_leaves_parameters_out_leaves_them_as_they_were():
    x = torch.randn(20, 4)
    client = afo.Client((x, x.argmax(1) % 3), (x, x.argmax(1) % 3))
    model = Small()
    only_head = lambda named_parameters: torch.optim.SGD([p for n, p in named_parameters if "head" in n], lr=0.1)  # noqa: E731
    found = afo.train(model, [client, client], loss=F.cross_entropy, optimizer=only_head, rounds=2).stacked
    assert torch.equal(found["body.weight"][1], model.body.weight)
    assert not torch.equal(found["head.weight"][1], model.head.weight)
