"""The first signal lets a round be finished and saved, the second ends at once; neither loses what it says is kept."""

import os
import re
import signal

import pytest

from allforone.runs import Folder, execute, parse, prepare

from .commands import Command, rounds_done, slow_problem, wait_for


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_the_first_signal_ends_after_the_round_with_a_checkpoint_of_it_to_go_on_from(tmp_path, sent, code):
    out = tmp_path / "run"
    command = Command("run", slow_problem(tmp_path), "--algorithm", "local", "--rounds", 100_000, "--out", out)
    wait_for(lambda: rounds_done(out) >= 2)
    command.send(sent)
    found, err = command.ended()
    assert found == code, err
    assert "ending after this round" in err and "Traceback" not in err
    kept = int(re.search(rf"stopped; everything up to round (\d+) is kept in {out}", err)[1])
    assert f"Go on with: allforone resume {out}" in err
    assert Folder(out).label.round == kept == rounds_done(out) >= 2
    execute(prepare(parse({**Folder(out).config, "rounds": kept + 1})), out, resume=True)
    assert Folder(out).metrics()["round"].max() == kept + 1


def test_the_second_signal_ends_at_once_and_says_truly_what_is_kept(tmp_path):
    out = tmp_path / "run"
    command = Command("run", slow_problem(tmp_path, 0.01), "--rounds", 100, "--inner", 200, "--out", out)
    wait_for(lambda: rounds_done(out) >= 1)
    command.send(signal.SIGTERM)
    wait_for(lambda: "ending after this round" in command.said)
    command.send(signal.SIGTERM)
    code, err = command.ended()
    assert code == 143
    assert f"ended at once; everything up to round {Folder(out).label.round} is kept in {out}" in err


def test_before_the_first_round_nothing_is_said_to_be_kept(tmp_path):
    (tmp_path / "slow.py").write_text(f"import time\nopen('{tmp_path}/loading', 'w').close()\ntime.sleep(600)\n")
    command = Command("run", f"{tmp_path / 'slow.py'}:problem", "--out", tmp_path / "run")
    wait_for((tmp_path / "loading").exists)
    command.send(signal.SIGTERM)
    assert command.ended() == (143, "allforone: stopped\n")
    assert not (tmp_path / "run").exists()


def test_a_run_under_nohup_goes_on_when_the_terminal_is_closed(tmp_path):
    out = tmp_path / "run"
    given = ["run", slow_problem(tmp_path), "--algorithm", "local", "--rounds", 120, "--out", out]
    command = Command(*given, ignored=[signal.SIGHUP])
    wait_for(lambda: rounds_done(out) >= 1)
    command.send(signal.SIGHUP)
    assert command.ended() == (0, "")
    assert Folder(out).finished


def test_a_run_whose_output_is_full_still_writes_its_page(tmp_path):
    command = Command("run", slow_problem(tmp_path, 0), "--rounds", 1, "--out", tmp_path / "run", out="/dev/full")
    code, err = command.ended()
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000
    assert code == 2
    assert err == "allforone: standard output cannot be written (No space left on device); all files are written\n"


def test_a_run_whose_output_nobody_reads_still_writes_its_page(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    given = ["run", slow_problem(tmp_path), "--algorithm", "local", "--rounds", 120, "--out", tmp_path / "run"]
    command = Command(*given, out=str(pipe))
    wait_for(lambda: rounds_done(tmp_path / "run") >= 0)
    os.close(reader)
    _, err = command.ended()
    assert err == ""
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000
