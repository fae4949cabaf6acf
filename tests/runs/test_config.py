"""A wrong config says which key, what was expected, and the nearest name: one line, exit code 2, nothing written."""

from functools import partial

import numpy as np
import pytest
import torch

import allforone as afo
from allforone.errors import InputError
from allforone.runs import parse, parse_seeds
from allforone.testing import small_problem


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "digitz"], "unknown problem 'digitz'; did you mean 'digits'?"),
        (["run", "digits", "--algorithm", "lokal"], "unknown algorithm 'lokal'; did you mean 'local'?"),
        (["run", "digits", "-p", "client=4"], "unknown key 'client'; did you mean 'clients'?"),
        (["run", "digits", "-p", "clients=many"], "clients: expected integer"),
        (
            ["run", "digits", "-p", "split=none"],
            "split: expected 'cluster', 'iid', 'dirichlet' or 'shards', got 'none'",
        ),
        (["run", "digits", "-p", "clients"], "expected name=value"),
        (["run", "digits", "--algorithm", "all-for-one-binary", "-a", "treshold=0.2"], "did you mean 'threshold'?"),
        (
            ["run", "digits", "--algorithm", "all-for-one-binary", "-a", "threshold=0"],
            "threshold λ is 0.0: must be in (0, 1]",
        ),
        (["run", "digits", "--algorithm", "all-for-one-binary", "-a", "threshold=1.5"], "must be in (0, 1]"),
        (
            ["run", "digits", "--algorithm", "all-for-one-binary", "-a", "weighting=none"],
            "expected 'definition' or 'normalised'",
        ),
        (["run", "digits", "-a", "samples=0"], "samples is 0"),
        (["run", "digits", "--participation", "0"], "participation: expected greater than 0"),
        (["run", "digits", "--attack", "flop:2"], "did you mean 'flip'?"),
        (["run", "digits", "--attack", "flip:10"], "at most 9 may lie"),
        (["run", "digits", "--attack", "flip:2", "--fleet", "looop"], "unknown fleet 'looop'; did you mean 'loop'?"),
        (["run", "digits", "--algorithm", "local", "-a", "threshold=0.2"], "unknown key 'threshold'"),
        (["run", "digits", "--lr", "-0.1"], "lr is -0.1: the step size must be a number above 0"),
        (["run", "digits", "--rounds", "0"], "rounds: expected greater than or equal to 1, got 0"),
        (["run", "digits", "--optimizer", "Adm"], "unknown optimizer 'Adm'; did you mean 'Adam'?"),
        (["run", "digits", "--optimizer", "LBFGS"], "the optimizer"),
        (["run", "digits", "--fleet", "clouds"], "unknown fleet 'clouds'; known: stacked, compiled, loop"),
        (["run", "digits", "--config", "nowhere.yaml"], "nowhere.yaml: no such file"),
        (["compare", "digits", "--algorithms", "local,fedavgg"], "did you mean 'fedavg'?"),
        (["compare", "digits", "--algorithms", "local,local"], "each once"),
        (["compare", "digits", "--algorithms", "local,ditto:penalt=1"], "did you mean 'penalty'?"),
        (["compare", "digits", "--algorithms", "ditto:penalty"], "expected name=value"),
        (["compare", "digits", "--seeds", "a,b"], "expected whole numbers"),
        (["compare", "digits", "--seeds", "5,5"], "different whole numbers"),
        (["compare", "digits", "--algorithms", "local,fedavg", "-a", "samples=3"], "fit a single algorithm"),
        (["resume", "nowhere"], "no run there"),
        (["report", "nowhere"], "no runs there"),
    ],
)
def test_a_mistake_gets_one_line_and_exit_code_two(cli, tmp_path, arguments, said):
    out = ["--out", tmp_path / "out"] if arguments[0] in ("run", "compare") else []
    code, _, err = cli(*arguments, *out)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("roundz: 3", "unknown key 'roundz'; did you mean 'rounds'?"),
        ("rounds: many", "rounds: expected integer"),
        ("optimizer: {name: SGD, lrr: 3}", "unknown key 'lrr'; did you mean 'lr'?"),
        ("scheduler: {name: StepLR}", "the scheduler cannot be used"),
        ("scheduler: StepLRR", "did you mean 'StepLR'?"),
        ("- a\n- b", "expected keys and values"),
        ("a: [1", "not YAML"),
    ],
)
def test_a_wrong_yaml_file_is_named(cli, tmp_path, text, said):
    (tmp_path / "settings.yaml").write_text(text)
    code, _, err = cli("run", "digits", "--config", tmp_path / "settings.yaml", "--out", tmp_path / "out")
    assert code == 2
    assert said in err
    assert not (tmp_path / "out").exists()


def test_an_output_folder_that_holds_a_run_is_left_alone(cli, tmp_path):
    out = tmp_path / "out"
    quick = ("digits", "--rounds", 1, "--out", out)
    assert cli("run", *quick)[0] == 0
    before = {path: path.read_bytes() for path in out.iterdir()}
    for command in (("run", *quick), ("compare", *quick)):
        code, _, err = cli(*command)
        assert code == 2
        assert "already exists and is not empty: nothing was overwritten" in err
    assert before == {path: path.read_bytes() for path in out.iterdir()}


def test_seeds_are_a_list_or_a_number_of_them():
    assert parse_seeds("3") == [127, 496, 1729]
    assert parse_seeds("127") == [127]
    assert parse_seeds("5,9") == [5, 9]
    assert parse_seeds("7,") == [7]
    assert parse_seeds("5")[:3] == [127, 496, 1729]
    assert len(set(parse_seeds("20"))) == 20


def test_a_config_is_a_mapping():
    with pytest.raises(InputError, match="expected keys"):
        parse([])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        {"lr": np.float64(0.1)},
        {"lr": np.float32(0.1)},
        {"rounds": np.int64(2), "seed": np.int64(3)},
        {"algorithm": afo.BySimilarity(afo.binary(np.float64(0.2)))},
        {"optimizer": partial(torch.optim.SGD, lr=np.float64(0.1))},
        {"optimizer": partial(torch.optim.Adam, lr=0.1, betas=(np.float64(0.9), 0.99))},
        {"schedule": {"name": "constant", "smoothness": np.float64(4)}},
    ],
)
def test_numbers_of_numpy_are_as_good_as_those_of_python(tmp_path, given):
    settings = {"rounds": 2, "out": tmp_path / "run", **given}
    whole = afo.train(small_problem(), **settings)
    again = afo.train(small_problem(), **{**settings, "resume": True})
    assert again.metrics.equals(whole.metrics)
