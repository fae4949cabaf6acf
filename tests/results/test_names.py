"""Sites go by their names, wherever one is meant."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import allforone as afo
from allforone.errors import Diverged, InputError, Notice

from .sites import hospitals


@pytest.fixture(scope="module")
def result():
    return afo.train(hospitals(), rounds=2)


def test_a_model_is_found_by_name_and_by_number(result):
    for number, name in enumerate(("Hospital A", "Hospital B", "Hospital C")):
        by_name, by_number = result.model(name).state_dict(), result.models[number].state_dict()
        assert all(by_name[key].equal(by_number[key]) for key in by_number)


def test_an_unknown_name_or_number_says_which_there_are(result):
    with pytest.raises(InputError, match=r"did you mean 'Hospital A'"):
        result.model("hospital a")
    for wanted in (3, -1):
        with pytest.raises(InputError, match="the run has 3, numbered from 0"):
            result.model(wanted)
    with pytest.raises(InputError, match="give its name"):
        result.model(1.5)


def test_a_prediction_is_that_of_the_plain_model_on_transformed_inputs():
    data = torch.randint(0, 255, (30, 4), dtype=torch.uint8), torch.randint(2, (30,))
    clients = [afo.Client(data, data, name=name, transform=lambda x: x / 255) for name in ("Hospital A", "Hospital B")]
    result = afo.train(nn.Linear(4, 2), clients, loss=F.cross_entropy, rounds=2)
    model = result.model("Hospital B")
    assert result.predict("Hospital B", data[0]).equal(model(data[0] / 255))
    assert not result.predict("Hospital B", data[0]).requires_grad
    with pytest.raises(InputError, match=r"client 1 \(Hospital B\): its model fails on these inputs"):
        result.predict("Hospital B", torch.zeros(2, 7))


def test_an_export_by_name_is_that_of_the_number(result, tmp_path):
    result.export("Hospital C", tmp_path / "by name")
    result.export(2, tmp_path / "by number")
    one, other = ((tmp_path / place / "model.safetensors").read_bytes() for place in ("by name", "by number"))
    assert one == other
    assert "Client Hospital C" in (tmp_path / "by name" / "load.py").read_text()


def test_errors_of_a_run_name_the_site():
    problem = hospitals()
    with pytest.raises(Diverged, match=r"client \d \(Hospital [ABC]\)"):
        afo.train(nn.Linear(4, 1), _as_regression(problem.clients), loss=F.mse_loss, lr=1e12, rounds=30)


def test_who_is_not_watched_by_a_guard_is_named():
    clients = [*hospitals().clients, afo.Client(*[(torch.randn(6, 4), torch.randint(2, (6,)))] * 2, name="Hospice")]
    with pytest.warns(Notice, match=r"does not watch client 3 \(Hospice\)"):
        afo.train(nn.Linear(4, 2), clients, loss=F.cross_entropy, rounds=1, guard=True)


def _as_regression(clients):
    def data(part):
        inputs, targets = part.tensors
        return inputs, targets[:, None].float()

    return [afo.Client(data(client.train), data(client.test), name=client.name) for client in clients]
