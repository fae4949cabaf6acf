"""A comparison is checked before anything runs, without making a fleet, and goes on where it was."""

import pytest
import torch

from allforone.errors import InputError
from allforone.fleet import FLEETS
from allforone.runs import Folder, compare, comparison, plan, run

pytestmark = pytest.mark.slow

DIGITS = {"problem": {"name": "digits", "clients": 4}, "rounds": 3}
SYNTHETIC = {"problem": {"name": "synthetic", "clients": 4}, "rounds": 3}


@pytest.fixture
def no_fleet(monkeypatch):
    def made(*given, **options):
        raise AssertionError("a fleet was made")

    monkeypatch.setattr(run, "FLEETS", dict.fromkeys(FLEETS, made))


@pytest.mark.parametrize("base", [DIGITS, {**DIGITS, "guard": True}, {**DIGITS, "attack": "flip:1"}, SYNTHETIC])
def test_checking_a_plan_makes_no_fleet(no_fleet, tmp_path, base):
    jobs = plan(base, ["local", "all-for-one", "ditto:penalty=1"], [1, 2], tmp_path / "out")
    assert [job.name for job in jobs] == [
        f"{name}, seed {seed}" for name in ("local", "all-for-one", "ditto:penalty=1") for seed in (1, 2)
    ]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"attack": "flip:4"}, "at most 3 may lie"),
        ({"fleet": "staked"}, "did you mean 'stacked'"),
        ({"guard": True, "problem": {"name": "digits", "clients": 90}}, "guard needs at least 25"),
        ({"optimizer": {"name": "LBFGS", "lr": 0.1}}, "the optimizer"),
        ({"scheduler": "StepLR", "schedule": "constant"}, "leave one out"),
    ],
)
def test_what_would_stop_a_run_is_found_without_a_fleet(no_fleet, tmp_path, changes, said):
    with pytest.raises(InputError, match=said):
        plan({**DIGITS, **changes}, ["local"], [1], tmp_path / "out")


def stop_after(runs):
    """A watch that stops the comparison in the middle of the run after these."""

    def watch(progress):
        if progress.job == runs and progress.round == 2:
            raise KeyboardInterrupt

    return watch


def assert_goes_on(base, algorithms, tmp_path, seeds=(1, 2), done=1):
    """A comparison that is stopped, and then gone on with, ends as one that never was."""
    seeds = list(seeds)
    assert not compare(plan(base, algorithms, seeds, tmp_path / "whole"), tmp_path / "whole", workers=1)
    jobs = plan(base, algorithms, seeds, tmp_path / "stopped")
    with pytest.raises(KeyboardInterrupt):
        compare(jobs, tmp_path / "stopped", workers=1, watch=stop_after(done))
    again = plan(base, algorithms, seeds, tmp_path / "stopped")
    assert not compare(again, tmp_path / "stopped", resumed=True, workers=1)
    for job in again:
        ours, theirs = (
            Folder.open(job.path),
            Folder.open(tmp_path / "whole" / job.path.relative_to(tmp_path / "stopped")),
        )
        assert ours.config == theirs.config
        for name, tensor in theirs.models().items():
            assert ours.models()[name].equal(tensor)
    return again


@pytest.mark.parametrize("schedule", ["horizon", {"name": "decreasing", "factor": 3.0}])
def test_a_comparison_with_a_schedule_goes_on(tmp_path, schedule):
    jobs = assert_goes_on({**SYNTHETIC, "rounds": 40, "schedule": schedule}, ["local", "fedavg"], tmp_path)
    found = [Folder.open(job.path).config["schedule"] for job in jobs]
    assert len({str(one) for one in found}) > 1 or "factor" in schedule
    other = {**SYNTHETIC, "rounds": 40, "schedule": {"name": "decreasing", "smoothness": 9.0}}
    with pytest.raises(InputError, match="another schedule"):
        compare(plan(other, ["local"], [1], tmp_path / "stopped"), tmp_path / "stopped", resumed=True)


