"""Rows that are updated one by one come to the same models and the same state as all at once, bit for bit."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import allforone as afo
from allforone.fleet import Optimizer, row_by_row
from allforone.fleet.row_by_row import ByRow

from .test_device import same, trained

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "groups": lambda p: torch.optim.AdamW([{"params": [p[1]], "lr": 0.1}, {"params": [p[0]]}], lr=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
}
#: Of sizes that vectors of no machine divide.
SHAPES = {"weight": (3, 37, 5), "bias": (3, 13), "mean": (3, 7)}


def stacks(count, number):
    random = torch.Generator().manual_seed(number)
    return [{name: torch.randn(shape, generator=random) for name, shape in SHAPES.items()} for _ in range(count)]


def leaves(state):
    if isinstance(state, dict):
        return [leaf for value in state.values() for leaf in leaves(value)]
    return [leaf for value in state for leaf in leaves(value)] if isinstance(state, list | tuple) else [state]


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_rows_one_by_one_are_all_rows_at_once_bit_for_bit(make):
    schedule = lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)  # noqa: E731
    (models,) = stacks(1, 0)
    kept = {name: tensor.clone() for name, tensor in models.items()}
    shapes = {"weight": (37, 5), "bias": (13,)}
    at_once = by_row = models, Optimizer(make, schedule, shapes=shapes)
    for number in range(3):
        before = leaves(by_row[1].state or {})
        known = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in before]
        running = at_once[1].start(at_once[0], ["weight", "bias"])
        rows = ByRow(by_row[1], by_row[0], ["weight", "bias"])
        for gradients in stacks(2, number + 1):
            running.apply(gradients)
            for m in (2, 0, 1):
                rows.apply(m, {name: tensor[m] for name, tensor in gradients.items()})
        at_once, by_row = running.finish(), rows.finish()
        assert all(torch.equal(at_once[0][name], by_row[0][name]) for name in models)
        assert at_once[1] == by_row[1]
        assert all(torch.equal(a, b) for a, b in zip(before, known, strict=True) if isinstance(b, torch.Tensor))
    assert all(torch.equal(models[name], kept[name]) for name in models)


def test_a_row_that_asked_nobody_is_updated_by_a_gradient_of_zero():
    (models,) = stacks(1, 0)
    rows = ByRow(Optimizer(OPTIMIZERS["adam"]), models, ["weight", "bias"])
    for m in range(3):
        rows.apply(m, {} if m else {"weight": torch.ones(37, 5), "bias": torch.ones(13)})
    found, optimizer = rows.finish()
    assert not torch.equal(found["bias"][0], models["bias"][0])
    assert torch.equal(found["bias"][1:], models["bias"][1:])
    assert {int(entry["step"]) for entry in optimizer.state["optimizer"]["state"].values()} == {1}


def test_a_row_is_updated_while_another_is_in_the_middle_of_its_pass():
    (models,) = stacks(1, 0)
    rows = ByRow(Optimizer(OPTIMIZERS["sgd"]), models, ["weight", "bias"])
    leaf = rows.models["weight"][0].detach().requires_grad_()
    loss = leaf.square().sum()
    rows.apply(1, {"weight": torch.ones(37, 5), "bias": torch.ones(13)})
    assert torch.equal(torch.autograd.grad(loss, leaf)[0], 2 * models["weight"][0])


def normed():
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


@pytest.mark.parametrize("algorithm", [afo.Local(), afo.AllForOne()], ids=["local", "all-for-one"])
def test_a_run_by_rows_is_the_same_run(algorithm, monkeypatch):
    told = {"model": normed, "algorithm": algorithm, "optimizer": torch.optim.Adam, "participation": 0.7}
    plain = trained(rounds=3, **told)
    monkeypatch.setattr(row_by_row, "MANY_NUMBERS", 0)
    assert same(plain, trained(rounds=3, **told))


def test_while_a_run_goes_on_its_first_models_are_let_go(monkeypatch):
    import gc
    import weakref

    from allforone.fleet import Stacked

    made, alive = [], []
    initial = Stacked.initial

    def watched(fleet):
        models = initial(fleet)
        made.append(weakref.ref(models["weight"]))
        return models

    def look(record):
        gc.collect()
        alive.append([found() is not None for found in made])

    monkeypatch.setattr(Stacked, "initial", watched)
    trained(rounds=3, algorithm=afo.Local(), callbacks=[look], loss=F.cross_entropy)
    assert alive[-1] == [False]
