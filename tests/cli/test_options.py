"""What the options of `run` and `compare` make of a config."""

from functools import partial

import pytest
import yaml

import allforone as afo
from allforone.cli.options import Settings
from allforone.errors import InputError
from allforone.runs import parse


def test_a_fleet_is_a_name_or_a_name_with_options():
    assert Settings("digits", fleet="loop").as_config()["fleet"] == "loop"
    told = Settings("digits", fleet="ray:address=ray://host:10001:nodes=2").as_config()["fleet"]
    assert told == {"name": "ray", "address": "ray://host:10001", "nodes": 2}
    with pytest.raises(InputError, match="--fleet address: expected name=value"):
        Settings("digits", fleet="ray:address").as_config()


def test_files_of_the_user_are_named_from_the_root_so_that_a_run_is_resumed_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "settings.yaml").write_text("algorithm: {name: mine.py:algorithm, penalty: 2}")
    problem, algorithm = f"{tmp_path}/mine.py:problem", f"{tmp_path}/mine.py:algorithm"
    config = Settings("mine.py:problem").as_config("mine.py:algorithm:penalty=1")
    assert config == {"problem": {"name": problem}, "algorithm": {"name": algorithm, "penalty": 1}}
    read = Settings("digits", config=tmp_path / "settings.yaml").as_config()
    assert read["algorithm"] == {"name": algorithm, "penalty": 2}


def test_options_win_over_the_file_and_an_optimizer_by_name_forgets_the_options_of_another(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text("{rounds: 9, fleet: {name: loop}, optimizer: {name: SGD, lr: 0.5, momentum: 0.9}}")
    settings = Settings("digits", config=path, rounds=3, lr=0.1, fleet="stacked", problem_option=["clients=4"])
    assert settings.as_config() == {
        "problem": {"name": "digits", "clients": 4},
        "rounds": 3,
        "fleet": "stacked",
        "optimizer": {"name": "SGD", "lr": 0.1, "momentum": 0.9},
    }
    assert Settings("digits", config=path, optimizer="Adam").as_config()["optimizer"] == {"name": "Adam"}


def test_clip_precision_and_device_are_keys_of_the_config(cli, tmp_path):
    told = {"clip": 0.5, "precision": "bf16", "device": "cpu"}
    config = Settings("digits", **told).as_config()
    assert {key: config[key] for key in told} == told
    given = ["--rounds", "1", "--clip", "0.5", "--precision", "bf16", "--device", "cpu", "--out", str(tmp_path / "run")]
    assert cli("run", "digits", "-p", "clients=4", *given)[0] == 0
    written = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert {key: written.get(key) for key in told} == {**told, "device": None}


def test_options_of_an_algorithm_without_a_name_are_those_of_the_default():
    config = Settings("digits", algorithm_option=["samples=8"]).as_config()
    assert config["algorithm"] == {"name": "all-for-one", "samples": 8}
    assert "algorithm" not in Settings("digits").as_config()


def test_every_setting_is_an_option_of_both_commands(cli):
    shared = ["--config", "--batch-size", "--lr", "--schedule", "--fleet", "--attack", "--guard", "-p", "-a"]
    shared += ["--clip", "--precision", "--device"]
    for command in ("run", "compare"):
        said = cli(command, "--help")[1]
        assert all(option in said for option in shared), command


RUN = """
problem: {name: digits, clients: 4}
title: Ten digits
label: cautious
algorithm: {name: all-for-one, samples: 8}
optimizer: {name: SGD, lr: 0.1}
scheduler: {name: StepLR, step_size: 3}
"""


def test_another_name_than_the_files_forgets_the_options_of_that_choice_alone(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(RUN)
    read = Settings("digits", config=path).as_config()
    assert read == yaml.safe_load(RUN) == Settings("digits", config=path).as_config("all-for-one")
    algorithm = Settings("digits", config=path, algorithm_option=["penalty=2"]).as_config("ditto")
    assert algorithm.pop("algorithm") == {"name": "ditto", "penalty": 2}
    assert algorithm == {key: value for key, value in read.items() if key not in ("algorithm", "label")}
    problem = Settings("synthetic", config=path, problem_option=["dimension=3"]).as_config()
    assert problem.pop("problem") == {"name": "synthetic", "dimension": 3}
    assert problem == {key: value for key, value in read.items() if key not in ("problem", "title")}
    assert "scheduler" not in Settings("digits", config=path, schedule="constant").as_config()


def test_an_lr_beside_a_schedule_that_would_overrule_it_is_refused(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("{optimizer: {name: SGD, lr: 0.1}, schedule: horizon}")
    both = {"lr": 0.1, "schedule": "horizon"}
    for call in (
        *(Settings("synthetic", **given).as_config for given in (both, {"config": path}, {"config": path, "lr": 0.1})),
        *(partial(afo.train, afo.synthetic(), **both), partial(afo.compare, afo.synthetic(), ["local"], **both)),
    ):
        with pytest.raises(InputError, match=r"lr is 0\.1 beside the schedule horizon, which sets every step size"):
            call()
    assert Settings("synthetic", lr=0.1, schedule="constant").as_config()["optimizer"] == {"lr": 0.1}
    path.write_text(path.read_text().replace("}, sch", "}, identity: {}, sch"))  # as a run writes it
    assert Settings("synthetic", config=path).as_config()["schedule"] == "horizon"


def test_options_without_a_name_in_the_file_fit_the_name_that_is_given(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("{problem: {clients: 4}, algorithm: {penalty: 2}}")
    given = Settings("digits", config=path).as_config("ditto")
    assert given == {"problem": {"name": "digits", "clients": 4}, "algorithm": {"name": "ditto", "penalty": 2}}


@pytest.mark.slow
def test_the_config_of_a_run_is_a_config_for_another_algorithm_problem_and_comparison(cli, tmp_path):
    out = ("--out", tmp_path / "run")
    assert cli("run", "digits", "-p", "clients=4", "--rounds", 1, "-a", "samples=8", *out)[0] == 0
    config = ("--config", tmp_path / "run" / "config.yaml")
    for number, arguments in enumerate(
        [
            ("run", "digits", "--algorithm", "local"),
            ("run", "synthetic"),
            ("compare", "digits", "--algorithms", "local", "--seeds", "1,"),
            ("compare", "digits", "--algorithms", "local,ditto:penalty=1", "--seeds", "1,"),
        ]
    ):
        code, _, err = cli(*arguments, *config, "--out", tmp_path / str(number))
        assert code == 0, err
    told = [yaml.safe_load((tmp_path / number / "config.yaml").read_text()) for number in ("0", "1")]
    assert told[0]["algorithm"] == {"name": "local"} and told[0]["problem"] == {"name": "digits", "clients": 4}
    assert told[1]["problem"] == {"name": "synthetic"} and told[1]["algorithm"]["samples"] == 8


def test_a_notice_is_one_line_without_the_place_in_our_code():
    from allforone.cli import _one_line
    from allforone.errors import Notice

    assert _one_line("from this round on", Notice, "file.py", 12) == "allforone: from this round on\n"
    assert "file.py:12: UserWarning: other" in _one_line("other", UserWarning, "file.py", 12)


def test_privacy_is_given_as_pairs_and_a_power_of_ten_is_a_number():
    given = Settings("digits", privacy="clip=0.5,noise=2,delta=1e-6").as_config()
    assert parse(given).privacy == {"clip": 0.5, "noise": 2, "delta": 1e-6}
