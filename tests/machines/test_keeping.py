"""A child that answers, dies, hangs and chatters."""

import os
import signal
import sys
import time

import pytest

from allforone.machines.flare import keeping
from allforone.machines.flare.keeping import Kept, Unanswered

CHILD = """
import os, sys, time
from allforone.machines.flare import frames
answers = os.fdopen(os.dup(1), "wb")
frames.send(answers, 0, b"")
while (message := frames.receive(sys.stdin.buffer)) is not None:
    number, question = message
    if question == b"die":
        os._exit(1)
    if question == b"hang":
        time.sleep(60)
    frames.send(answers, number, str(os.getpid()).encode() if question == b"who" else question[::-1])
"""


@pytest.fixture
def child(tmp_path, monkeypatch):
    monkeypatch.setattr(keeping, "FIRST_PAUSE", 0.05)
    kept = Kept([sys.executable, "-c", CHILD], tmp_path / "child.log")
    kept.start()
    yield kept
    kept.stop()


def asked(child, question=b"abc", seconds=5.0, within=20.0):
    """Its answer, once it has started."""
    until = time.monotonic() + within
    while True:
        try:
            return child.ask(question, seconds)
        except Unanswered as error:
            if "starting" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.05)


def test_a_child_that_is_starting_says_so_at_once(child):
    before = time.monotonic()
    with pytest.raises(Unanswered, match="its process is starting"):
        child.ask(b"abc", 30)
    assert time.monotonic() - before < 1


def test_a_large_question_comes_back_whole(child):
    question = os.urandom(5_000_000)
    assert asked(child, question) == question[::-1]


def test_a_child_that_dies_at_a_question_is_started_again(child):
    first = asked(child, b"who")
    with pytest.raises(Unanswered, match="its process died"):
        child.ask(b"die", 5)
    assert asked(child, b"who") != first


def test_a_child_that_is_killed_between_questions_is_started_again(child):
    first = asked(child, b"who")
    os.kill(int(first), signal.SIGKILL)
    time.sleep(0.3)
    assert asked(child, b"who") != first


def test_who_is_late_costs_its_deadline_once_and_answers_no_other_question(child):
    first = asked(child, b"who")
    before = time.monotonic()
    with pytest.raises(Unanswered, match=r"no answer within 0.5 s"):
        child.ask(b"hang", 0.5)
    with pytest.raises(Unanswered, match="its process is starting"):
        child.ask(b"abc", 30)
    assert time.monotonic() - before < 2
    assert asked(child, b"abc") == b"cba"
    assert asked(child, b"who") != first


def test_a_stopped_child_is_gone(child):
    process = int(asked(child, b"who"))
    child.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
