"""A run folder has one writer at a time, and workers end with their parent."""

import os
import signal
import sys
from pathlib import Path

import pytest

import allforone as afo
from allforone.runs import Folder, read_comparison
from allforone.runs.lock import locked
from allforone.testing import small_problem

from .commands import Command, is_one_line, rounds_done, slow_problem, wait_for


def test_a_second_writer_is_refused_and_told_who_is_the_first(tmp_path):
    out, problem = tmp_path / "run", slow_problem(tmp_path)
    first = Command("run", problem, "--rounds", 100_000, "--out", out)
    wait_for(lambda: rounds_done(out) >= 1)
    code, err = Command("resume", out).ended()
    assert code == 2 and is_one_line(err)
    assert f"{out} is being written by process {first.process.pid} on " in err
    first.send(signal.SIGKILL)
    assert first.ended()[0] == -signal.SIGKILL
    assert (out / "running.json").exists()
    with locked(out):  # it went with the process, whatever its note says
        assert not Folder(out).finished


def children(pid):
    """The processes that came from this one, and theirs."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found += [int(path.parent.name), *children(int(path.parent.name))]
    return found


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_parent_and_the_comparison_goes_on_at_once_and_ends_as_if_never_stopped(tmp_path, sent):
    out = tmp_path / "out"
    options = ["compare", slow_problem(tmp_path), "--algorithms", "local,fedavg", "--seeds", "1,2,", "--rounds", 60]
    command = Command(*options, "--workers", 2, "--out", out)
    wait_for(lambda: sum(rounds_done(run) >= 1 for run in out.glob("runs/*/*")) >= 3)
    workers = children(command.process.pid)
    assert len(workers) >= 2
    command.send(sent)
    code, err = command.ended()
    if sent == signal.SIGKILL:
        assert code == -sent
    else:
        assert code == 128 + sent and "Go on with: allforone compare" in err and "Traceback" not in err
    assert not (out / "summary.json").exists()
    wait_for(lambda: not any(map(is_running, workers)))
    assert Command(*options, "--out", out, "--resume").ended() == (0, "")
    assert len(read_comparison(out).runs) == 4
    if sent == signal.SIGKILL:  # which leaves the most behind
        assert Command(*options, "--out", tmp_path / "whole", "--workers", 1).ended() == (0, "")
    for path in (tmp_path / "whole").glob("runs/*/*"):
        ours, theirs = Folder(out / path.relative_to(tmp_path / "whole")), Folder(path)
        assert all(tensor.equal(ours.models()[name]) for name, tensor in theirs.models().items())
        assert ours.metrics().drop("seconds").equals(theirs.metrics().drop("seconds"))


def test_rows_that_are_there_twice_are_refused(tmp_path, cli):
    afo.train(small_problem(), rounds=2, out=tmp_path / "run")
    path = tmp_path / "run" / "metrics.csv"
    path.write_text(path.read_text() + path.read_text().splitlines(keepends=True)[-1])
    code, _, err = cli("report", tmp_path / "run")
    assert code == 2 and is_one_line(err)
    assert "several rows of round 2 and client" in err and "as if two processes had written" in err


def test_a_lock_is_let_go_when_training_ends_or_fails(tmp_path):
    for rounds in (1, 2):
        afo.train(small_problem(), rounds=rounds, out=tmp_path / "run", resume=rounds > 1)
    with pytest.raises(afo.InputError, match="2 rounds already"):
        afo.train(small_problem(), rounds=1, out=tmp_path / "run", resume=True)
    afo.train(small_problem(), rounds=3, out=tmp_path / "run", resume=True)
    assert not (tmp_path / "run" / "running.json").exists()
    assert os.listdir(tmp_path / "run").count("checkpoint-before.safetensors") == 1
