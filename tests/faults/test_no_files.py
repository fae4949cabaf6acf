"""A pipe, a device, a socket or a link to itself in the place of a file is told at once; nobody waits for it."""

import os
import shutil
import socket
from pathlib import Path

import pytest

from allforone.errors import InputError, explained
from allforone.machines.flare.provision import Kit
from allforone.machines.policy import _read as read_spent
from allforone.opening import content_of
from allforone.runs import Folder, resume
from allforone.runs.lock import locked

from .commands import CONTEXT, PATIENCE, is_one_line
from .test_fuzz import COMMANDS, NAMES, finished, survives  # noqa: F401  (a fixture)


def pipe(path):
    os.mkfifo(path)


def endless(path):
    path.symlink_to("/dev/zero")


def itself(path):
    path.symlink_to(path)


def plug(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


ODD = [pipe, endless, itself, plug]


def in_time(work, *given):
    """In a process of its own: compiled code that waits cannot be interrupted in this one."""
    process = CONTEXT.Process(target=work, args=given)
    process.start()
    process.join(PATIENCE)
    waited = process.exitcode is None
    process.kill()
    process.join()
    assert not waited, "it waits"
    assert process.exitcode == 0


def _try_all(run, place, put):
    os.chdir(place)  # a socket's path has to be short
    for name in (*NAMES, "sites.csv", "running.json"):
        for command in COMMANDS.values():
            path = Path(shutil.copytree(run, "run"))
            (path / name).unlink(missing_ok=True)
            put(path / name)
            survives(command, path)
            shutil.rmtree(path)


@pytest.mark.filterwarnings("ignore::allforone.errors.Notice")
@pytest.mark.parametrize("put", ODD)
def test_what_is_no_file_in_a_run_folder_is_told_in_one_line_or_not_needed(finished, tmp_path, put):  # noqa: F811
    in_time(_try_all, finished, tmp_path, put)


def _resume_beside_pipes(run):
    for name in ("running.json", "config.yaml.unfinished", "checkpoint.safetensors.unfinished"):
        pipe(run / name)
    (run / "models.safetensors").unlink()
    resume(run)
    assert Folder(run).finished


def test_pipes_under_the_names_of_files_to_be_written_hold_up_no_run(finished, tmp_path):  # noqa: F811
    in_time(_resume_beside_pipes, shutil.copytree(finished, tmp_path / "run"))


@pytest.mark.parametrize("name", ["report.html", "summary.json", "curves.pdf"])
def test_a_pipe_in_the_place_of_a_page_or_a_figure_is_named(finished, tmp_path, cli, name):  # noqa: F811
    run = shutil.copytree(finished, tmp_path / "run")
    (run / name).unlink(missing_ok=True)
    reader = os.open(_made(run / name), os.O_RDONLY | os.O_NONBLOCK)  # who opens it to write is not held up
    code, _, err = cli("report", run)
    os.close(reader)
    assert code == 2 and is_one_line(err) and f"{name}: not a file" in err, err


def _made(path):
    pipe(path)
    return path


@pytest.mark.parametrize("put", ODD)
def test_a_kit_and_a_spent_budget_that_are_no_files_are_told(tmp_path, monkeypatch, put):
    monkeypatch.chdir(tmp_path)
    for name in ("kit.json", "spent.safetensors"):
        put(tmp_path / name)
    in_time(_read_both, tmp_path)


def _read_both(place):
    for read in (lambda: Kit.open(place, "site"), lambda: read_spent(place / "spent.safetensors", "", None)):
        with pytest.raises((InputError, OSError)) as error:
            read()
        assert "fault of allforone" not in explained(error.value)


def test_who_holds_a_folder_may_have_any_note_in_it(tmp_path):
    with locked(tmp_path):
        (tmp_path / "running.json").unlink()
        pipe(tmp_path / "running.json")
        with pytest.raises(InputError, match="is being written by another process"), locked(tmp_path):
            pass


def test_a_file_is_read_whole(tmp_path):
    (tmp_path / "file").write_bytes(b"some\r\nbytes")
    assert content_of(tmp_path / "file") == b"some\r\nbytes"
