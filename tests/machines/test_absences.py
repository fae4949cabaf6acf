"""Failures are absences, at the boundaries of rounds: whatever a site does, the others' run is one without it."""

from functools import partial

import polars
import pytest
import torch

import allforone as afo
from allforone.algorithms import ALGORITHMS
from allforone.errors import AllForOneError, Notice, TooFew
from allforone.machines.loop import Loop, sites_of
from allforone.machines.presence import Ended, Patience
from allforone.machines.sites import Sites
from allforone.machines.transport import Absent, Direct
from allforone.machines.wire import decode
from allforone.runs import Given, execute, parse, prepare
from allforone.testing import small_problem, with_batch_norm

from .wires import AT_ONCE, SEED, fleet_with

ROUNDS, INNER = 4, 2
ADAM = partial(torch.optim.Adam, lr=0.01)


def description(algorithm, problem=None):
    config = parse({"problem": "python", "seed": SEED, "rounds": ROUNDS, "inner": INNER, "batch_size": 5})
    return prepare(config, Given(problem or small_problem(with_batch_norm), algorithm, ADAM))


def trained(fleet, algorithm, out=None):
    return execute(description(algorithm), out, fleet=fleet)


def as_told(result, algorithm):
    """The run in this process in which those were there who were there in that one."""
    here = {
        number: frame.sort("client")["present"].cast(polars.Boolean).to_list()
        for (number,), frame in result.metrics.group_by("round")
    }
    run = description(algorithm)
    plain = Loop(run.problem, seed=SEED, batch_size=5, participation=lambda step: here[step // INNER + 1])
    return execute(run, fleet=plain), here


def assert_same(result, expected):
    for name, tensor in expected.stacked.items():
        assert torch.equal(result.stacked[name], tensor), name
    ours, theirs = (r.metrics.filter(polars.col("round") > 0).drop("seconds") for r in (result, expected))
    assert ours.equals(theirs)
    assert torch.equal(result.weights, expected.weights)


#: When which site is lost, by the question it is asked: in the middle of every kind of round.
LOST = {
    "all-for-one": ("look", 2, "site-1"),
    "all-for-one-round": ("walk", 2, "site-3"),
    "all-for-one-binary": ("gradients", 3, "site-0"),
    "local": ("descend", 2, "site-2"),
    "fedavg": ("evaluate", 3, "site-1"),
    "ditto": ("descend", 3, "site-0"),
    "cobo": ("gradients", 2, "site-2"),
    "wga-bc": ("gradients", 4, "site-3"),
    "apfl": ("gradients", 2, "site-1"),
    "ifca": ("losses", 3, "site-1"),
    "fedamp": ("descend", 2, "site-2"),
    "fedfomo": ("losses", 3, "site-0"),
    "fedala": ("gradients", 2, "site-3"),
    "pfedgraph": ("gradients", 2, "site-1"),
    "cfl": ("descend", 3, "site-2"),
    "pfedme": ("gradients", 3, "site-0"),
}


@pytest.mark.parametrize("name", LOST)
def test_a_run_with_a_lost_site_is_the_run_in_which_it_was_absent_bit_for_bit(name):
    kind, number, victim = LOST[name]

    def fault(site, asked, question):
        gone = site == victim and (asked["ask"], asked.get("round")) == (kind, number)
        return Absent("no answer within 1 s") if gone else None

    algorithm = ALGORITHMS[name]()
    result = trained(fleet_with(fault), algorithm)
    expected, here = as_told(result, algorithm)
    assert [sum(here[r]) for r in range(1, ROUNDS + 1)] == [3 if r == number else 4 for r in range(1, ROUNDS + 1)]
    assert_same(result, expected)


WRONG = {
    "bytes that are nothing": lambda answer: b"garbage" * 9,
    "half an answer": lambda answer: answer[: len(answer) // 2],
    "nothing at all": lambda answer: b"",
    "an answer without keys": lambda answer: b"\x02\x00\x00\x00\x00\x00\x00\x00{}",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_read_is_an_absence_and_says_so(wrong, tmp_path):
    def fault(site, asked, question):
        return WRONG[wrong] if site == "site-2" and asked.get("round") == 2 else None

    algorithm = afo.AllForOne()
    result = trained(fleet_with(fault), algorithm, tmp_path / "run")
    assert_same(result, as_told(result, algorithm)[0])
    absent = result.history.sites.filter(polars.col("why").is_not_null())
    assert absent.select("round", "site", "why").rows() == [(2, "site-2", "its answer cannot be read")]
    told = result.history.sites.filter(polars.col("why").is_null())
    assert (told["sent"] > 0).all() and (told["received"] > 0).all() and (told["seconds"] >= 0).all()


def test_an_error_at_a_site_tells_its_type_and_nothing_of_its_data():
    class Failing(torch.nn.Linear):
        def forward(self, x):
            if self.training and bool((x[:, 0] == 7).any()):
                raise ValueError("patient 4711 has weight 123.4")
            return super().forward(x)

    problem = small_problem(lambda: Failing(6, 3))
    fleet = fleet_with(lambda *_: None, problem=problem)
    problem.clients[1].train.tensors[0][:, 0] = 7
    round = fleet.begin(1, range(2))
    with pytest.raises(AllForOneError) as raised:
        fleet.gradients(fleet.initial(), torch.eye(4).double(), round, 0, fleet.roster.numbers)
    assert "site-1: its model, loss or data failed (InputError)" in str(raised.value)
    assert "4711" not in str(raised.value) and "123" not in str(raised.value)
    assert fleet.begin(1, range(2)).present.tolist() == [True, False, True, True]


def test_who_is_absent_is_tried_again_after_pauses_that_grow_and_never_by_the_whole_deadline():
    clock = [0.0]
    fleet = fleet_with(lambda *_: None, Patience(deadline=60.0, ping=2.0, pause=1.0, longest=6.0))
    fleet.transport.fault = lambda site, asked, question: Absent("cut off") if site == "site-3" else None
    fleet.asking.presence.now = lambda: clock[0]
    fleet.transport.pings.clear()
    tried = []
    for number in range(1, 30):
        afo.fleet.in_round(fleet, number, range(number, number + 1), partial(fleet.losses, fleet.initial()))
        tried += [clock[0]] * len(fleet.transport.pings)
        assert all(ping == ("site-3", 2.0) for ping in fleet.transport.pings)
        fleet.transport.pings.clear()
        clock[0] += 1.0
    assert tried == [1.0, 3.0, 7.0, 13.0, 19.0, 25.0]
    fleet.transport.fault = lambda *_: None
    clock[0] = 100.0
    assert fleet.begin(30, range(30, 31)).present.all()


def test_below_the_least_number_of_sites_a_run_waits_then_stops_and_keeps_all(tmp_path):
    third = []

    def fault(site, asked, question):
        third.extend([True] if asked.get("round") == 3 else [])
        return Absent("cut off") if site != "site-0" and third else None

    with pytest.raises(TooFew, match=r"1 of 4 sites answer, and the run needs 2 .*site-1: cut off"):
        trained(fleet_with(fault, Patience(least=2, pause=0.0, wait=0.0)), afo.AllForOne(), tmp_path / "run")
    fleet = fleet_with(lambda *_: None)
    resumed = execute(description(afo.AllForOne()), tmp_path / "run", resume=True, fleet=fleet)
    whole = trained(fleet_with(lambda *_: None), afo.AllForOne())
    assert all(torch.equal(resumed.stacked[name], tensor) for name, tensor in whole.stacked.items())
    assert resumed.history.sites["round"].to_list() == [r for r in range(1, ROUNDS + 1) for _ in range(4)]


def test_a_run_that_is_ended_from_outside_records_nothing_of_its_absences(tmp_path):
    fleet = fleet_with(lambda *_: None)

    def fault(site, asked, question):
        fleet.transport.ended = asked.get("round") == 2
        return Absent("cut off") if fleet.transport.ended else None

    fleet.transport.fault = fault
    with pytest.raises(Ended, match="ended from outside"):
        trained(fleet, afo.AllForOne(), tmp_path / "run")
    table = polars.read_csv(tmp_path / "run" / "sites.csv")
    assert table["round"].unique().to_list() == [1] and table["why"].is_null().all()


class Loading(Direct):
    """Sites that need half a minute to say who they are, the first time."""

    def ask(self, questions, deadline):
        for reply in super().ask(questions, deadline):
            slow = decode(questions[reply.site])["ask"] == "describe" and deadline < 30
            yield reply._replace(answer=Absent(f"no answer within {deadline:g} s")) if slow else reply


def test_a_short_deadline_for_answers_is_none_for_loading_data():
    problem = small_problem()
    sites = {str(k): site for k, site in sites_of(problem, dict(enumerate(problem.clients)), SEED, 5).items()}
    patience = Patience(deadline=2.0, wait=0.0)
    assert len(Sites(problem.task, Loading(sites), seed=SEED, batch_size=5, patience=patience).roster) == 4


def test_whom_a_run_waits_for_is_said_once_and_it_goes_on_when_they_are_back():
    fleet = fleet_with(lambda *_: None, Patience(least=4, pause=0.001, longest=0.001))
    answers = iter([Absent("cut off")] * 6)
    fleet.transport.fault = lambda site, *_: next(answers, None) if site == "site-3" else None
    fleet.asking.lose(3, "cut off")
    with pytest.warns(Notice) as said:
        assert fleet.begin(1, range(2)).present.all()
    assert [str(notice.message) for notice in said] == [
        "3 of 4 sites answer, and the run needs 4 (--least-sites): site-3: cut off; "
        "waiting for them, for 3600 s at most"
    ]


def met(known, away, patience=AT_ONCE):
    """A fleet whose sites of these names are away when it is made; first of all what all say of themselves."""
    fleet = fleet_with(lambda *_: None)
    said = dict(zip(fleet.asking.names, fleet.descriptions, strict=True))
    fleet.transport.fault = lambda site, *_: Absent("cut off") if site in away else None
    known = {name: said[name] for name in known}
    return Sites(fleet.task, fleet.transport, seed=SEED, batch_size=5, patience=patience, known=known)


def test_nothing_begins_without_a_site_that_never_said_who_it_is():
    with pytest.raises(TooFew, match=r"none can be left out at the start: site-2: cut off"):
        met(known=["site-0", "site-1"], away=["site-2"])


def test_a_run_goes_on_without_a_site_that_is_known_and_with_it_when_it_is_back():
    fleet = met(known=["site-2"], away=["site-2"], patience=Patience(returning=0.0, pause=0.0))
    assert len(fleet.roster) == 4
    assert fleet.begin(3, range(4, 6)).present.tolist() == [True, True, False, True]
    fleet.transport.fault = lambda *_: None
    assert fleet.begin(4, range(6, 8)).present.all()


def test_a_run_that_goes_on_gives_those_a_moment_who_are_just_coming_back():
    away = iter([Absent("starting")] * 3)
    fleet = fleet_with(lambda *_: None)
    said = dict(zip(fleet.asking.names, fleet.descriptions, strict=True))
    fleet.transport.fault = lambda site, *_: next(away, None) if site == "site-1" else None
    patience = Patience(returning=60.0, pause=0.001)
    again = Sites(fleet.task, fleet.transport, seed=SEED, batch_size=5, patience=patience, known=said)
    assert again.begin(1, range(2)).present.all()


def test_a_site_that_is_starting_is_asked_for_a_sign_of_life_before_anything_else():
    fleet, deadlines = fleet_with(lambda *_: None), []
    usual = fleet.transport.ask

    def ask(questions, deadline):
        deadlines.extend((name, decode(question)["ask"], deadline) for name, question in questions.items())
        return usual(questions, deadline)

    fleet.transport.ask = ask
    fleet.transport.fault = lambda site, *_: Absent("starting") if site == "site-1" else None
    with pytest.raises(TooFew):
        Sites(fleet.task, fleet.transport, seed=SEED, batch_size=5, patience=AT_ONCE)
    assert [asked for asked in deadlines if asked[0] == "site-1"] == [("site-1", "ping", AT_ONCE.ping)]
    assert ("site-0", "describe", AT_ONCE.meeting) in deadlines


def test_the_seconds_of_a_site_are_its_own_whoever_else_was_waited_for():
    fleet = fleet_with(lambda *_: None)
    usual = fleet.transport.ask

    def ask(questions, deadline):
        return (reply._replace(seconds=5.0 if reply.site == "site-0" else 0.5) for reply in usual(questions, deadline))

    fleet.transport.ask = ask
    fleet.losses(fleet.initial(), fleet.begin(1, range(2)))
    assert [contact.seconds for contact in fleet.contacts()] == [5.0, 0.5, 0.5, 0.5]