OWN = """
from functools import partial
import torch
import torch.nn.functional as F
from torch import nn
import allforone as afo

def problem(seed):
    random = torch.Generator().manual_seed(seed)
    data = [(torch.randn(20, 5, generator=random), torch.randint(2, (20,), generator=random)) for _ in range(3)]
    rarity = 1 / torch.cat([labels for _, labels in data]).bincount(minlength=2)
    clients = [afo.Client(pair, pair) for pair in data]
    return afo.Problem(lambda: nn.Linear(5, 2), partial(F.cross_entropy, weight=rarity), clients=clients)

def algorithm(samples: int = 4):
    return afo.AllForOne(samples)
"""


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    return tmp_path / "mine.py"


def test_a_comparison_of_algorithms_of_the_users_own_goes_on_and_tells_them_apart(mine, tmp_path):
    jobs = assert_goes_on(DIGITS, [f"{mine}:algorithm", f"{mine}:algorithm:samples=8"], tmp_path, seeds=[1])
    assert [job.config.shown for job in jobs] == ["mine.py:algorithm", "mine.py:algorithm:samples=8"]
    assert len({job.path for job in jobs}) == 2
    one, other = (Folder.open(job.path).models() for job in jobs)
    assert not all(one[name].equal(other[name]) for name in one)


def test_a_comparison_goes_on_where_the_loss_depends_on_the_seeds_data(mine, tmp_path):
    assert_goes_on({"problem": f"{mine}:problem", "rounds": 3}, ["local", "fedavg"], tmp_path, done=2)


def test_a_comparison_is_not_gone_on_with_under_another_option(tmp_path):
    out = tmp_path / "out"
    compare(plan(DIGITS, ["ditto"], [1], out), out, workers=1)
    with pytest.raises(InputError, match="holds a run with another algorithm"):
        compare(plan({**DIGITS, "algorithm": {"penalty": 3.0}}, ["ditto"], [1], out), out, resumed=True)
    with pytest.raises(InputError, match="holds a run with another rounds"):
        compare(plan({**DIGITS, "rounds": 4}, ["ditto"], [1], out), out, resumed=True)
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("guard", [False, True])
@pytest.mark.parametrize("done", [1, 4])
@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("torch.randn(20, 5, generator=random)", "2 * torch.randn(20, 5, generator=random)", "data of client 0"),
        ("weight=rarity", "weight=rarity, label_smoothing=0.1", "loss"),
        ("weight=rarity", "weight=rarity.sqrt() if seed == 2 else rarity", "loss"),
        ("clients=clients", "clients=clients[:2]", "number of clients"),
    ],
)
def test_a_comparison_is_not_gone_on_with_on_other_data_or_under_another_loss(
    mine, tmp_path, guard, done, before, after, said
):
    """Whether its runs are finished, or but one is and the next began; and whichever seed is another."""
    out, base = tmp_path / "out", {"problem": f"{mine}:problem", "rounds": 3, "guard": guard}
    mine.write_text(OWN.replace("(20", "(40"))
    if done == 1:
        with pytest.raises(KeyboardInterrupt):
            compare(plan(base, ["local", "fedavg"], [1, 2], out), out, workers=1, watch=stop_after(1))
    else:
        compare(plan(base, ["local", "fedavg"], [1, 2], out), out, workers=1)
    kept = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    mine.write_text(OWN.replace(before, after).replace("(20", "(40"))
    with pytest.raises(InputError, match=f"holds a run with another .*{said}"):
        compare(plan(base, ["local", "fedavg"], [1, 2], out), out, resumed=True, workers=1)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == kept


def test_going_on_loads_a_problem_once_for_each_seed(monkeypatch, tmp_path):
    out, seeds = tmp_path / "out", []
    compare(plan(SYNTHETIC, ["local", "fedavg", "ditto"], [1, 2], out), out, workers=1)
    jobs = plan(SYNTHETIC, ["local", "fedavg", "ditto"], [1, 2], out)
    load = comparison.load_problem
    monkeypatch.setattr(comparison, "load_problem", lambda choice, seed: seeds.append(seed) or load(choice, seed))
    assert not compare(jobs, out, resumed=True, workers=1)
    assert seeds == [1, 2]
