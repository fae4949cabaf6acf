"""A site is a function from bytes to bytes: it keeps nothing, never raises, and logs what it lets out."""

import json
import os

import pytest
import torch

from allforone.errors import InputError
from allforone.machines.audit import Audit, read, summed
from allforone.machines.loop import Loop
from allforone.machines.presence import Patience
from allforone.machines.site import Site
from allforone.machines.sites import Sites
from allforone.machines.transport import Direct
from allforone.machines.wire import decode, encode
from allforone.problems import Client, Problem, Task
from allforone.testing import small_problem, with_batch_norm

from ..rounds import at

PROBLEM = small_problem()


def site(number=1, problem=PROBLEM, **options):
    return Site(problem.task, problem.clients[number], number, **{"seed": 3, "batch_size": 4, **options})


def questions():
    """Those of a round, as a coordinator asks them."""
    asked, sites = [], {str(k): site(k) for k in range(4)}

    class Listening(Direct):
        def ask(self, questions, deadline):
            asked.extend(question for name, question in questions.items() if name == "1")
            yield from super().ask(questions, deadline)

    fleet = Sites(PROBLEM.task, Listening(sites), seed=3, batch_size=4)
    models, ids = fleet.initial(), torch.arange(4).expand(4, -1)
    round = fleet.begin(1, range(2))
    fleet.gradients(models, torch.ones(4, 4).double(), round, 0, fleet.roster.numbers)
    fleet.look(models, round, ids, 6, 8)
    fleet.losses(models, round)
    fleet.evaluate(models, round)
    return asked


def test_an_answer_depends_on_the_question_alone():
    asked, one, other = questions(), site(), site()
    first = [one.answer(question) for question in asked]
    assert first == [other.answer(question) for question in reversed(asked)][::-1]
    assert len(first) == 7 and not any("error" in decode(answer) for answer in first)


@pytest.mark.parametrize(
    "question", [b"", b"garbage", encode({"ask": "secrets"}), encode({}), encode({"ask": "gradients"})]
)
def test_whatever_it_is_asked_it_answers_and_never_raises(question):
    told = decode(site().answer(question))
    assert (told["error"] and "failed" in told["why"]) or "could not read" in told["why"]


def test_a_data_protection_officer_reads_what_has_left_about_whom_and_from_how_many_samples(tmp_path):
    logged = site(audit=Audit(tmp_path / "house" / "audit.jsonl"))
    for question in (*questions(), b"garbage"):
        answer = logged.answer(question)
    entries = read(tmp_path / "house" / "audit.jsonl")
    gradients = next(entry for entry in entries if entry.question == "gradients")
    parameters = sum(p.numel() for p in PROBLEM.initial_model(3).parameters())
    assert gradients.round == 1 and gradients.models_of == [0, 1, 2, 3]
    assert gradients.sent == {"gradients": 4 * parameters} and gradients.samples == 4
    assert [entry.samples for entry in entries if entry.question == "evaluate"] == [6]
    assert entries[-1].failed == "Unreadable" and entries[-1].bytes_out == len(answer)
    looks = next(kind for kind in summed(entries) if kind.question == "look")
    assert looks.answers == 2 and looks.models_of == [0, 1, 2, 3]
    assert looks.bytes_out == sum(entry.bytes_out for entry in entries if entry.question == "look")


@pytest.mark.parametrize(
    "about",
    [
        {"owners": ["nobody"]},
        {"owners": 7},
        {"owners": [10**400] * 9},
        {"owners": [2**31 - 1] * 200_000},
        {"round": "x"},
        {"round": torch.ones(2)},
        {"ask": "x" * 2**20},
        {"ask": torch.ones(2)},
    ],
    ids=lambda about: next(iter(about)),
)
def test_no_question_makes_the_log_unreadable(tmp_path, about):
    path = tmp_path / "audit.jsonl"
    logged = site(audit=Audit(path))
    logged.answer(encode({"ask": "gradients", **about}))
    logged.answer(encode({"ask": "ping"}))
    assert [entry.question for entry in read(path)][1:] == ["ping"]


def test_half_a_line_that_a_dead_machine_left_does_not_spoil_the_lines_after_it(tmp_path):
    path = tmp_path / "audit.jsonl"
    for _ in range(2):
        site(audit=Audit(path)).answer(encode({"ask": "ping"}))
    path.write_bytes(path.read_bytes()[:-30])
    site(audit=Audit(path)).answer(encode({"ask": "describe"}))
    assert [entry.question for entry in read(path)] == ["ping", "describe"]


