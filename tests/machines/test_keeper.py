"""Runs that are kept going at the server, with a server that only says what a test wants."""

import json
import time

import pytest
import yaml

from allforone.errors import InputError
from allforone.machines.flare import desk as desk_module
from allforone.machines.flare import fetching, submit
from allforone.machines.flare.desk import FILES, Desk
from allforone.machines.flare.fetching import Fetching
from allforone.machines.flare.keeper import Intent, Keeper, intent_of
from allforone.machines.flare.link import Unreachable
from allforone.machines.flare.meeting import met_before, remember
from allforone.reports.page import page_json
from allforone.runs import execute, last_round, parse, prepare, read_comparison, read_run


class Server:
    """In the place of a link to one."""

    def __init__(self, status="RUNNING", unreachable=None, alive=None):
        self.status, self.unreachable, self.alive = status, unreachable or {}, alive or {}
        self.submitted, self.asked = [], []

    def newest(self, name):
        return {"status": self.status, "job_id": "7"} if self.status else None

    def ask(self, job, what, **values):
        self.asked.append(what)
        return {"unreachable": self.unreachable}

    def signs_of_life(self):
        return self.alive

    def submit(self, name, settings, least_sites):
        self.submitted.append((name, settings, least_sites))


def looked(tmp_path, server, times=1, state="running"):
    Intent({"least_sites": 2}, state).write(intent_of(tmp_path, "hearts"))
    keeper = Keeper(server, tmp_path, lambda text: None)
    for _ in range(times):
        for name, intent in keeper._wanted():
            keeper._look(name, intent)
    return Intent.read(intent_of(tmp_path, "hearts"))


@pytest.mark.parametrize("status", ["FINISHED:EXECUTION_EXCEPTION", "FINISHED:ABNORMAL", "FINISHED:COMPLETED", None])
def test_a_run_that_lost_its_job_is_started_again(tmp_path, status):
    server = Server(status)
    looked(tmp_path, server)
    assert server.submitted == [("hearts", {"least_sites": 2}, 2)]


@pytest.mark.parametrize("status", ["SUBMITTED", "DISPATCHED", "RUNNING"])
def test_a_run_that_has_a_job_is_left_alone(tmp_path, status):
    server = Server(status)
    looked(tmp_path, server, times=3)
    assert not server.submitted and "anew" not in server.asked


@pytest.mark.parametrize("state", ["finished", "stopped"])
def test_a_run_that_is_over_is_not_started_again(tmp_path, state):
    server = Server("FINISHED:COMPLETED")
    looked(tmp_path, server, state=state)
    assert not server.submitted


def test_a_run_that_somebody_ended_stays_ended(tmp_path):
    server = Server("FINISHED:ABORTED")
    assert looked(tmp_path, server, times=2).state == "stopped"
    assert not server.submitted


def test_a_run_that_fails_again_and_again_is_started_ever_more_rarely(tmp_path):
    server = Server("FINISHED:ABNORMAL")
    looked(tmp_path, server, times=5)
    assert len(server.submitted) == 1


def test_a_site_that_gave_a_sign_of_life_since_it_was_lost_is_back(tmp_path):
    lost = time.time() - 30
    server = Server(unreachable={"bern": lost}, alive={"bern": lost + 20, "basel": lost + 29})
    looked(tmp_path, server)
    assert server.asked == ["gone", "anew"]


def test_a_site_that_died_is_not_taken_to_be_back(tmp_path):
    lost = time.time() - 30
    server = Server(unreachable={"bern": lost}, alive={"bern": lost - 2})
    looked(tmp_path, server)
    assert "anew" not in server.asked


def test_a_site_that_is_just_starting_its_part_is_not_taken_to_be_back(tmp_path):
    lost = time.time() - 3
    server = Server(unreachable={"bern": lost}, alive={"bern": lost + 2})
    looked(tmp_path, server)
    assert "anew" not in server.asked


def test_a_job_is_asked_only_once_to_begin_anew(tmp_path):
    lost = time.time() - 30
    server = Server(unreachable={"bern": lost}, alive={"bern": lost + 20})
    looked(tmp_path, server, times=3)
    assert server.asked == ["gone", "anew"]


def test_the_watch_goes_on_whatever_the_server_does(tmp_path, monkeypatch):
    from allforone.machines.flare import keeper as keeper_module

    class Broken(Server):
        def newest(self, name):
            self.asked.append(name)
            raise RuntimeError("FLARE is not itself")

        def close(self): ...

    monkeypatch.setattr(keeper_module, "EVERY", 0.01)
    Intent({"least_sites": 2}).write(intent_of(tmp_path, "hearts"))
    server, said = Broken(), []
    with Keeper(server, tmp_path, said.append):
        end = time.monotonic() + 60
        while len(server.asked) < 3 and time.monotonic() < end:
            time.sleep(0.01)
    assert len(server.asked) >= 3 and "FLARE is not itself" in said[0]


def test_a_site_that_starts_slowly_is_not_lost_yet_but_one_that_was_heard_or_takes_no_part_is():
    desk = Desk()
    desk.heard("basel")
    desk.not_reached("basel", takes_part=True)
    desk.not_reached("bern", takes_part=False)
    desk.not_reached("zurich", takes_part=True)
    since = desk.answer({"what": "gone"})["unreachable"]
    assert since["basel"] <= time.time() and since["bern"] <= time.time()
    assert since["zurich"] > time.time()
    desk.heard("zurich")
    assert "zurich" not in desk.answer({"what": "gone"})["unreachable"]


