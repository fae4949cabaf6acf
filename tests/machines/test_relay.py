"""The part of a site that must not die, and its process, without FLARE's own."""

import subprocess
import sys

import pytest

pytest.importorskip("nvflare", reason="needs the extra allforone[flare]")

from allforone.errors import InputError
from allforone.machines.flare import launch
from allforone.machines.flare.launch import Launched
from allforone.machines.flare.provision import Federation, Kit
from allforone.machines.flare.serving import end_lost_jobs


def test_the_relay_imports_neither_torch_nor_what_needs_it():
    program = "import sys, allforone.machines.flare.relay; print('torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "False"


@pytest.fixture
def kit(tmp_path, monkeypatch):
    monkeypatch.setattr(
        launch, "command", lambda kit: [sys.executable, "-c", f"import time; time.sleep(900)  # {kit.path}"]
    )
    return Kit(path=tmp_path, role="site", name="geneva", federation=Federation(name="heart", sites=["geneva"]))


def running(kit):
    import psutil

    return [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == launch.command(kit)]


def wait_for(what):
    import time

    end = time.monotonic() + 120
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_process_that_dies_is_started_again_and_all_end_at_the_end(kit):
    said = []
    with Launched(kit, said.append):
        wait_for(lambda: running(kit))
        (first,) = running(kit)
        first.kill()
        wait_for(lambda: running(kit) and running(kit)[0].pid != first.pid)
    assert not running(kit)
    assert len(said) == 1 and "started again" in said[0]


def test_a_kit_is_used_by_one_command_at_a_time(kit):
    with Launched(kit, print), pytest.raises(InputError, match="in use"), Launched(kit, print):
        pass


def test_what_a_killed_command_left_behind_is_ended_first(kit):
    left = subprocess.Popen(launch.command(kit))
    with Launched(kit, print):
        left.wait(timeout=120)  # it would sleep for a quarter of an hour
        wait_for(lambda: running(kit))
        assert [process.pid for process in running(kit)] != [left.pid]
    assert not running(kit)


def test_the_process_is_of_this_interpreter(tmp_path):
    made = Kit(path=tmp_path, role="server", name="server", federation=Federation(name="heart", sites=["geneva"]))
    assert launch.command(made)[0] == sys.executable


def test_jobs_that_died_with_the_server_are_over_when_it_is_started_again(tmp_path):
    from nvflare.app_common.storages.filesystem_storage import FilesystemStorage

    kit = Kit(path=tmp_path, role="server", name="server", federation=Federation(name="heart", sites=["geneva"]))
    end_lost_jobs(kit)  # a server that never had any
    store, jobs = FilesystemStorage(), tmp_path / "storage" / "jobs"
    before = ["SUBMITTED", "DISPATCHED", "RUNNING", "FINISHED:COMPLETED", "FINISHED:ABORTED"]
    for status in before:
        store.create_object(str(jobs / status), b"its files", {"status": status, "name": "hearts"})
    store.create_object(str(jobs / "0 damaged"), b"its files", {"status": "RUNNING"})
    (jobs / "0 damaged" / "meta").write_text("{")
    end_lost_jobs(kit)
    now = [store.get_meta(str(jobs / status)) for status in before]
    after = ["SUBMITTED", "FINISHED:ABNORMAL", "FINISHED:ABNORMAL", "FINISHED:COMPLETED", "FINISHED:ABORTED"]
    assert now == [{"status": status, "name": "hearts"} for status in after]


def test_what_is_done_before_a_start_is_done_before_each(kit):
    done = []
    with Launched(kit, lambda text: None, lambda: done.append(len(running(kit)))):
        wait_for(lambda: running(kit))
        running(kit)[0].kill()
        wait_for(lambda: len(done) == 2 and running(kit))
    assert done == [0, 0]