def test_an_answer_that_the_disk_has_no_place_to_log_does_not_leave_and_no_half_line_stays(tmp_path, monkeypatch):
    path = tmp_path / "audit.jsonl"
    logged = site(audit=Audit(path))
    logged.answer(encode({"ask": "ping"}))
    before, write = path.read_bytes(), os.write
    monkeypatch.setattr(os, "write", lambda file, line: write(file, line[:10]))  # as on a disk that is nearly full
    assert decode(logged.answer(encode({"ask": "describe"})))["why"] == "its audit log cannot be written"
    assert path.read_bytes() == before


def test_the_audit_is_summed_up_on_the_command_line(tmp_path, cli):
    path = tmp_path / "audit.jsonl"
    logged = site(audit=Audit(path))
    for question in questions():
        logged.answer(question)
    code, told, _ = cli("audit", path)
    told = " ".join(told.split())
    assert code == 0 and "7 answers from" in told and "gradients" in told and "bytes left this site" in told
    path.write_text(path.read_text() + json.dumps({"time": "now"}) + "\n")
    with pytest.raises(InputError, match="line 8: not as a site writes it"):
        read(path)


def test_an_answer_that_cannot_be_logged_does_not_leave(tmp_path):
    logged = site(audit=Audit(tmp_path / "audit.jsonl"))
    (tmp_path / "audit.jsonl").mkdir()
    assert decode(logged.answer(questions()[2])) == {
        "error": "IsADirectoryError",
        "why": "its audit log cannot be written",
    }


def fleet_of(sites, task=PROBLEM.task, **options):
    return Sites(task, Direct(dict(zip("abcd", sites, strict=True))), **{"seed": 3, "batch_size": 4, **options})


def all_but(number, other):
    return [other if k == number else site(k) for k in range(4)]


def test_who_has_another_task_model_data_or_settings_is_named_before_the_first_round():
    fleet_of([site(k) for k in range(4)])
    wider = Problem(
        PROBLEM.model,
        PROBLEM.loss,
        clients=[Client((x.double(), y), (x.double(), y)) for x, y in [PROBLEM.clients[0].train.tensors] * 4],
    )
    for number, other, said in (
        (1, site(1, batch_size=5), "b has another settings of the run .batch_size 5 for 4"),
        (2, site(2, seed=4), "c has another initial model"),
        (3, site(3, small_problem(with_batch_norm)), "d has another task .its model"),
        (3, site(2), "d takes itself for number 2, not 3"),
        (
            0,
            Site(Task(lambda: torch.nn.Linear(6, 3).double(), wider.loss), wider.clients[0], 0, seed=3, batch_size=4),
            "a has another task",
        ),
    ):
        with pytest.raises(InputError, match=said):
            fleet_of(all_but(number, other))


def test_a_sketch_tells_distances_within_its_error_from_a_fraction_of_the_numbers():
    problem = small_problem(
        lambda: torch.nn.Sequential(torch.nn.Linear(6, 400), torch.nn.Tanh(), torch.nn.Linear(400, 3))
    )
    whole, told = (fleet_of([site(k, problem) for k in range(4)], problem.task, told=told) for told in (0, 256))
    models, ids = whole.initial(), torch.arange(4).expand(4, -1)
    looks = [fleet.look(models, at(fleet, 0), ids, 8, 16) for fleet in (whole, told)]
    others = ~torch.eye(4).bool()
    ratio = (looks[1].distance / looks[0].distance)[others]
    assert (ratio - 1).abs().max() < 4 * (2 / 256) ** 0.5  # four standard deviations
    assert (ratio - 1).abs().max() > 0 and torch.equal(looks[0].norm, looks[1].norm)
    received = [sum(contact.received for contact in fleet.contacts()) for fleet in (whole, told)]
    assert received[1] < received[0] / 5


def test_a_site_that_is_back_with_other_data_stays_out():
    sites = {str(k): site(k) for k in range(4)}
    fleet = Sites(PROBLEM.task, Direct(sites), seed=3, batch_size=4, patience=Patience(pause=0.0))
    fleet.asking.lose(1, "cut off")
    sites["1"] = Site(PROBLEM.task, PROBLEM.clients[3], 1, seed=3, batch_size=4)
    assert fleet.begin(1, range(2)).present.tolist() == [True, False, True, True]
    assert "other data" in fleet.contacts()[1].why
    sites["1"] = site(1)
    assert fleet.begin(2, range(2, 4)).present.all()


def test_sites_hold_out_what_the_owner_of_all_data_would():
    from allforone.problems import hold_out

    held = hold_out(PROBLEM, 0.2, 3)
    fleet, plain = fleet_of([site(k, held_out=0.2) for k in range(4)]), Loop(held, seed=3, batch_size=4)
    found, expected = (made.new_losses(made.initial(), at(made, 0)) for made in (fleet, plain))
    assert torch.equal(found.losses.nan_to_num(), expected.losses.nan_to_num()) and found.held.all()
