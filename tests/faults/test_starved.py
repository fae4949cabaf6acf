"""Too little memory, a disk that is full, no place to write: one line, with what to do."""

import os
import shutil
import subprocess
from resource import RLIMIT_AS

import pytest
import torch
from torch import nn

from allforone.errors import Notice, explained
from allforone.fleet import Stacked
from allforone.fleet.base import surely
from allforone.fleet.optimizer import check_elementwise
from allforone.machines.loop import Loop
from allforone.runs import Folder, execute, parse, prepare
from allforone.testing import small_problem

from .commands import Command, is_one_line, rounds_done, slow_problem


def test_too_little_memory_ends_in_a_line_that_names_what_to_lower(tmp_path):
    wide = ["-p", "dimension=1000", "-p", "clients=2", "--batch-size", 1_000_000]  # a batch of 8 GB
    given = ["run", "synthetic", *wide, "--algorithm", "local", "--rounds", 1, "--out", tmp_path / "run"]
    code, err = Command(*given, limits={RLIMIT_AS: 4 * 2**30}).ended()
    assert code == 2 and is_one_line(err), err
    assert "not enough memory: try a smaller batch_size, fewer clients" in err


class Hungry(nn.Linear):
    """A layer that asks torch for more memory than there is, of all models at once or one by one."""

    asks = staticmethod(lambda x: False)

    def forward(self, x):
        if Hungry.asks(x):
            torch.empty(2**48)
        return super().forward(x)


@pytest.fixture
def hungry():
    """A fleet whose model has been tried while there was memory enough."""
    yield Stacked(small_problem(lambda: Hungry(6, 3)), seed=0, batch_size=4)
    Hungry.asks = staticmethod(lambda x: False)


def gradients(fleet):
    mix, round = torch.full((4, 4), 0.25).double(), fleet.begin(1, range(2))
    return surely(lambda: fleet.gradients(fleet.initial(), mix, round, 0, fleet.roster.numbers))


def test_too_little_memory_for_all_models_at_once_is_no_fault_of_the_model_and_they_pass_one_by_one(hungry):
    enough = gradients(Loop(hungry.problem, seed=0, batch_size=4))
    Hungry.asks = staticmethod(torch._C._functorch.is_functorch_wrapped_tensor)
    with pytest.warns(Notice) as said:
        found = gradients(hungry)
    assert [str(notice.message).split(":")[0] for notice in said] == ["not enough memory for all models at once"]
    torch.testing.assert_close(found, enough)


def test_where_there_is_none_for_one_model_either_all_that_is_said_is_about_memory(hungry):
    Hungry.asks = staticmethod(lambda x: True)
    with pytest.warns(Notice) as said, pytest.raises(RuntimeError) as raised:
        gradients(hungry)
    assert all("memory" in str(notice.message) and "fails" not in str(notice.message) for notice in said)
    assert explained(raised.value).startswith("not enough memory: try a smaller batch_size")


def test_too_little_memory_is_no_fault_of_the_optimizer():
    def make(parameters):
        torch.empty(2**48)

    with pytest.raises(RuntimeError) as raised:
        check_elementwise(make, {"weight": (3,)})
    assert explained(raised.value).startswith("not enough memory")


