"""What cannot be gone on with says so, and stays as it is."""

import pytest

import allforone as afo
from allforone.algorithms import Guarded
from allforone.errors import InputError
from allforone.runs import resume
from allforone.testing import small_problem


def test_fewer_rounds_than_are_done_are_refused_and_nothing_is_changed(tmp_path):
    out = tmp_path / "run"
    afo.train(small_problem(), rounds=3, out=out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(InputError, match="3 rounds already, which is more than 2"):
        afo.train(small_problem(), rounds=2, out=out, resume=True)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_run_from_python_is_gone_on_with_in_python(tmp_path):
    afo.train(small_problem(), rounds=1, out=tmp_path / "run")
    with pytest.raises(InputError, match="started from Python"):
        resume(tmp_path / "run")


def test_a_guard_is_asked_for_by_its_own_argument():
    with pytest.raises(InputError, match="guard=True"):
        afo.train(small_problem(), algorithm=Guarded(afo.AllForOne()), rounds=1)
