"""`allforone leaderboard` from its names to its tables; what is there is used, and it goes on where it was."""

import csv
import json
import signal
import subprocess
import sys
import time

import pytest

from allforone.leaderboard.settings import SETTINGS, Setting
from allforone.leaderboard.summary import without_seconds
from allforone.runs import Folder

pytestmark = pytest.mark.slow

BROKEN = """
import allforone as afo


class Broken(afo.Local):
    def step(self, state, fleet, round):
        raise RuntimeError("no idea")


algorithm = Broken()
"""


@pytest.fixture
def tiny(monkeypatch):
    """Two settings of four sites, two rounds and two seeds."""
    for name, split in (("tiny", "cluster"), ("small", "iid")):
        problem = {"name": "digits", "clients": 4, "split": split, "samples_per_client": 40}
        setting = Setting(name, "four sites", problem, {"rounds": 2, "inner": 2}, seeds=(1, 2))
        monkeypatch.setitem(SETTINGS, name, setting)


def done(out):
    """When each run was finished."""
    return {path.relative_to(out): path.stat().st_mtime_ns for path in out.rglob("models.safetensors")}


def rows(path):
    return {(row["setting"], row["contestant"]): row for row in csv.DictReader(path.read_text().splitlines())}


def test_names_become_tables_summaries_and_pages(tmp_path, cli, tiny):
    out = tmp_path / "out"
    (tmp_path / "docs.md").write_text("# By hand\n\n<!-- tables -->\nold")
    code, printed, err = cli(
        *("leaderboard", "tiny", "small", "--algorithms", "fedavg,oracle,ditto:penalty=1"),
        *("--out", out, "--publish", tmp_path / "docs"),
    )
    assert code == 0, err
    for word in ("tiny: accuracy %", "small: cost", "all settings", "ditto:penalty=1", "rank", "worse off"):
        assert word in printed
    assert len(done(out)) == 2 * 4 * 2
    assert "<html" in (out / "tiny" / "report.html").read_text()[:200]
    found = rows(out / "leaderboard.csv")
    assert {*found} == {
        (setting, name) for setting in ("tiny", "small") for name in ("local", "fedavg", "oracle", "ditto:penalty=1")
    }
    assert "### tiny" in (out / "leaderboard.md").read_text() and r"\midrule" in (out / "leaderboard.tex").read_text()
    summary = json.loads((out / "tiny.json").read_text())
    published = json.loads((tmp_path / "docs" / "tiny.json").read_text())
    assert published == without_seconds(summary) != summary
    assert {*rows(tmp_path / "docs" / "leaderboard.csv")} == {*found}
    printed = cli("leaderboard", "--out", tmp_path / "docs", "--table", "markdown")[1]
    assert (tmp_path / "docs.md").read_text() == f"# By hand\n\n<!-- tables -->\n\n{printed}"
    runs = [Folder(out / "tiny" / "runs" / "fedavg" / str(seed)).metrics() for seed in (1, 2)]
    last = [run.filter(run["round"] == 2)["accuracy"].mean() for run in runs]
    score = summary["contestants"]["fedavg"]
    assert score["last"] == pytest.approx(sum(last) / 2)
    held = [run.group_by("round").mean().sort("held_out")["round"][0] for run in runs]
    assert score["validated_rounds"] == held


def test_what_is_there_is_used_and_a_new_contestant_is_all_that_runs(tmp_path, cli, tiny):
    options = ("--out", tmp_path)
    assert cli("leaderboard", "tiny", "--algorithms", "fedavg", *options)[0] == 0
    before = done(tmp_path)
    assert cli("leaderboard", "tiny", "--algorithms", "fedavg,apfl", *options)[0] == 0
    after = done(tmp_path)
    assert {path: after[path] for path in before} == before and len(after) == len(before) + 2
    assert {name for _, name in rows(tmp_path / "leaderboard.csv")} == {"local", "fedavg", "apfl"}


def test_the_table_of_a_folder_is_printed_without_running_anything(tmp_path, cli, tiny):
    assert cli("leaderboard", "tiny", "small", "--algorithms", "local", "--out", tmp_path)[0] == 0
    before = done(tmp_path)
    code, printed, _ = cli("leaderboard", "--out", tmp_path, "--table", "csv")
    assert code == 0 and printed == (tmp_path / "leaderboard.csv").read_text()
    code, printed, _ = cli("leaderboard", "tiny", "--out", tmp_path, "--table", "markdown")
    assert code == 0 and "### tiny" in printed and "small" not in printed
    assert "tiny: cost" in cli("leaderboard", "--out", tmp_path, "--table", "terminal")[1]
    assert done(tmp_path) == before


