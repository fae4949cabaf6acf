"""A client's model, taken away and used elsewhere."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional

import allforone as afo
from allforone.runs import execute, export, parse, prepare

QUICK = {"problem": {"name": "digits", "clients": 4}, "rounds": 2, "inner": 2}
ELSEWHERE = """
import sys, torch
from torch import nn
sys.path.insert(0, sys.argv[1])
from load import load
model = load(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
assert not model.training
torch.save(model(torch.ones(1, 64)), sys.argv[2])
"""


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run", execute(prepare(parse(QUICK)), tmp_path / "run")


@pytest.mark.slow
def test_an_exported_model_answers_the_same_in_a_fresh_process_without_allforone(run, cli, tmp_path):
    path, result = run
    code, out, err = cli("export", path, "--client", 3)
    assert code == 0, err
    assert out.split() == [str(path / "export" / "client-3" / name) for name in ("model.safetensors", "load.py")]
    answer = tmp_path / "answer.pt"
    command = [sys.executable, "-c", ELSEWHERE, path / "export" / "client-3", answer]
    subprocess.run(command, check=True, timeout=120)
    assert torch.load(answer).equal(result.models[3](torch.ones(1, 64)))


@pytest.mark.slow
def test_the_loader_knows_the_architecture_of_a_problem_with_a_name(run, cli):
    path, _ = run
    assert cli("export", path, "--client", 0)[0] == 0
    command = [sys.executable, path / "export" / "client-0" / "load.py"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    assert "Linear(in_features=64, out_features=32" in shown


@pytest.mark.slow
def test_an_onnx_model_answers_the_same_for_batches_of_any_size(run, cli, tmp_path):
    pytest.importorskip("onnxscript", reason="allforone[onnx] is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    path, result = run
    code, _, err = cli("export", path, "--client", 1, "--onnx", "--out", tmp_path / "taken")
    assert code == 0, err
    session = runtime.InferenceSession(tmp_path / "taken" / "model.onnx")
    for size in (1, 5):
        inputs = torch.randn(size, 64)
        (outputs,) = session.run(None, {"inputs": inputs.numpy()})
        assert torch.allclose(torch.from_numpy(outputs), result.models[1](inputs), atol=1e-5)


def test_a_missing_package_is_told_with_the_extra_before_anything_is_written(run, cli, monkeypatch):
    path, _ = run
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    code, _, err = cli("export", path, "--client", 1, "--onnx")
    assert code == 2 and "pip install 'allforone[onnx]'" in err
    assert not (path / "export").exists()


def test_what_cannot_be_exported_is_told(run, cli, tmp_path):
    path, _ = run
    code, _, err = cli("export", path, "--client", 9)
    assert code == 2 and "the run has 4, numbered from 0" in err
    (path / "models.safetensors").unlink()
    code, _, err = cli("export", path, "--client", 1)
    assert code == 2 and "not finished" in err
    (tmp_path / "many" / "runs").mkdir(parents=True)
    code, _, err = cli("export", tmp_path / "many", "--client", 1)
    assert code == 2 and "give one of its runs" in err


def test_from_python_a_client_is_exported_by_its_result_and_found_by_its_name(tmp_path, cli):
    data = (torch.randn(20, 3), torch.randn(20, 1))
    clients = [afo.Client(data, data, name=name) for name in ("north", "south")]
    result = afo.train(nn.Linear(3, 1), clients, loss=functional.mse_loss, rounds=1, out=tmp_path / "run")
    result.export(1, tmp_path / "one")
    code, _, err = cli("export", tmp_path / "run", "--client", "south", "--out", tmp_path / "two")
    assert code == 0, err
    weights = [(tmp_path / place / "model.safetensors").read_bytes() for place in ("one", "two")]
    assert weights[0] == weights[1]
    code, _, err = cli("export", tmp_path / "run", "--client", "souht")
    assert code == 2 and "did you mean 'south'" in err
