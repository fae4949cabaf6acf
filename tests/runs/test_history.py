"""What a run records of who listened to whom."""

import pytest
import torch

from allforone.algorithms import Info
from allforone.errors import InputError
from allforone.runs import Folder, execute, parse, prepare, read_comparison
from allforone.runs.history import History

QUICK = {"problem": {"name": "digits", "clients": 4}, "rounds": 4, "inner": 2}


def test_bias_noise_trust_and_presence_are_recorded_with_the_weights(tmp_path):
    execute(prepare(parse({**QUICK, "participation": 0.6})), tmp_path / "run")
    tables = Folder.open(tmp_path / "run").tables().tensors()
    assert {name: table.shape for name, table in tables.items()} == {
        "rounds": (4,),
        "present": (4, 4),
        **dict.fromkeys(("weights", "similarity", "bias", "noise", "trust"), (4, 4, 4)),
    }
    assert tables["bias"].dtype == tables["noise"].dtype == torch.float32 and tables["trust"].dtype == torch.float16
    assert not (tables["bias"] < 0).any() and (tables["bias"].diagonal(dim1=1, dim2=2) == 0).all()
    there, absent = tables["present"], ~tables["present"]
    both = there[:, :, None] & there[:, None]
    assert tables["bias"][both].isfinite().all() and tables["bias"].isnan().any()  # of those who have not met yet
    assert ((tables["trust"] > 0) == both).all() and (tables["trust"] <= 1).all()
    assert (tables["noise"][both] > 0).all()
    assert absent.any()
    assert (tables["weights"][absent] == 0).all()


def test_weights_of_an_older_version_are_refused_in_one_line(tmp_path):
    execute(prepare(parse(QUICK)), tmp_path / "run")
    (tmp_path / "run" / "weights.safetensors").touch()
    with pytest.raises(InputError, match="an older version, which is no longer read; make the run anew"):
        read_comparison(tmp_path / "run")


def test_a_round_that_tells_less_than_others_has_nan_in_its_place():
    history, here = History(), torch.ones(2, dtype=torch.bool)
    one = torch.eye(2).double()
    for number, similarity in enumerate((None, one, None), 1):
        history.add_info(number, Info(one, similarity), here)
    table = history.tables.dense("similarity")
    assert table.isnan().all((1, 2)).tolist() == [True, False, True]


def test_a_line_in_the_middle_of_being_written_is_not_read(tmp_path):
    execute(prepare(parse(QUICK)), tmp_path / "run")
    whole = Folder.open(tmp_path / "run").metrics()
    with (tmp_path / "run" / "metrics.csv").open("a") as file:
        file.write("5,0,0.25,0.75,,1.0,3,1.0,1,16,0.5\n5,1,0.2")
    assert Folder.open(tmp_path / "run").metrics().height == whole.height + 1
    (run,) = read_comparison(tmp_path / "run").runs
    assert run.metrics.equals(whole)  # round 5 is not whole


def test_a_run_without_a_round_is_told(tmp_path):
    execute(prepare(parse(QUICK)), tmp_path / "run")
    metrics = tmp_path / "run" / "metrics.csv"
    metrics.write_text(metrics.read_text().splitlines(keepends=True)[0])
    (tmp_path / "run" / "checkpoint.safetensors").unlink()
    (tmp_path / "run" / "checkpoint-before.safetensors").unlink()
    with pytest.raises(InputError, match="no round is done yet"):
        read_comparison(tmp_path / "run")
