"""A result kept in a folder, and opened again."""

import shutil

import pytest
import torch
from torch import nn

import allforone as afo
from allforone.errors import InputError
from allforone.runs import read_comparison

from .sites import hospitals


def same(one, other):
    assert one.stacked.keys() == other.stacked.keys()
    assert all(one.stacked[name].equal(other.stacked[name]) for name in one.stacked)
    assert one.weights.equal(other.weights)
    assert one.metrics.equals(other.metrics)
    assert one.roster == other.roster and one.config.plain() == other.config.plain()


def test_what_was_saved_is_loaded_as_it_was(tmp_path):
    result = afo.train(hospitals(), rounds=3)
    assert result.save(tmp_path / "run") == tmp_path / "run"
    loaded = afo.load(tmp_path / "run", hospitals())
    same(loaded, result)
    inputs = torch.randn(5, 4)
    assert loaded.predict("Hospital B", inputs).equal(result.predict("Hospital B", inputs))
    assert loaded.clusters() == result.clusters()
    assert loaded.why("Hospital A", "Hospital B") == result.why("Hospital A", "Hospital B")


def test_without_the_model_all_but_the_models_can_be_asked(tmp_path):
    result = afo.train(hospitals(), rounds=3)
    loaded = afo.load(result.save(tmp_path / "run"))
    same(loaded, result)
    loaded.report(tmp_path / "report.html")
    with pytest.raises(InputError, match="started from Python, so its model is known there only"):
        loaded.model("Hospital A")
    with pytest.raises(InputError, match="another model"):
        afo.load(tmp_path / "run", nn.Linear(3, 2)).model("Hospital A")
    assert afo.load(tmp_path / "run", nn.Linear(4, 2)).model(0).weight.equal(result.model(0).weight)


def test_a_run_of_the_command_line_is_opened_whole(tmp_path, cli):
    code, _, err = cli("run", "digits", "-p", "clients=4", "--rounds", 2, "--out", tmp_path / "run")
    assert code == 0, err
    loaded, result = afo.load(tmp_path / "run"), afo.train(afo.digits(clients=4), rounds=2)
    assert all(loaded.stacked[name].equal(result.stacked[name]) for name in result.stacked)
    assert loaded.roster == result.roster and loaded.weights.equal(result.weights)
    assert loaded.model(3)(torch.ones(1, 64)).equal(result.model(3)(torch.ones(1, 64)))
    assert loaded.gains().drop("client").equals(result.gains().drop("client"))


def test_a_saved_result_is_a_run_for_the_command_line(tmp_path, cli):
    afo.train(hospitals(), rounds=2).save(tmp_path / "run")
    assert read_comparison(tmp_path / "run").problem == "hospitals"
    code, _, err = cli("export", tmp_path / "run", "--client", "Hospital C", "--out", tmp_path / "taken")
    assert code == 0, err


def test_a_saved_result_is_not_begun_anew_by_resume(tmp_path):
    afo.train(hospitals(), rounds=2).save(tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(InputError, match="no checkpoint to go on from"):
        afo.train(hospitals(), rounds=4, out=tmp_path / "run", resume=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.name in before} == before


def test_a_run_with_a_folder_is_saved_elsewhere_and_nothing_is_overwritten(tmp_path):
    result = afo.train(hospitals(), rounds=2, out=tmp_path / "run")
    with pytest.raises(InputError, match="nothing was overwritten"):
        result.save(tmp_path / "run")
    result.save(tmp_path / "copy")
    expected = afo.load(tmp_path / "run", hospitals())
    shutil.rmtree(tmp_path / "run")
    assert afo.load(tmp_path / "copy", hospitals()).weights.shape == (2, 3, 3)
    assert expected.stacked.keys() == result.stacked.keys()


def test_other_data_than_those_trained_on_are_refused(tmp_path):
    afo.train(hospitals(), rounds=1).save(tmp_path / "run")
    other = hospitals()
    other.clients[1].train.tensors[0][0] += 1
    with pytest.raises(InputError, match=r"another data of client 1 \(Hospital B\)"):
        afo.load(tmp_path / "run", other)


def test_an_unfinished_run_and_a_comparison_say_what_to_do(tmp_path):
    afo.train(hospitals(), rounds=1, out=tmp_path / "run")
    (tmp_path / "run" / "models.safetensors").unlink()
    with pytest.raises(InputError, match="go on with `allforone resume"):
        afo.load(tmp_path / "run")
    (tmp_path / "many" / "runs").mkdir(parents=True)
    with pytest.raises(InputError, match="holds a comparison"):
        afo.load(tmp_path / "many")
