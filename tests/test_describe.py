"""Things describe themselves: by repr, equality and plain values, the same in Python and in a config."""

import json
from functools import partial

import pytest
import torch
import torch.nn.functional as F
import yaml
from torch import nn

import allforone as afo
from allforone.algorithms import ALGORITHMS, Ditto, Guarded
from allforone.describe import architecture, described
from allforone.fleet import Optimizer
from allforone.runs import Choice, execute, load_algorithm, parse, prepare

VALUES = [
    (lambda: afo.binary(0.2), "Binary(threshold=0.2)", {"name": "Binary", "threshold": 0.2}),
    (lambda: afo.continuous(), "Continuous()", {"name": "Continuous"}),
    (lambda: afo.FreshSamples(64), "FreshSamples(samples=64)", {"name": "FreshSamples", "samples": 64}),
    (lambda: afo.Local(), "Local()", {"name": "local"}),
    (lambda: afo.Oracle(), "Oracle()", {"name": "oracle"}),
    (lambda: Ditto(0.5), "Ditto(penalty=0.5)", {"name": "ditto", "penalty": 0.5}),
    (
        lambda: afo.FedAvg(finetune=2),
        "FedAvg(proximal=0.0, finetune=2)",
        {"name": "fedavg-finetune", "proximal": 0.0, "finetune": 2},
    ),
    (
        lambda: afo.BySimilarity(afo.binary(0.2), afo.FreshSamples(64)),
        "BySimilarity(criterion=Binary(threshold=0.2), estimator=FreshSamples(samples=64), weighting=None)",
        {"name": "all-for-one-binary", "threshold": 0.2, "samples": 64, "weighting": None},
    ),
    (
        lambda: Guarded(afo.AllForOne()),
        "Guarded(algorithm=AllForOne(samples=16, sketch=64, every=1, correct=False, exchange='update', "
        "partners=None, candidates=None, momentum=None, together=None))",
        {
            **{"name": "all-for-one", "samples": 16, "sketch": 64, "every": 1, "correct": False},
            **{"exchange": "update", "partners": None, "candidates": None, "momentum": None, "together": None},
        },
    ),
]


@pytest.mark.parametrize(("make", "shown", "plain"), VALUES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_value_equals_its_like_shows_its_fields_and_is_plain_in_a_config(make, shown, plain):
    assert make() == make() and hash(make()) == hash(make())
    assert repr(make()) == shown
    assert described(make()) == plain
    assert yaml.safe_load(yaml.safe_dump(described(make()))) == plain


def test_values_with_other_fields_are_not_equal():
    assert afo.binary(0.2) != afo.binary(0.3)
    assert afo.binary(0.2) != afo.continuous()
    assert afo.BySimilarity(afo.binary(0.2)) != afo.BySimilarity(afo.binary(0.3))
    assert afo.AllForOne() != afo.AllForOne(samples=8)
    assert afo.FreshSamples(2) != afo.FreshSamples(3)


def test_a_value_cannot_be_changed():
    with pytest.raises(AttributeError):
        afo.binary(0.2).threshold = 0.3


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_is_made_again_from_its_description(name):
    algorithm = ALGORITHMS[name]()
    assert described(algorithm)["name"] == algorithm.name == name
    assert load_algorithm(Choice(**described(algorithm))) == algorithm


def weighted(output, target, weight=2.0):
    return weight * F.mse_loss(output, target)


def times(factor):
    return lambda output, target: factor * F.mse_loss(output, target)


def test_a_librarys_function_is_known_by_its_name_and_ones_own_by_its_code():
    assert described(F.mse_loss) == "torch.nn.functional.mse_loss"
    assert described(torch.square) == "torch._VariableFunctionsClass.square"
    assert described(weighted).keys() == {"name", "code"} and described(weighted)["name"] == "weighted"
    assert described(times(2.0)) == described(times(2.0)) != described(times(3.0))


def test_a_function_that_was_called_is_described_as_before():
    before = described(weighted)
    for _ in range(100):
        weighted(torch.zeros(1), torch.zeros(1))
    assert described(weighted) == before


def test_optimizers_are_described_by_their_class_and_options():
    assert described(partial(torch.optim.SGD, lr=0.1)) == {"name": "SGD", "lr": 0.1}
    assert described(torch.optim.Adam) == "Adam"
    assert described(partial(torch.optim.Adam, betas=(0.9, 0.99))) == {"name": "Adam", "betas": [0.9, 0.99]}
    one, other = (Optimizer(partial(torch.optim.SGD, lr=lr)) for lr in (0.1, 0.2))
    assert described(one) != described(other)


def test_a_module_is_described_by_its_settings_and_numbers_in_any_precision():
    assert described(nn.MSELoss()) == described(nn.MSELoss()) != described(nn.MSELoss(reduction="sum"))
    weights = [torch.tensor([1.0, factor], dtype=torch.bfloat16) for factor in (2.0, 2.0, 3.0)]
    one, same, other = (described(nn.CrossEntropyLoss(weight=weight)) for weight in weights)
    assert one == same != other
    assert described(torch.zeros(2, 3)) != described(torch.zeros(3, 2)) != described(torch.zeros(6, dtype=torch.int32))


def test_an_architecture_is_that_of_any_weights_in_any_mode_and_another_of_another_setting():
    one, other = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.1)), nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.1))
    assert architecture(one) == architecture(other.eval())
    assert architecture(one) != architecture(nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.2)))
    assert architecture(one) != architecture(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.1)))


def keys(value):
    """The keys of nested dictionaries and lists, without their values."""
    if isinstance(value, dict):
        return {key: keys(item) for key, item in value.items()}
    return [keys(item) for item in value] if isinstance(value, list) else None


@pytest.mark.parametrize("name", ["all-for-one", "all-for-one-binary", "ditto", "fedavg", "local"])
def test_a_run_folder_from_python_has_the_schema_of_one_from_a_config(tmp_path, name):
    algorithm = ALGORITHMS[name]()
    config = parse({"problem": {"name": "digits", "clients": 4}, "rounds": 1, "algorithm": described(algorithm)})
    execute(prepare(config), tmp_path / "config")
    afo.train(afo.digits(clients=4), algorithm=algorithm, rounds=1, out=tmp_path / "python")
    ours, theirs = (yaml.safe_load((tmp_path / place / "config.yaml").read_text()) for place in ("python", "config"))
    assert ours["algorithm"] == theirs["algorithm"]
    assert ours["algorithm"] == {key: value for key, value in described(algorithm).items() if value is not None}
    ours["problem"], theirs["problem"] = ({"name": config["problem"]["name"]} for config in (ours, theirs))
    assert keys(ours) == keys(theirs)
    assert (ours.pop("title"), theirs.pop("title")) == ("digits", "digits, clients=4")  # options are named where given
    del ours["problem"], theirs["problem"]
    assert ours == theirs
    for file in ("clients.json", "environment.json"):
        one, other = (json.loads((tmp_path / place / file).read_text()) for place in ("python", "config"))
        assert keys(one) == keys(other)
    headers = [(tmp_path / place / "metrics.csv").read_text().splitlines()[0] for place in ("python", "config")]
    assert headers[0] == headers[1]
    files = [{path.name for path in (tmp_path / place).iterdir()} for place in ("python", "config")]
    assert files[0] == files[1]
