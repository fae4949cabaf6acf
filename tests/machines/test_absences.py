"""Failures are absences, at the boundaries of rounds: whatever a site does, the others' run is one without it."""

from functools import partial

import polars
import pytest
import torch

import allforone as afo
from allforone.algorithms import ALGORITHMS
from allforone.errors import AllForOneError, Gone, InputError, Notice, TooFew
from allforone.machines.loop import Loop, sites_of
from allforone.machines.presence import Ended, Patience
from allforone.machines.sites import Sites
from allforone.machines.transport import Absent, Direct
from allforone.machines.wire import decode, encode
from allforone.runs import Given, execute, parse, prepare
from allforone.testing import small_problem, with_batch_norm

from .wires import Faulty, changed

SEED, ROUNDS, INNER = 127, 4, 2
ADAM = partial(torch.optim.Adam, lr=0.01)
AT_ONCE = Patience(pause=0.0, wait=0.0)


def fleet_with(fault, patience=AT_ONCE, problem=None):
    problem = problem or small_problem(with_batch_norm)
    sites = {f"site-{k}": site for k, site in sites_of(problem, dict(enumerate(problem.clients)), SEED, 5).items()}
    return Sites(problem.task, Faulty(sites, fault), seed=SEED, batch_size=5, patience=patience)


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


