"""The page of a run that goes on: a real server, a real run, a real browser."""

import json
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import expect

from allforone.errors import InputError
from allforone.reports import server
from allforone.reports.watch import Watched
from allforone.runs import execute, parse, prepare

pytestmark = pytest.mark.slow

QUICK = {"problem": {"name": "digits", "clients": 4}, "rounds": 4, "inner": 2}


def run_quickly(path, on_round=None, **more):
    execute(prepare(parse({**QUICK, **more})), path, on_round=on_round)


@contextmanager
def served(path):
    with server(path) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{serving.server_port}/"
        finally:
            serving.shutdown()
            thread.join()


def test_the_page_follows_a_run_as_it_trains(tmp_path, open_page):
    """The run waits after every round for the browser to have shown it."""
    path = tmp_path / "run"
    going, shown = threading.Semaphore(0), threading.Semaphore(0)

    def on_round(record):
        shown.release()
        assert going.acquire(timeout=60)

    run = threading.Thread(target=run_quickly, args=(path, on_round))
    run.start()
    try:
        assert shown.acquire(timeout=60)
        with served(path) as address:
            page = open_page(address, allowed=(address,))
            for number in range(1, 5):
                expect(page.locator("#live")).to_have_text(f"Live: round {number - 1} of 4", timeout=20_000)
                going.release()
                assert shown.acquire(timeout=60)
            going.release()
            run.join()
            expect(page.locator("#live")).to_have_text("Finished.", timeout=20_000)
            expect(page.locator("#round")).to_have_text("round 4 of 4")
            assert page.evaluate("data.progress['all-for-one'].round") == [0, 1, 2, 3, 4]
            assert page.troubles == []
    finally:
        for _ in range(9):
            going.release()
        run.join()


def test_an_unchanged_folder_is_not_sent_again_and_other_paths_and_names_are_refused(tmp_path):
    run_quickly(tmp_path / "run")
    with served(tmp_path / "run") as address:
        with urlopen(f"{address}data.json") as answer:
            version = re.search(rb'"version":"([^"]+)"', answer.read())[1].decode()
        with urlopen(f"{address}data.json?after={version}") as answer:
            assert (answer.status, answer.read()) == (204, b"")
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"{address}config.yaml")
        with pytest.raises(HTTPError, match="403"):
            urlopen(Request(address, headers={"Host": "elsewhere.example"}))


def test_a_comparison_is_shown_before_all_its_runs_are_done(tmp_path):
    run_quickly(tmp_path / "runs" / "all-for-one" / "1")
    run_quickly(tmp_path / "runs" / "local" / "1", algorithm="local")
    (tmp_path / "runs" / "local" / "1" / "models.safetensors").unlink()
    watched = Watched(tmp_path)
    version, numbers = watched.now()
    live = json.loads(numbers)["live"]
    assert (live["version"], live["done"], live["said"]) == (version, False, "2 runs began, 1 of them finished")
    assert list(json.loads(numbers)["progress"]) == ["all-for-one", "local"]
    assert watched.now()[0] == version


def test_before_the_first_round_it_waits_and_without_a_folder_it_says_so(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        server(tmp_path / "nothing")
    (tmp_path / "run").mkdir()
    with served(tmp_path / "run") as address, urlopen(address) as answer:
        assert b"Waiting for the first round" in answer.read()


def test_ctrl_c_ends_it_cleanly_and_a_taken_port_is_told(tmp_path, cli):
    run_quickly(tmp_path / "run")
    command = [sys.executable, "-u", "-m", "allforone", "watch", str(tmp_path / "run"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        line = watching.stdout.readline()
        address = re.search(r"http://127.0.0.1:(\d+)/", line)
        with urlopen(address[0]) as answer:
            assert b"<!doctype html>" in answer.read()
        code, _, err = cli("watch", tmp_path / "run", "--port", address[1])
        assert code == 2 and "choose another --port" in err
        watching.send_signal(signal.SIGINT)
        out, err = watching.communicate(timeout=60)
    assert (watching.returncode, err) == (0, "")
    assert "no longer watching" in out