#: Below a file there is no folder, and in /proc none can be made, not by root either.
NOWHERE = ["{file}/below", "/proc/nowhere"]
WRITING = {
    "run": ["run", "{problem}", "--rounds", "1", "--out"],
    "compare": ["compare", "{problem}", "--algorithms", "local,fedavg", "--rounds", "1", "--out"],
    "export": ["export", "{done}", "--client", "1", "--out"],
    "provision": ["provision", "{parties}", "--out"],
    "serve": ["serve", "{done}", "--task", "{problem}", "--runs"],
    "audit": ["audit"],
    "report": ["report"],
    "resume": ["resume"],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A file, a problem, a run of it that is done, and a federation."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "file").write_text("some text")
    (folder / "federation.yaml").write_text("name: heart\nsites: [geneva]")
    problem = slow_problem(folder)
    execute(prepare(parse({"problem": problem, "rounds": 1})), folder / "done")
    return {"file": folder / "file", "problem": problem, "done": folder / "done", "parties": folder / "federation.yaml"}


@pytest.mark.parametrize("nowhere", NOWHERE)
@pytest.mark.parametrize("command", WRITING)
def test_what_cannot_be_written_or_read_is_said_in_one_line(cli, place, command, nowhere):
    if command in ("provision", "serve"):
        pytest.importorskip("nvflare", reason="needs the extra allforone[flare]")
    code, _, err = cli(*(part.format(**place) for part in (*WRITING[command], nowhere)))
    assert code == 2 and is_one_line(err) and "fault of allforone" not in err, err
    assert place["file"].read_text() == "some text"


@pytest.mark.parametrize("odd", ["a\0b", "a\0b.py:problem", "b.py:a\0b"])
@pytest.mark.parametrize(
    "given", [["run"], ["run", "synthetic", "--algorithm"], ["run", "synthetic", "--fleet"], ["data", "fetch"]], ids=str
)
def test_a_nul_in_a_name_is_said_in_one_line(cli, given, odd):
    code, _, err = cli(*given, odd)
    assert code == 2 and is_one_line(err) and "fault of allforone" not in err, err


@pytest.mark.parametrize(
    "command", [["theory", "sufficient-clusters"], ["theory", "plan", "synthetic"], ["privacy", "digits"]]
)
def test_a_seed_beyond_all_bounds_is_refused(cli, command):
    code, _, err = cli(*command, "--seed", 10**20)
    assert code == 2 and "--seed" in err and "fault of allforone" not in err


@pytest.mark.parametrize("option", ["--batch-size", "--rounds", "--points", "--samples"])
def test_a_plan_of_endless_length_is_refused(cli, option):
    code, _, err = cli("theory", "plan", "synthetic", option, 10**20)
    assert code == 2 and option in err and "fault of allforone" not in err


@pytest.mark.parametrize("option", ["--out", "--config"])
def test_a_nul_in_a_path_is_refused(cli, option):
    code, _, err = cli("run", "synthetic", "--rounds", 1, option, "a\0b")
    assert code == 2 and "Traceback" not in err and "fault of allforone" not in err


def mounted(place, options):
    """A file system in memory, at an empty folder; a test is skipped where this user may not have one."""
    place.mkdir()
    command = [shutil.which("mount"), "-t", "tmpfs", "-o", options, "none", str(place)]
    if not command[0] or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    return place


@pytest.fixture
def closed(tmp_path):
    """A folder that may only be read; to root all others are open."""
    place = tmp_path / "closed"
    if os.getuid():
        place.mkdir(0o555)
        yield place
    else:
        yield mounted(place, "ro")
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def small_disk(tmp_path):
    place = mounted(tmp_path / "disk", "size=120k")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("command", ["run", "compare", "export"])
def test_a_folder_that_may_only_be_read_is_named(cli, place, closed, command):
    code, _, err = cli(*(part.format(**place) for part in WRITING[command]), closed / "new")
    assert code == 2 and is_one_line(err) and f"{closed}" in err, err
    assert "Read-only file system" in err or "Permission denied" in err


@pytest.mark.slow
def test_a_run_on_a_disk_that_becomes_full_goes_on_when_there_is_place(small_disk, tmp_path):
    given = ["run", slow_problem(tmp_path), "--algorithm", "local", "--rounds", 500, "--out"]
    code, err = Command(*given, small_disk / "run").ended()
    assert code == 2 and is_one_line(err) and "No space left on device" in err, err
    assert 0 < rounds_done(small_disk / "run") < 500
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    code, err = Command("resume", small_disk / "run").ended()
    assert code == 0, err
    assert Command(*given, tmp_path / "whole").ended()[0] == 0
    ours, theirs = Folder(small_disk / "run"), Folder(tmp_path / "whole")
    assert all(tensor.equal(ours.models()[name]) for name, tensor in theirs.models().items())
    assert ours.metrics().drop("seconds").equals(theirs.metrics().drop("seconds"))


def test_a_comparison_on_a_full_disk_names_the_runs_that_it_lost(small_disk, tmp_path):
    (small_disk / "full").write_bytes(bytes(110_000))
    given = ["--algorithms", "local,fedavg", "--seeds", "1", "--rounds", 5, "--out", small_disk / "runs"]
    code, err = Command("compare", slow_problem(tmp_path), *given).ended()
    assert code == 2 and "Traceback" not in err and "fault of allforone" not in err, err
    assert "local, seed 127: " in err and "No space left on device" in err