def test_who_follows_is_told_each_round_once(tmp_path):
    desk = Desk()
    desk.begin(tmp_path)
    desk.add(0, "loss 2")
    desk.add(1, "loss 1")
    assert [item["round"] for item in desk.answer({"what": "news", "since": 0})["rounds"]] == [1]


def test_only_files_of_the_run_are_given_away(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "run" / "metrics.csv").write_text("round\n")
    desk = Desk()
    desk.begin(tmp_path / "run")
    assert desk.answer({"what": "file", "name": "../secret"}) == {"size": None}
    assert desk.answer({"what": "file", "name": "metrics.csv"})["size"] == 6


def test_a_run_is_resumed_when_its_server_is_up_again(monkeypatch):
    monkeypatch.setattr(submit, "EVERY", 0.0)
    answers = iter([Unreachable("no answer"), Unreachable("no answer"), {"status": "RUNNING", "job_id": "7"}])
    remote, said = submit.Remote.__new__(submit.Remote), []
    remote.name, remote.link = "hearts", Server()

    def newest(name):
        answer = next(answers)
        if isinstance(answer, Unreachable):
            raise answer
        return answer

    remote.link.newest = newest
    assert remote.resume(said.append) == "7"
    assert len(said) == 1 and "Waiting for it" in said[0]


class Clock:
    """Time that passes while one waits for somebody who does not come."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now

    time = monotonic

    def wait(self, seconds):
        self.now += seconds
        return False


@pytest.mark.parametrize(("asked", "waits"), [(100.0, 15.0), (90.0, 5.0), (60.0, 0.0)])
def test_a_finished_run_waits_for_those_who_asked_of_late(monkeypatch, asked, waits):
    clock = Clock()
    monkeypatch.setattr(desk_module, "time", clock)
    desk = Desk()
    desk._served, desk._asked = clock, asked
    desk.end("finished")
    assert clock.now == pytest.approx(100.0 + waits, abs=0.2)


def test_a_finished_run_does_not_wait_for_one_who_has_all():
    desk = Desk()
    desk.answer({"what": "thanks"})
    desk.end("finished")
    assert desk.answer({"what": "news"})["state"] == "finished"


def test_what_sites_said_when_a_run_began_is_found_again_unless_the_file_is_damaged(tmp_path):
    file, said = tmp_path / "hearts.met", [{"number": 0, "member": {"size": 3}}, {"number": 1, "member": {"size": 4}}]
    assert met_before(file) == {}
    remember(file, ["a", "b"], said)
    assert met_before(file) == {"a": said[0], "b": said[1]}
    file.write_text(file.read_text()[:-9])
    assert met_before(file) == {}


def test_only_plain_settings_travel(tmp_path):
    from allforone.machines.flare.provision import Federation
    from allforone.machines.flare.submit import settings_of_run
    from allforone.runs import parse

    federation, options = Federation(name="heart", sites=["a", "b"]), {"deadline": 5.0, "token": "t"}
    config = parse({"problem": f"{tmp_path}/task.py:task", "fleet": {"name": "flare", "kit": str(tmp_path)}})
    sent = json.dumps(settings_of_run(config, "run", federation, options))
    assert str(tmp_path) not in sent and ".py" not in sent
    with pytest.raises(InputError, match="code does not travel"):
        settings_of_run(
            parse({"problem": "p", "algorithm": "my.py:algorithm"}), "run", federation, {"deadline": 5.0, "token": "t"}
        )


@pytest.fixture
def followed(tmp_path, monkeypatch):
    """A run of three rounds at a server, and what of it lies after each where it was started; then all of it."""
    monkeypatch.setattr(fetching, "EVERY", 0.0)
    there, here, desk = tmp_path / "there", tmp_path / "here", Desk()
    config = parse({"problem": {"name": "synthetic", "clients": 3}, "rounds": 3, "fleet": "loop"})
    here.mkdir()
    (here / "config.yaml").write_text(yaml.safe_dump(config.plain()))
    files, asked, seen = Fetching(lambda what, **more: desk.answer({"what": what, **more}), here), [], []
    usual = desk._file
    monkeypatch.setattr(desk, "_file", lambda name, at: asked.append((name, at)) or usual(name, at))
    desk.begin(there)

    def on_round(record):
        files.look()
        seen.append(last_round(read_run(here)))

    execute(prepare(config), there, on_round=on_round)
    files.all_of_it()
    return there, here, asked, seen


def test_a_run_can_be_watched_from_where_it_was_started(followed):
    there, here, asked, seen = followed
    assert seen == [0, 1, 2, 3]
    begun = [at for name, at in asked if name == "metrics.csv"]
    assert begun.count(0) == 2 and any(at > 0 for at in begun)  # only what is new, and all of it at the end
    assert {path.name for path in here.iterdir()} == {path.name for path in there.iterdir()} & set(FILES)
    for path in here.iterdir():
        assert path.read_bytes() == (there / path.name).read_bytes()
    assert page_json(read_comparison(here))


def test_files_of_a_job_that_is_gone_are_said_to_be_at_the_server(tmp_path):
    with pytest.raises(InputError, match="they are at the server"):
        Fetching(lambda what, **more: None, tmp_path).all_of_it()