def test_seeds_of_the_command_line_are_those_of_every_setting(tmp_path, cli, tiny):
    assert cli("leaderboard", "tiny", "small", "--seeds", "5,", "--algorithms", "local", "--out", tmp_path)[0] == 0
    assert {row["seeds"] for row in rows(tmp_path / "leaderboard.csv").values()} == {"5"}


def test_a_run_that_fails_is_named_and_the_others_have_their_table(tmp_path, cli, tiny):
    (tmp_path / "broken.py").write_text(BROKEN)
    algorithms = f"fedavg,{tmp_path / 'broken.py'}:algorithm"
    code, printed, err = cli("leaderboard", "tiny", "--algorithms", algorithms, "--out", tmp_path / "out")
    assert code == 1 and "tiny, broken.py:algorithm, seed 1: " in err and "no idea" in err
    assert "fedavg" in printed and (tmp_path / "out" / "tiny.json").exists()


def test_where_no_run_comes_to_its_end_the_reason_is_said(tmp_path, cli, monkeypatch):
    run = {"rounds": 3, "optimizer": {"lr": 1e30}}
    monkeypatch.setitem(SETTINGS, "steep", Setting("steep", "far too fast", {"name": "digits"}, run, seeds=(1,)))
    code, _, err = cli("leaderboard", "steep", "--algorithms", "local", "--out", tmp_path)
    assert code == 2 and err.count("\n") == 1
    assert "steep: no run came to its end; local, seed 1: round 1" in err and "smaller step size" in err


def test_a_setting_without_its_data_is_left_out_and_named(tmp_path, cli, tiny, monkeypatch):
    monkeypatch.setenv("ALLFORONE_DATA", str(tmp_path / "nothing"))
    options = ("--algorithms", "local", "--out", tmp_path / "out")
    code, printed, err = cli("leaderboard", "heart-disease", "tiny", *options)
    assert code == 0 and "left out: heart-disease" in err and "tiny: accuracy" in printed
    code, _, err = cli("leaderboard", "heart-disease", "mnist", *options)
    assert code == 2 and err.count("\n") == 1 and "allforone data fetch mnist" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["digits-idd"], "unknown setting 'digits-idd'; did you mean 'digits-iid'?"),
        (["digits-iid", "--algorithms", "fedavgg"], "unknown algorithm 'fedavgg'; did you mean 'fedavg'?"),
        (["digits-iid", "--algorithms", "ditto:pnalty=1"], "unknown key 'pnalty'"),
        (["digits-iid", "--seeds", "one"], "seeds 'one': expected whole numbers"),
        (["--table", "markdwn"], "unknown table format 'markdwn'; did you mean 'markdown'?"),
        (["--table", "csv"], "no summary of these settings there"),
    ],
)
def test_what_is_unknown_is_said_in_one_line(tmp_path, cli, arguments, said):
    code, _, err = cli("leaderboard", *arguments, "--out", tmp_path / "out")
    assert code == 2 and said in err and err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_all_settings_and_contestants_are_listed(cli):
    code, printed, _ = cli("leaderboard", "--list")
    assert code == 0 and all(name in printed for name in SETTINGS) and "contestants: local, all-for-one" in printed


def test_a_stopped_leaderboard_goes_on_and_ends_as_if_never_stopped(tmp_path, cli):
    options = ["digits-iid", "--quick", "--algorithms", "fedavg", "--seeds", "1,2", "--workers", "1"]
    out, whole = tmp_path / "stopped" / "quick", tmp_path / "whole" / "quick"
    process = subprocess.Popen(
        [sys.executable, "-m", "allforone", "leaderboard", *options, "--out", str(out.parent)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and len(list(out.glob("*/runs/*/*/metrics.csv"))) < 2:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=90)
    assert process.returncode == 130, err
    assert "Go on with: allforone leaderboard" in err and "Traceback" not in err
    assert len(done(out)) < 4 and not (out / "leaderboard.csv").exists()
    begun = done(out)

    assert cli("leaderboard", *options, "--out", out.parent)[0] == 0
    assert {path: when for path, when in done(out).items() if path in begun} == begun
    assert cli("leaderboard", *options, "--out", whole.parent)[0] == 0
    ours, theirs = (rows(folder / "leaderboard.csv") for folder in (out, whole))
    for key, row in theirs.items():
        assert {**ours[key], "seconds": ""} == {**row, "seconds": ""}
