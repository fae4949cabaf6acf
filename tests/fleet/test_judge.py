"""Models are judged on all test data of a client at once, however large."""

import math

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

import allforone as afo
from allforone.fleet import Stacked
from allforone.fleet.judge import PASSED_NUMBERS

FEATURES = 1024
SAMPLES = 2500  # more than two passes through the model


def cox_loss(output, target):
    """Cox's partial likelihood: every event against all who are still at risk, so no mean over samples."""
    time, event = target.T
    order = time.argsort(descending=True)
    risk = output[order, 0]
    return -((risk - risk.logcumsumexp(0)) * event[order]).sum() / event.sum().clamp(min=1)


def auc(output, target):
    event = target[:, 1]
    return roc_auc_score(event, output[:, 0]) if len(event.unique()) == 2 else math.nan


def client(seed):
    """The later a sample stands, the larger are its inputs and the rarer the events: parts are not like the whole."""
    random, drift = torch.Generator().manual_seed(seed), torch.linspace(-2, 2, SAMPLES)
    noise = torch.randn(SAMPLES, FEATURES, generator=random)
    inputs = noise + drift[:, None] / FEATURES**0.5
    event = (noise.sum(1) / FEATURES**0.5 - drift > 0).float()
    data = inputs, torch.stack([torch.rand(SAMPLES, generator=random), event], 1)
    return afo.Client(data, data)


def test_an_auc_and_a_cox_loss_see_the_whole_test_set_at_once():
    assert SAMPLES * FEATURES > 2 * PASSED_NUMBERS
    model = nn.Linear(FEATURES, 1)
    nn.init.constant_(model.weight, FEATURES**-0.5)
    clients = [client(1), client(2)]
    fleet = Stacked(afo.Problem(model, cox_loss, metrics={"auc": auc}, clients=clients), seed=0, batch_size=4)
    found = fleet.evaluate(fleet.initial(), fleet.begin(0, range(0)))
    for place, one in enumerate(clients):
        inputs, targets = one.test.take(torch.arange(SAMPLES))
        output = model(inputs).detach()
        assert float(found.loss[place]) == pytest.approx(float(cox_loss(output, targets)), rel=1e-5)
        assert float(found.metrics["auc"][place]) == pytest.approx(auc(output, targets), abs=1e-6)
        parts = torch.arange(SAMPLES).split(PASSED_NUMBERS // FEATURES)
        for function in (cox_loss, auc):  # what a mean over parts would have been
            mean = sum(len(part) * float(function(output[part], targets[part])) for part in parts) / SAMPLES
            assert abs(mean - float(function(output, targets))) > 0.01


def test_a_metric_that_is_not_defined_for_a_client_is_not_known_and_not_diverged():
    def one_class_only(output, target):
        return math.nan if len(target.unique()) == 1 else 0.5

    inputs, random = torch.randn(20, 3), torch.arange(20) % 2
    clients = [afo.Client((inputs, random), (inputs, targets)) for targets in (random, torch.zeros(20).long())]
    result = afo.train(
        nn.Linear(3, 2), clients, loss=nn.functional.cross_entropy, metrics={"auc": one_class_only}, rounds=2
    )
    assert result.metrics["auc"].to_list() == [0.5, None] * 3
    assert result.metrics["loss"].null_count() == 0
