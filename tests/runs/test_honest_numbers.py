"""Numbers that are shown are those of the models that were trained, or are not shown."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import allforone as afo
from allforone.describe import architecture, described
from allforone.errors import InputError
from allforone.runs import Folder, read_comparison, read_run, summarise
from allforone.testing import small_problem

SGD = partial(torch.optim.SGD, lr=0.1)


def test_what_was_known_of_an_earlier_model_is_not_told_of_a_later_one(tmp_path):
    def here(step):
        return [True, step < 4, True, True]

    afo.train(small_problem(), rounds=5, lr=0.3, evaluate_every=5, participation=here, out=tmp_path / "run")
    last = read_run(tmp_path / "run").metrics.filter(round=5).sort("client")
    assert last["loss"].is_null().to_list() == [False, True, False, False]
    assert summarise(read_comparison(tmp_path / "run"))["algorithms"]["all-for-one"]["test_loss"]["mean"] > 0


def test_a_test_loss_that_is_undefined_for_a_client_from_the_start_is_no_divergence():
    def over_positives(output, target):
        return F.cross_entropy(output, target, reduction="none")[target > 0].mean()

    random = torch.Generator().manual_seed(0)
    x = torch.randn(40, 3, generator=random)
    mixed, negative = (torch.arange(40) % 2), torch.zeros(8, dtype=torch.long)
    clients = [afo.Client((x, mixed), (x[:8], mixed[:8])), afo.Client((x, mixed), (x[:8], negative))]
    problem = afo.Problem(partial(nn.Linear, 3, 2), over_positives, clients=clients)
    result = afo.train(problem, rounds=2)
    assert result.metrics.filter(client=1)["loss"].null_count() == 3
    assert result.metrics.filter(client=0)["loss"].null_count() == 0


def test_a_problems_scheduler_stays_when_an_optimizer_is_given():
    settings = afo.Settings(scheduler={"name": "StepLR", "step_size": 1, "gamma": 0.0})
    subject = replace(small_problem(), settings=settings)
    by_name, given = (afo.train(subject, rounds=3, **more) for more in ({"lr": 0.1}, {"optimizer": SGD}))
    assert given.config.scheduler == by_name.config.scheduler
    assert all(given.stacked[name].equal(by_name.stacked[name]) for name in given.stacked)


def test_another_metric_of_the_same_name_is_refused(tmp_path):
    first, second = (replace(small_problem(), metrics={"s": metric}) for metric in (lambda o, t: 1.0, lambda o, t: 2.0))
    afo.train(first, rounds=1, out=tmp_path / "run")
    with pytest.raises(InputError, match="another metrics"):
        afo.train(second, rounds=2, out=tmp_path / "run", resume=True)


def test_a_problem_is_called_by_its_name(tmp_path):
    afo.train(replace(small_problem(), name="Three sites"), rounds=1, out=tmp_path / "run")
    assert Folder(tmp_path / "run").config["title"] == "Three sites"
    assert read_comparison(tmp_path / "run").problem == "Three sites"


CRITERION, WEIGHTS = nn.CrossEntropyLoss(), np.ones(3)


def by_module(output, target):
    return CRITERION(output, target)


def by_array(output, target):
    return F.cross_entropy(output, target, torch.from_numpy(WEIGHTS).float())


class Static:
    @staticmethod
    def helper(x):
        return x * 2

    def __call__(self, output, target):
        return self.helper(F.cross_entropy(output, target))


def test_what_a_loss_uses_by_name_counts(monkeypatch):
    before = described(by_module), described(by_array), described(Static())
    monkeypatch.setattr(f"{__name__}.CRITERION", nn.CrossEntropyLoss(label_smoothing=0.9))
    monkeypatch.setattr(f"{__name__}.WEIGHTS", np.array([1.0, 2, 3]))
    monkeypatch.setattr(Static, "helper", staticmethod(lambda x: x * 3))
    after = described(by_module), described(by_array), described(Static())
    assert all(then != now for then, now in zip(before, after, strict=True))


def test_the_functions_of_a_layer_count():
    class Net(nn.Module):
        def __init__(self, act):
            super().__init__()
            self.layer, self.act = nn.Linear(2, 2), act

    assert architecture(Net(torch.tanh)) != architecture(Net(torch.relu))
    assert architecture(Net(torch.tanh)) == architecture(Net(torch.tanh))


def test_numbers_of_numpy_are_described_as_numbers():
    assert described(partial(torch.optim.SGD, lr=np.float32(0.5))) == {"name": "SGD", "lr": 0.5}


def test_the_users_module_stays_as_it_was():
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    model[1].eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    subject = small_problem()
    first, second = (afo.train(model, subject.clients, loss=F.cross_entropy, rounds=2) for _ in range(2))
    assert model.training and not model[1].training
    assert all(tensor.equal(before[name]) for name, tensor in model.state_dict().items())
    assert all(first.stacked[name].equal(second.stacked[name]) for name in first.stacked)
