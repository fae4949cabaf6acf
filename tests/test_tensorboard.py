"""Scalars for TensorBoard."""

import pytest

from allforone import tensorboard
from allforone.runs import Folder

OPTIONS = ("run", "digits", "-p", "clients=3", "--rounds", 2, "--inner", 1, "--tensorboard")


def test_scalars_are_those_of_the_metrics(cli, tmp_path):
    pytest.importorskip("tensorboard", reason="allforone[tensorboard] is not installed")
    code, _, err = cli(*OPTIONS, "--out", tmp_path / "run")
    assert code == 0, err
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    metrics = Folder.open(tmp_path / "run").metrics()
    for client in range(3):
        own = metrics.filter(metrics["client"] == client)
        seen = events.Scalars(f"loss by client/{client}")
        assert [event.step for event in seen] == own["round"].to_list()
        assert [event.value for event in seen] == pytest.approx(own["loss"].to_list(), rel=1e-6)
    assert len(events.Scalars("accuracy/worst")) == 3


def test_without_the_package_nothing_starts_and_the_extra_is_named(cli, tmp_path, monkeypatch):
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    code, _, err = cli(*OPTIONS, "--out", tmp_path / "run")
    assert code == 2 and "pip install 'allforone[tensorboard]'" in err
    assert not (tmp_path / "run").exists()
