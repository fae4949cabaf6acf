"""What cannot be gone on with says so, and stays as it is."""

import json
import os

import pytest

import allforone as afo
from allforone.algorithms import Guarded
from allforone.errors import InputError, Notice
from allforone.runs import Folder, checkpoint, execute, export_client, parse, prepare, resume
from allforone.testing import small_problem


def test_fewer_rounds_than_are_done_are_refused_and_nothing_is_changed(tmp_path):
    out = tmp_path / "run"
    afo.train(small_problem(), rounds=3, out=out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(InputError, match="3 rounds already, which is more than 2"):
        afo.train(small_problem(), rounds=2, out=out, resume=True)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_run_that_another_version_has_begun_says_so_when_it_is_gone_on_with(tmp_path):
    out = tmp_path / "run"
    afo.train(small_problem(), rounds=1, out=out)
    begun = json.loads((out / "environment.json").read_text())
    (out / "environment.json").write_text(json.dumps({**begun, "packages": {**begun["packages"], "torch": "1.0"}}))
    with pytest.warns(Notice, match=r"the first 1 rounds are of torch 1.0, now .* no run of either"):
        afo.train(small_problem(), rounds=2, out=out, resume=True)


def test_a_pipe_in_the_place_of_the_environment_holds_up_no_run(tmp_path):
    out = tmp_path / "run"
    afo.train(small_problem(), rounds=1, out=out)
    (out / "environment.json").unlink()
    os.mkfifo(out / "environment.json")
    assert afo.train(small_problem(), rounds=2, out=out, resume=True).rounds == 2


@pytest.mark.parametrize("damaged", ["", "[]", "{}", '{"commit": null, "packages": null}'])
def test_a_run_whose_environment_cannot_be_read_goes_on(tmp_path, damaged):
    out = tmp_path / "run"
    afo.train(small_problem(), rounds=1, out=out)
    (out / "environment.json").write_text(damaged)
    assert afo.train(small_problem(), rounds=2, out=out, resume=True).rounds == 2


def test_a_run_from_python_is_gone_on_with_in_python(tmp_path):
    afo.train(small_problem(), rounds=1, out=tmp_path / "run")
    with pytest.raises(InputError, match="started from Python"):
        resume(tmp_path / "run")


def test_a_guard_is_asked_for_by_its_own_argument():
    with pytest.raises(InputError, match="guard=True"):
        afo.train(small_problem(), algorithm=Guarded(afo.AllForOne()), rounds=1)


def stop_in(number):
    def stop(record):
        if record.number == number:
            raise KeyboardInterrupt

    return stop


QUICK = {"problem": {"name": "digits", "clients": 4}, "rounds": 2}


def test_a_run_with_more_rounds_that_is_interrupted_is_not_finished(tmp_path):
    out, longer = tmp_path / "run", parse({**QUICK, "rounds": 4})
    execute(prepare(parse(QUICK)), out)
    with pytest.raises(KeyboardInterrupt):
        execute(prepare(longer), out, resume=True, on_round=stop_in(3))
    assert not Folder.open(out).finished
    with pytest.raises(InputError, match="not finished"):
        export_client(out, "0")
    again, whole = resume(out), execute(prepare(longer))
    assert Folder.open(out).finished
    assert all(again.stacked[name].equal(whole.stacked[name]) for name in whole.stacked)


def test_a_finished_run_that_is_gone_on_with_stays_finished(tmp_path, monkeypatch):
    execute(prepare(parse(QUICK)), tmp_path / "run")

    def killed(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "load", killed)
    with pytest.raises(KeyboardInterrupt):
        resume(tmp_path / "run")
    assert Folder.open(tmp_path / "run").finished


@pytest.mark.parametrize("left", [["config.yaml"], ["config.yaml", "environment.json"]])
def test_a_run_killed_before_its_clients_were_written_starts_anew(tmp_path, left):
    out = tmp_path / "run"
    whole = execute(prepare(parse(QUICK)), out)
    clients = (out / "clients.json").read_bytes()
    for path in out.iterdir():
        if path.name not in left:
            path.unlink()
    again = resume(out)
    assert all(again.stacked[name].equal(whole.stacked[name]) for name in whole.stacked)
    assert (out / "clients.json").read_bytes() == clients and (out / "environment.json").exists()


@pytest.mark.parametrize("written", ["", "round,client,lo"])
def test_a_run_killed_before_its_first_line_starts_anew(tmp_path, written):
    out = tmp_path / "run"
    whole = execute(prepare(parse(QUICK)), out)
    for name in ("checkpoint.safetensors", "checkpoint-before.safetensors", "models.safetensors", "weights.rounds"):
        (out / name).unlink()
    (out / "metrics.csv").write_text(written)
    assert resume(out).metrics.drop("seconds").equals(whole.metrics.drop("seconds"))
