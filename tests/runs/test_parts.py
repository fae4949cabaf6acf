"""The parts of a run by their names: algorithms of the user's own, and fleets with options."""

import sys

import pytest
import torch

import allforone as afo
from allforone.algorithms import ALGORITHMS
from allforone.errors import InputError
from allforone.fleet import FLEETS, Stacked
from allforone.machines.loop import Loop
from allforone.runs import Choice, Folder, execute, load_algorithm, load_problem, parse, prepare, resume, run

QUICK = {"problem": {"name": "digits", "clients": 4}, "rounds": 3, "inner": 2}
OWN = """
import torch
import allforone as afo
from allforone.algorithms import Info

class Careful(afo.Algorithm):
    name = "careful"

    def __init__(self, share: float = 0.5):
        self.share = share

    def step(self, state, fleet, round):
        mix = self.share * torch.eye(len(fleet.roster), dtype=torch.float64)
        models, optimizer = fleet.descend(state.models, mix, state.optimizer, round)
        return state._replace(models=models, optimizer=optimizer), Info(mix)

def algorithm(share: float = 0.5):
    return Careful(share)

made = Careful(0.5)
number = 3
nothing = lambda: 3
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    return path


def careful(mine, name):
    return {"name": f"{mine}:{name}"} if name == "made" else {"name": f"{mine}:{name}", "share": 0.5}


@pytest.mark.parametrize("name", ["Careful", "algorithm", "made"])
def test_an_algorithm_of_the_users_own_is_loaded_as_class_function_or_instance(mine, name):
    found = load_algorithm(Choice(**careful(mine, name)))
    assert isinstance(found, afo.Algorithm) and found.share == 0.5 and found.name == "careful"
    if name != "made":
        assert load_algorithm(Choice(name=f"{mine}:{name}", share=0.25)).share == 0.25


@pytest.mark.parametrize("name", ["Careful", "algorithm", "made"])
def test_an_algorithm_of_the_users_own_runs_and_resumes(mine, tmp_path, name):
    run = prepare(parse({**QUICK, "algorithm": careful(mine, name)}))

    def stop(record):
        if record.number == 1:
            raise KeyboardInterrupt

    whole = execute(run, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        execute(run, tmp_path / "stopped", on_round=stop)
    again = resume(tmp_path / "stopped")
    assert all(again.stacked[key].equal(whole.stacked[key]) for key in whole.stacked)
    assert Folder.open(tmp_path / "stopped").config["algorithm"] == careful(mine, name)
    local = execute(prepare(parse({**QUICK, "algorithm": "local"})))
    assert not all(local.stacked[key].equal(whole.stacked[key]) for key in whole.stacked)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("carefull", {}, "has no 'carefull'; did you mean 'Careful'"),
        ("Careful", {"shar": 1.0}, "unknown key 'shar'; did you mean 'share'"),
        ("algorithm", {"share": "half"}, "share: expected number"),
        ("made", {"share": 1.0}, "is made already, so it takes no options"),
        ("number", {}, "is a int: it must be an allforone.Algorithm or make one"),
        ("nothing", {}, "gave int: it must return an allforone.Algorithm"),
    ],
)
def test_an_algorithm_of_the_users_own_that_does_not_fit_is_explained(mine, name, options, said):
    with pytest.raises(InputError, match=said):
        load_algorithm(Choice(name=f"{mine}:{name}", **options))


def test_an_unknown_algorithm_is_told_the_nearest_and_how_to_give_ones_own():
    with pytest.raises(InputError, match=r"did you mean 'fedavg'.*or your own as my_file.py:algorithm"):
        load_algorithm(Choice(name="fedavgg"))
    with pytest.raises(InputError, match=r"nowhere.py: no such file; your own algorithm is given as"):
        load_algorithm(Choice(name="nowhere.py:algorithm"))


@pytest.mark.parametrize("name", FLEETS)
def test_a_fleet_is_given_by_its_name_alone_or_with_options(name):
    alone, choice = (parse({**QUICK, "fleet": fleet}) for fleet in (name, {"name": name}))
    assert alone == choice and alone.plain()["fleet"] == {"name": name}


def test_the_fleet_that_is_named_is_made():
    for name, kind in (("stacked", Stacked), ("loop", Loop)):
        fleet = prepare(parse({**QUICK, "fleet": {"name": name}})).assemble()
        assert type(fleet) is kind


@pytest.mark.parametrize(
    ("fleet", "said"),
    [
        ("staked", "unknown fleet 'staked'; did you mean 'stacked'"),
        ({"name": "looop"}, "unknown fleet 'looop'; did you mean 'loop'"),
        ({"name": "stacked", "adress": "here"}, r"fleet stacked: unknown key 'adress'; known: \(it takes no options\)"),
        ({"name": "stacked", "batch_size": 3}, r"fleet stacked: unknown key 'batch_size'"),
    ],
)
def test_an_unknown_fleet_and_unknown_options_of_one_are_refused_with_a_suggestion(tmp_path, fleet, said):
    with pytest.raises(InputError, match=said):
        prepare(parse({**QUICK, "fleet": fleet})).check()
    with pytest.raises(InputError, match=said):
        execute(prepare(parse({**QUICK, "fleet": fleet})), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_options_of_a_fleet_reach_it(monkeypatch):
    class Remote(Stacked):
        def __init__(self, problem, *, address: str = "here", **options):
            super().__init__(problem, **options)
            self.address = address

    monkeypatch.setattr(run, "FLEETS", {**FLEETS, "remote": Remote})
    fleet = prepare(parse({**QUICK, "fleet": {"name": "remote", "address": "there"}})).assemble()
    assert fleet.address == "there"
    with pytest.raises(InputError, match="unknown key 'adress'; did you mean 'address'"):
        prepare(parse({**QUICK, "fleet": {"name": "remote", "adress": "there"}})).check()


def test_every_algorithm_by_name_is_an_algorithm():
    for name in ALGORITHMS:
        assert load_algorithm(Choice(name=name)).name == name


TYPED = """
from __future__ import annotations
from dataclasses import dataclass
import allforone as afo