LIES = {
    "not finite": lambda m: m["gradients"].update({"0.weight": m["gradients"]["0.weight"] * torch.nan}),
    "infinite": lambda m: m["gradients"]["0.bias"].fill_(torch.inf),
    "another shape": lambda m: m["gradients"].update({"0.weight": m["gradients"]["0.weight"][:, 1:]}),
    "another kind": lambda m: m["gradients"].update({"0.weight": m["gradients"]["0.weight"].double()}),
    "too few": lambda m: m["gradients"].pop("0.weight"),
    "no tensors": lambda m: m.update(gradients=[1, 2, 3]),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_is_no_gradient_is_refused_counted_and_named_and_the_others_take_its_weight(lie):
    def fault(site, asked, question):
        return changed(LIES[lie]) if site == "site-2" and asked["ask"] == "gradients" else None

    fleet, plain = fleet_with(fault), fleet_with(lambda *_: None)
    models, mix = plain.initial(), torch.full((4, 4), 0.25).double()
    without = torch.where(torch.arange(4) == 2, 0, mix) * 4 / 3
    owners, round = fleet.roster.numbers, plain.begin(1, range(2))
    with pytest.warns(Notice, match="site-2 sent what is no gradient"):
        found = fleet.gradients(models, mix, fleet.begin(1, range(2)), 0, owners)
    expected = plain.gradients(models, without, round, 0, owners)
    for name in fleet.trained:
        torch.testing.assert_close(found[name], expected[name])
    assert fleet.ledger.refused.tolist() == [0, 0, 4, 0]


#: What is beside an answer, and no gradient.
ODD = {
    "a gradient among the buffers": lambda m: m["buffers"].update({"0.weight": torch.full((1, 8, 6), 1e9)}),
    "a buffer that nobody knows": lambda m: m["buffers"].update(other=torch.ones(1)),
    "samples beyond counting": lambda m: m.update(drawn=[["update", 0, 2**39, 2**39]]),
    "steps beyond counting": lambda m: m.update(drawn=[["update", 0, 10**30, 1]]),
    "samples that are no list": lambda m: m.update(drawn={"update": 1}),
}


@pytest.mark.parametrize("odd", ODD)
def test_what_a_site_sends_beside_its_gradients_changes_nothing(odd):
    def fault(site, asked, question):
        return changed(ODD[odd]) if site == "site-2" and asked["ask"] == "gradients" else None

    fleet, plain = fleet_with(fault), fleet_with(lambda *_: None)
    models, mix, owners = plain.initial(), torch.full((4, 4), 0.25).double(), plain.roster.numbers
    found, expected = (f.gradients(models, mix, f.begin(1, range(2)), 0, owners) for f in (fleet, plain))
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert 0 <= fleet.ledger.samples[2] <= plain.ledger.samples[2]


LOOKS = {
    "more samples than a number holds": (lambda m: m.update(read=10**400), [0, 0, 0, 0]),
    "numbers that torch only stores": (lambda m: m.update(means=m["means"].to(torch.float8_e5m2)), [0, 0, 4, 0]),
}


@pytest.mark.filterwarnings("ignore::allforone.errors.Notice")
@pytest.mark.parametrize("lie", LOOKS)
def test_a_look_that_cannot_be_used_stops_nobody(lie):
    change, refused = LOOKS[lie]
    fleet = fleet_with(lambda site, asked, _: changed(change) if (site, asked["ask"]) == ("site-2", "look") else None)
    look = fleet.look(fleet.initial(), fleet.begin(1, range(2)), torch.arange(4).expand(4, -1), 8, 4)
    others = torch.tensor([0, 1, 3])
    assert look.distance[others][:, others].isfinite().all() and look.read.isfinite().all()
    assert fleet.ledger.refused.tolist() == refused


#: What a site may say of itself that is none of what is read.
SELVES = {
    "no member": lambda m: m.pop("member"),
    "a member of other fields": lambda m: m.update(member={"age": 3}),
    "a size that is none": lambda m: m["member"].update(size="many"),
    "a size beyond counting": lambda m: m["member"].update(size=10**30),
    "a name that is none": lambda m: m["member"].update(name=[1]),
    "nothing about what it holds out": lambda m: m.pop("held"),
    "a tensor for its number": lambda m: m.update(number=torch.zeros(2)),
}


@pytest.mark.parametrize("lie", SELVES)
def test_a_site_that_does_not_say_who_it_is_is_named_and_nothing_begins(lie):
    def fault(site, asked, question):
        return changed(SELVES[lie]) if (site, asked["ask"]) == ("site-1", "describe") else None

    with pytest.raises(InputError, match="what site-1 says of itself cannot be read"):
        fleet_with(fault)


def test_a_site_that_comes_back_with_nonsense_stays_away_and_the_others_go_on():
    fleet = fleet_with(lambda *_: None)
    lie = changed(SELVES["a tensor for its number"])
    fleet.transport.fault = lambda site, asked, _: lie if asked["ask"] == "describe" else None
    fleet.asking.lose(1, "cut off")
    fleet.asking.presence.now = lambda: 1e12
    assert fleet.begin(1, range(2)).present.tolist() == [True, False, True, True]
    assert "it is back with other data" in fleet.asking.presence.said()


def test_what_a_site_says_of_its_failure_cannot_move_the_cursor_of_a_terminal():
    told = encode({"error": "E", "why": "fine\x1b[2J\r\n" + 500 * "x"})
    fleet = fleet_with(lambda *_: None)
    fleet.transport.fault = lambda site, asked, _: told if site == "site-1" else None
    with pytest.raises(Gone) as raised:
        fleet.losses(fleet.initial(), fleet.begin(1, range(2)))
    assert "fine?[2J??" in str(raised.value) and len(str(raised.value)) < 300


@pytest.mark.filterwarnings("ignore::allforone.errors.Notice")
@pytest.mark.parametrize("name", ["all-for-one", "all-for-one-round", "local", "ifca", "fedavg"])
def test_a_site_that_lies_in_every_answer_stops_nobody_and_spoils_no_model(name):
    def nonsense(message):
        for key, value in message.items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                message[key] = value * torch.nan
            elif isinstance(value, dict) and key in ("gradients", "models"):
                message[key] = {n: t * torch.nan if t.is_floating_point() else t for n, t in value.items()}

    def fault(site, asked, question):
        return changed(nonsense) if site == "site-1" and asked["ask"] not in ("describe", "ping") else None

    result = trained(fleet_with(fault), ALGORITHMS[name]())
    assert all(t.isfinite().all() for t in result.stacked.values() if t.is_floating_point())
    assert result.metrics["present"].to_list()[4] == 1  # of site-0, in the first round


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
