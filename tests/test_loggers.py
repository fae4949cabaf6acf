"""Rounds for MLflow and Weights & Biases; with the real packages where they are installed, else with stand-ins."""

import sys
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import pytest

import allforone as afo
from allforone import loggers, notebook
from allforone.errors import InputError
from allforone.progress import progress_of_rounds

from .results.sites import hospitals


def expected(result):
    last = result.metrics.filter(result.metrics["round"] == 2)
    return {
        "loss/mean": pytest.approx(last["loss"].mean()),
        "accuracy/worst": pytest.approx(last["accuracy"].min()),
        "accuracy/Hospital B": pytest.approx(last["accuracy"][1]),
    }


@pytest.mark.slow
def test_real_mlflow_writes_settings_and_rounds_into_a_folder(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="allforone[mlflow] is not installed")
    result = afo.train(hospitals(), rounds=2, callbacks=[afo.MLflow(tmp_path / "runs", "mine", "first")])
    client = mlflow.MlflowClient((tmp_path / "runs").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert run.info.status == "FINISHED" and run.info.run_name == "first"
    assert run.data.params["optimizer.lr"] == "0.2" and run.data.params["algorithm.name"] == "all-for-one"
    for name, value in expected(result).items():
        assert run.data.metrics[name] == value
    assert [point.step for point in client.get_metric_history(run.info.run_id, "loss/mean")] == [0, 1, 2]


class MlflowClient:
    """As much of MLflow's as is used, where it is not installed."""

    told: ClassVar[dict] = {}

    def __init__(self, uri):
        MlflowClient.told = {"uri": uri, "params": {}, "metrics": {}}

    def get_experiment_by_name(self, name):
        return None

    def create_experiment(self, name):
        return f"number of {name}"

    def create_run(self, number, run_name):
        self.told["run"] = number, run_name
        return SimpleNamespace(info=SimpleNamespace(run_id="id"))

    def log_param(self, run, key, value):
        self.told["params"][key] = value

    def log_metric(self, run, key, value, step):
        self.told["metrics"][key, step] = value

    def set_terminated(self, run):
        self.told["ended"] = run


@pytest.mark.skipif(find_spec("mlflow") is not None, reason="the real one is installed")
def test_mlflow_is_told_settings_and_rounds(tmp_path, monkeypatch):
    monkeypatch.setattr(loggers, "_package", lambda *_: SimpleNamespace(MlflowClient=MlflowClient))
    result = afo.train(hospitals(), rounds=2, callbacks=[afo.MLflow(tmp_path, "mine", "first")])
    told = MlflowClient.told
    assert told["uri"] == tmp_path.as_uri() and told["run"] == ("number of mine", "first") and told["ended"] == "id"
    assert told["params"]["optimizer.lr"] == "0.2"
    assert {name: told["metrics"][name, 2] for name in expected(result)} == expected(result)


@pytest.mark.slow
def test_real_wandb_writes_a_folder_offline(tmp_path):
    pytest.importorskip("wandb", reason="allforone[wandb] is not installed")
    afo.train(hospitals(), rounds=2, callbacks=[afo.WandB(folder=tmp_path)])
    assert list((tmp_path / "wandb").glob("offline-run-*/run-*.wandb"))


@pytest.mark.skipif(find_spec("wandb") is not None, reason="the real one is installed")
def test_wandb_is_told_settings_and_rounds(tmp_path, monkeypatch):
    told = {}

    def init(**options):
        told.update(options, logged={})
        return SimpleNamespace(
            log=lambda numbers, step: told["logged"].update({step: numbers}), finish=lambda: told.update(ended=True)
        )

    monkeypatch.setattr(loggers, "_package", lambda *_: SimpleNamespace(init=init))
    result = afo.train(hospitals(), rounds=2, callbacks=[afo.WandB(folder=tmp_path / "w")])
    assert told["mode"] == "offline" and told["config"]["optimizer.lr"] == 0.2 and told["ended"]
    assert {name: told["logged"][2][name] for name in expected(result)} == expected(result)


@pytest.mark.parametrize(("logger", "extra"), [(afo.MLflow, "mlflow"), (afo.WandB, "wandb")])
def test_a_missing_package_is_told_with_its_extra(monkeypatch, logger, extra):
    monkeypatch.setattr(loggers, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=rf"pip install 'allforone\[{extra}\]'"):
        logger()


def test_a_notebook_shows_one_line_that_is_written_again(monkeypatch):
    lines = []

    class ZMQInteractiveShell:
        pass

    def display(shown, display_id):
        lines.append(shown)
        return SimpleNamespace(update=lines.append)

    kernel, shown = ModuleType("IPython"), ModuleType("IPython.display")
    kernel.get_ipython, shown.display, shown.HTML = ZMQInteractiveShell, display, str
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    assert notebook.is_one()
    with progress_of_rounds(3) as show:
        show(2, "loss <0.5>")
    assert lines[-1] == '<progress value="2" max="3"></progress> round 2 of 3 &nbsp; loss &lt;0.5&gt;'
    with progress_of_rounds(3, shown=False) as show:
        show(1, "")
    assert len(lines) == 2
