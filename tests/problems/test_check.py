"""What bad input gets: a message that names the client and the remedy, before anything is computed."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import allforone as afo

GOOD = (torch.zeros(4, 3), torch.zeros(4, dtype=torch.long))


def train(bad, *, test=GOOD, loss=F.cross_entropy, model=None):
    clients = [afo.Client(GOOD, GOOD), afo.Client(bad, test, name="Lille")]
    afo.train(model or nn.Linear(3, 2), clients, loss=loss, rounds=1)


def test_a_client_without_data_is_named():
    with pytest.raises(afo.InputError, match=r"client 1 \(Lille\), train data: no samples.*leave this client out"):
        train((torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)))


def test_a_client_without_test_data_is_named():
    with pytest.raises(afo.InputError, match=r"client 1 \(Lille\), test data: no samples"):
        train(GOOD, test=(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)))


def test_nan_in_the_data_is_named_with_its_sample():
    inputs = torch.zeros(4, 3)
    inputs[2, 1] = torch.nan
    with pytest.raises(afo.InputError, match=r"client 1 .*NaN or infinity in the inputs at sample 2"):
        train((inputs, GOOD[1]))


def test_clients_that_disagree_in_shape_are_named():
    with pytest.raises(afo.InputError, match=r"client 1 .*float32 \[5\].*client 0's are float32 \[3\]"):
        train((torch.zeros(4, 5), GOOD[1]))


def test_clients_that_disagree_in_dtype_are_named():
    with pytest.raises(afo.InputError, match=r"client 1 .*targets are int32 \[\].*client 0's are int64"):
        train((GOOD[0], torch.zeros(4, dtype=torch.int32)))


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32])
def test_labels_of_the_wrong_dtype_are_explained(dtype):
    wrong = (torch.zeros(4, 3), torch.zeros(4, dtype=dtype))
    with pytest.raises(afo.InputError, match=r"client 0: loss\(model.*must be int64"):
        afo.train(nn.Linear(3, 2), [afo.Client(wrong, wrong)], loss=F.cross_entropy, rounds=1)


def test_regression_targets_that_would_be_broadcast_are_refused():
    wrong = (torch.randn(4, 3), torch.randn(4))
    with pytest.raises(afo.InputError, match="dtype and shape of the model's output"):
        afo.train(nn.Linear(3, 1), [afo.Client(wrong, wrong)], loss=F.mse_loss, rounds=1)


def test_a_loss_that_is_not_a_scalar_is_refused():
    with pytest.raises(afo.InputError, match="scalar"):
        train(GOOD, loss=lambda output, target: F.cross_entropy(output, target, reduction="none"))


def test_no_clients_and_nothing_to_train_are_refused():
    with pytest.raises(afo.InputError, match="no clients"):
        afo.train(nn.Linear(3, 2), [], loss=F.cross_entropy)
    with pytest.raises(afo.InputError, match="no parameters"):
        train(GOOD, model=nn.Identity())


@pytest.mark.parametrize("options", [
    {"lr": -0.1}, {"lr": 0.0}, {"rounds": 0}, {"inner": -1}, {"batch_size": 0}, {"fleet": "cloud"},
])
def test_arguments_out_of_range_are_named(options):
    with pytest.raises(afo.InputError, match=next(iter(options))):
        afo.train(nn.Linear(3, 2), [afo.Client(GOOD, GOOD)], loss=F.cross_entropy, **options)
