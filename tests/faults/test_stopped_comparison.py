"""A comparison in several processes that is stopped goes on where it was."""

import json
import signal
import subprocess
import sys
import time

import pytest

from allforone.runs import Folder

pytestmark = pytest.mark.slow


def test_a_stopped_comparison_goes_on_and_ends_as_if_never_stopped(tmp_path, cli):
    options = ["digits", "-p", "clients=4", "--algorithms", "local,fedavg", "--seeds", "1,2,3", "--rounds", "25"]
    out = tmp_path / "stopped"
    process = subprocess.Popen(
        [sys.executable, "-m", "allforone", "compare", *options, "--workers", "2", "--out", str(out)],
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and len(list(out.glob("runs/*/*/metrics.csv"))) < 3:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=90)
    assert process.returncode == 130, err
    assert "Go on with: allforone compare" in err
    assert "Traceback" not in err
    assert not (out / "summary.json").exists()

    assert cli("compare", *options, "--out", out, "--resume")[0] == 0
    assert cli("compare", *options, "--out", tmp_path / "whole")[0] == 0
    for path in (tmp_path / "whole").glob("runs/*/*"):
        ours, theirs = Folder.open(out / path.relative_to(tmp_path / "whole")), Folder.open(path)
        for name, tensor in theirs.models().items():
            assert ours.models()[name].equal(tensor)
    ours, theirs = (json.loads((folder / "summary.json").read_text()) for folder in (out, tmp_path / "whole"))
    for algorithm in theirs["algorithms"]:
        assert ours["algorithms"][algorithm]["test_loss"] == theirs["algorithms"][algorithm]["test_loss"]


def test_resuming_with_other_settings_is_refused(tmp_path, cli):
    options = ["compare", "digits", "--algorithms", "local", "--seeds", "1,", "--out", tmp_path / "out"]
    assert cli(*options, "--rounds", 2)[0] == 0
    code, _, err = cli(*options, "--rounds", 3, "--resume")
    assert code == 2
    assert "holds a run with another rounds" in err
