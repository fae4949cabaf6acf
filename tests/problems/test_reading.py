"""Whatever people have their data in is read as what it holds."""

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, SubsetRandomSampler, TensorDataset, WeightedRandomSampler

import allforone as afo
from allforone.problems.data import Finite
from allforone.problems.tree import alike, joined, kind, leaves, rows, split

X, Y = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 2
ITEMS = list(zip(X, Y, strict=True))


def padded(items):
    return torch.stack([x for x, _ in items]), torch.stack([y for _, y in items])


@pytest.mark.parametrize(
    "source",
    [
        (X.numpy(), Y.numpy()),
        (X.double().numpy(), Y.numpy()),
        [X, Y],
        ITEMS,
        DataLoader(TensorDataset(X, Y), 4, shuffle=True),
        DataLoader(ITEMS, 4, collate_fn=padded),
    ],
)
def test_what_holds_the_same_is_read_as_the_same(source):
    places = torch.tensor([3, 1, 7])
    inputs, targets = Finite(source).take(places)
    assert inputs.dtype == torch.float32 and inputs.equal(X[places]) and targets.equal(Y[places])


def test_the_targets_are_the_last_of_several_tensors_and_the_labels_of_a_dict():
    for source in (TensorDataset(X, 2 * X, Y), (X, 2 * X, Y), [(x, 2 * x, y) for x, y in ITEMS]):
        inputs, targets = Finite(source).take(torch.arange(4))
        assert isinstance(inputs, tuple) and inputs[1].equal(2 * X[:4]) and targets.equal(Y[:4])
    for source in ({"a": X, "labels": Y}, [{"a": x, "label": y} for x, y in ITEMS]):
        inputs, targets = Finite(source).take(torch.arange(4))
        assert list(inputs) == ["a"] and inputs["a"].equal(X[:4]) and targets.equal(Y[:4])


def test_of_a_loader_only_the_samples_that_it_draws_are_taken():
    drawn = [2, 3, 5, 7, 11]
    data = Finite(DataLoader(TensorDataset(X, Y), 4, sampler=SubsetRandomSampler(drawn)))
    assert len(data) == 5 and data.take(torch.arange(5))[0].equal(X[drawn])


@pytest.mark.parametrize(
    "options",
    [
        {"sampler": WeightedRandomSampler(torch.ones(20), 20)},
        {"sampler": RandomSampler(X, num_samples=7)},
        {"batch_sampler": [[0, 1], [2, 3]]},
    ],
)
def test_a_loader_that_draws_in_a_way_of_its_own_is_refused(options):
    with pytest.raises(afo.InputError, match="give its data set"):
        afo.Client(DataLoader(TensorDataset(X, Y), **options))


def test_batches_are_as_large_as_those_of_the_loaders():
    def size(*sizes, **options):
        clients = [afo.Client(DataLoader(TensorDataset(X, Y), size)) for size in sizes]
        return afo.train(nn.Linear(3, 2), clients, loss=F.cross_entropy, rounds=1, **options).config.batch_size

    assert (size(4, 4), size(4, 8, batch_size=2)) == (4, 2)
    with pytest.raises(afo.InputError, match=r"batches of 4, 8: say which by batch_size"):
        size(4, 8)


def test_clients_may_be_given_by_their_names():
    data = X, Y
    clients = {"Hospital A": (data, data), "Hospital B": data, "C": afo.Client(data, None, name="other")}
    with pytest.warns(UserWarning, match=r"no test data of client 2 \(C\)"):
        result = afo.train(nn.Linear(3, 2), clients, loss=F.cross_entropy, rounds=1)
    assert [member.name for member in result.roster] == list(clients)
    assert [member.size for member in result.roster] == [20, 16, 20]
    last = result.metrics.filter(round=1).sort("client")
    assert [value is None for value in last["loss"]] == [value is None for value in last["accuracy"]] == [0, 0, 1]


