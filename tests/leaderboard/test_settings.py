"""Settings and contestants are what they say."""

import inspect
import os
from fnmatch import fnmatch
from pathlib import Path

import pytest
from torch import nn

from allforone.algorithms import ALGORITHMS
from allforone.leaderboard.contestants import ALONE, CONTESTANTS, Contestant, chosen
from allforone.leaderboard.settings import QUICK, SEEDS, SETTINGS, Setting, quick
from allforone.problems import PROBLEMS, digits
from allforone.problems.cifar10 import lenet
from allforone.problems.mnist import network as cnn
from allforone.runs import PAPER_SEEDS, Entry, load_problem, parse

MODELS = {
    "digits": lambda: digits(clients=2).initial_model(0),
    "mnist": cnn,
    "cifar10": lenet,
    "heart-disease": lambda: nn.Linear(13, 1),
}


def test_every_setting_is_known_by_its_name_and_parses():
    for name, setting in SETTINGS.items():
        assert setting.name == name and setting.about
        config = parse(setting.base())
        assert config.hold_out == 0.2 and config.title == name
        assert {*config.problem.options} <= {*inspect.signature(PROBLEMS[config.problem.name]).parameters}
    assert {*QUICK} <= {*SETTINGS}


def test_seeds_are_those_that_nothing_was_tuned_on():
    assert SEEDS == PAPER_SEEDS and not {11, 12, 13} & {*SEEDS}
    assert SETTINGS["heart-disease"].seeds == tuple(range(20))


@pytest.mark.parametrize("name", SETTINGS)
def test_the_head_of_a_setting_is_the_last_layer_of_its_model(name):
    setting = SETTINGS[name]
    model = MODELS[setting.problem["name"]]()
    layers = [key for key, module in model.named_modules() if isinstance(module, nn.Linear)]
    names = [key for key, _ in model.named_parameters()]
    head = [key for key in names if setting.head and fnmatch(key, setting.head)]
    assert head == ([f"{layers[-1]}.weight", f"{layers[-1]}.bias"] if len(names) > 2 else [])


@pytest.mark.parametrize("name", [name for name in SETTINGS if name.startswith("digits")])
def test_in_every_setting_of_digits_all_sites_have_enough_to_hold_some_out(name):
    for seed in SEEDS:
        problem = load_problem(parse(SETTINGS[name].base()).problem, seed)
        assert len(problem.clients) == 10
        assert min(round(0.2 * client.size) for client in problem.clients) >= 5
        if name.endswith("poor"):
            assert max(client.size for client in problem.clients) <= 30


@pytest.mark.skipif(
    not Path(os.environ.get("ALLFORONE_DATA", "/nowhere"), "cifar10").is_dir(),
    reason="the real data are not here: set ALLFORONE_DATA to a folder with mnist, cifar10 and heart_disease",
)
@pytest.mark.parametrize("name", [name for name in SETTINGS if not name.startswith("digits")])
def test_on_the_real_data_all_sites_have_enough_to_hold_some_out_and_the_labels_that_are_told(name):
    problem = load_problem(parse(SETTINGS[name].base()).problem, SETTINGS[name].seeds[0])
    sizes = [(client.size, len(client.test)) for client in problem.clients]
    assert min(round(0.2 * size) for size, _ in sizes) >= 5
    if name.endswith("poor"):
        assert {size for size, _ in sizes} == {300}
    told = {"cifar10-pfedgraph": (10, (5000, 1000)), "cifar10-fedala-labels": (20, (2250, 750))}
    if name in told:
        assert sizes == [told[name][1]] * told[name][0]
        assert all(len(client.train.tensors[1].unique()) == 2 for client in problem.clients)


def test_a_quick_setting_has_few_rounds_and_one_seed_and_is_otherwise_the_same():
    setting = SETTINGS["mnist-shards"]
    short = quick(setting)
    assert short.base() == {**setting.base(), "rounds": 5} and short.seeds == (127,)


def test_contestants_are_in_the_catalogue_each_once_and_local_is_one():
    assert all((contestant.algorithm or contestant.name) in ALGORITHMS for contestant in CONTESTANTS)
    names = [contestant.name for contestant in CONTESTANTS]
    assert len({*names}) == len(names) and ALONE in names
    for contestant in CONTESTANTS:
        takes = inspect.signature(ALGORITHMS[contestant.algorithm or contestant.name]).parameters
        assert {*contestant.options} <= {*takes}


def test_local_is_always_among_those_chosen_and_first():
    assert [contestant.name for contestant in chosen("ditto,fedavg,ditto")] == ["local", "ditto", "fedavg"]
    assert [contestant.name for contestant in chosen("fedavg, local")] == ["local", "fedavg"]
    assert chosen(None) == CONTESTANTS


def test_options_on_the_command_line_make_a_contestant_of_that_name():
    assert chosen("ditto:penalty=1")[1].entry(SETTINGS["digits-iid"]) == Entry(
        {"penalty": 1, "name": "ditto"}, "ditto:penalty=1"
    )


def test_a_private_head_is_the_settings_and_whoever_has_none_there_does_not_take_part():
    split = Contestant("fedper", "fedavg", private="head")
    assert split.entry(SETTINGS["digits-iid"]) == Entry({"name": "fedavg"}, "fedper", {"private": "2.*"})
    assert split.entry(SETTINGS["heart-disease"]) is None
    assert Contestant("fedavg").entry(Setting("a", "b", {}, {"rounds": 1})) == Entry({"name": "fedavg"})
    assert Contestant("fedbn", "fedavg", private="batchnorm").entry(Setting("a", "b", {}, {"rounds": 1})).more == {
        "private": "batchnorm"
    }