@dataclass(frozen=True)
class Square(afo.Criterion):
    power: float = 2

    def phi(self, x):
        return x**self.power

def algorithm(power: float = 2):
    @dataclass(frozen=True)
    class Inner:
        power: float

    return afo.BySimilarity(Square(Inner(power).power))
"""


@pytest.mark.parametrize("file", ["typed.py", "json.py", "torch.py"])
def test_a_file_with_dataclasses_whose_types_are_text_is_loaded_and_hides_no_module(tmp_path, monkeypatch, file):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / file).write_text(TYPED)
    before = dict(sys.modules)
    assert load_algorithm(Choice(name=f"{tmp_path / file}:algorithm", power=3)).criterion.power == 3
    assert all(sys.modules[name] is module for name, module in before.items())
    assert set(sys.modules) - set(before) == {str(tmp_path / file)}


MODULE = """
import torch, allforone as afo
data = torch.randn(8, 3), torch.zeros(8, 1)
{place}
def problem():
    return afo.Problem({model}, torch.nn.functional.mse_loss, clients=[afo.Client(data, data)])
"""


@pytest.mark.parametrize(
    ("place", "model"),
    [("", "torch.nn.Linear(3, 1)"), ("made = torch.nn.Linear(3, 1)", "made")],
    ids=["inside", "above"],
)
def test_what_a_users_file_draws_is_the_same_in_every_run_of_a_seed(tmp_path, place, model):
    (tmp_path / "mine.py").write_text(MODULE.format(place=place, model=model))
    choice = Choice(name=f"{tmp_path / 'mine.py'}:problem")
    before = torch.get_rng_state()
    first, again, other = (load_problem(choice, seed).initial_model(seed).weight for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)