def test_a_share_held_out_as_test_data_is_the_same_every_time_and_not_trained_on():
    one, other = (afo.Client((torch.arange(20.0)[:, None], Y), 0.3) for _ in range(2))
    (train, _), (test, _) = one.train.tensors, one.test.tensors
    assert len(test) == 6 and sorted(torch.cat([train, test]).flatten().tolist()) == list(range(20))
    assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize("fleet", ["stacked", "loop"])
def test_without_any_test_data_a_run_is_written_and_shown_and_gone_on_with(fleet, tmp_path):
    model = nn.Linear(3, 2)

    def trained(rounds, **options):
        clients = [afo.Client((X + k, Y), None) for k in range(3)]
        with pytest.warns(UserWarning, match="no test data of client 0, client 1, client 2"):
            return afo.train(model, clients, loss=F.cross_entropy, rounds=rounds, fleet=fleet, **options)

    trained(1, out=tmp_path / "run")
    result, whole = trained(3, out=tmp_path / "run", resume=True), trained(3)
    assert all(result.stacked[name].equal(whole.stacked[name]) for name in whole.stacked)
    assert result.metrics["loss"].null_count() == len(result.metrics)
    assert result.report(tmp_path / "report.html").stat().st_size > 10_000


class TwoOutputs(nn.Linear):
    def forward(self, input):
        output = super().forward(input)
        return {"logits": output, "hidden": (output, 2 * output)}


def test_accuracy_is_that_of_the_first_of_several_outputs():
    def loss(output, target):
        return F.cross_entropy(output["logits"], target)

    two, one = TwoOutputs(3, 2), nn.Linear(3, 2)
    one.load_state_dict(two.state_dict())
    found = [
        afo.train(model, {"A": (X, Y)}, loss=how, rounds=1).metrics["accuracy"].to_list()
        for model, how in ((two, loss), (one, F.cross_entropy))
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (((X, X[:5]), Y), "20 inputs[0] but 5 inputs[1]"),
        (({"a": X, "b": torch.tensor(1.0)}, Y), "inputs['b'] must have a first dimension"),
        (({"a": X, "b": "text"}, Y), "cannot read data from str"),
        ((np.array([["a", 1]] * 20, dtype=object), Y), "an array of object cannot be a tensor"),
        (TensorDataset(X), "a batch of 1 parts is no pair"),
        ({}, "says not which are the targets"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(source, said):
    with pytest.raises(afo.InputError, match=re.escape(said)):
        afo.Client(source, None)


def test_a_number_out_of_range_or_missing_is_named_by_its_place_in_the_batch():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(5, 2)

        def forward(self, ids, weight):
            return (self.words(ids) * weight).mean(1)

    def trained(ids, weight):
        good = {"ids": torch.zeros(6, 3).long(), "weight": torch.ones(6, 3, 1)}
        clients = [afo.Client((inputs, Y[:6]), None) for inputs in (good, {"ids": ids, "weight": weight})]
        afo.train(Words, clients, loss=F.cross_entropy, rounds=1)

    ids, weight = torch.zeros(6, 3).long(), torch.ones(6, 3, 1)
    weight[4, 1] = torch.nan
    with (
        pytest.warns(UserWarning, match="no test data"),
        pytest.raises(afo.InputError, match=r"client 1, train data: NaN or infinity in the inputs\['weight'\].* 4"),
    ):
        trained(ids, weight)
    ids[3, 2] = 7
    with (
        pytest.warns(UserWarning, match="no test data"),
        pytest.raises(afo.InputError, match=r"client 1, train data: sample 3, input\['ids'\] up to 7"),
    ):
        trained(ids, torch.ones(6, 3, 1))


def test_trees_are_taken_apart_and_put_together_without_loss():
    tree = {"a": X, "b": (Y, [X.double()])}
    parts = split(tree, [5, 15])
    assert [kind(part) for part in parts] == ["{a: float32 [3], b: (int64 [], (float64 [3]))}"] * 2
    assert not alike(parts) and alike([rows(part, slice(2)) for part in parts])
    again = joined(parts)
    assert type(again["b"][1]) is list and all(a.equal(b) for a, b in zip(leaves(again), leaves(tree), strict=True))
