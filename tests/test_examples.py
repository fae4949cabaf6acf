"""The examples run, and show what they say."""

import json
import runpy
import statistics
import sys
from pathlib import Path

import polars
import pytest
import torch

import allforone as afo

EXAMPLES = Path(__file__).parent.parent / "examples"
pytestmark = pytest.mark.slow


@pytest.fixture
def example(monkeypatch):
    """The names of an example's file."""

    def load(name):
        monkeypatch.syspath_prepend(str(EXAMPLES))
        torch.manual_seed(0)
        return runpy.run_path(str(EXAMPLES / name), run_name="example")

    yield load
    sys.modules.pop("sites", None)


def last(result, metric):
    return result.metrics.filter(polars.col("round") == polars.col("round").max()).sort("client")[metric].to_list()


def test_a_table_gives_a_classifier_for_each_hospital(example):
    pytest.importorskip("pandas", reason="pandas is not installed")
    scores = example("tabular.py")["main"](rounds=8)
    assert list(scores) == ["Aarau", "Bern", "Chur", "Davos"] and min(scores.values()) > 0.8


def test_images_are_shifted_by_the_batch_alone(example):
    names = example("images.py")
    images = torch.rand(4, 1, 8, 8)
    one, other = (names["shifted"](images, torch.Generator().manual_seed(3)) for _ in range(2))
    assert one.equal(other) and one.shape == images.shape and not one.equal(images)
    assert min(last(names["main"](rounds=8, sites=4), "accuracy")) > 0.3


def test_a_transformer_reads_reviews(example):
    assert min(last(example("text.py")["main"](rounds=12), "accuracy")) > 0.6


def test_only_adapters_are_trained_and_sent(example):
    result = example("lora.py")["main"](rounds=3)
    model = result.model(0)
    adapters = sum(p.numel() for name, p in model.named_parameters() if "frozen" not in name)
    assert adapters == 2 * (64 + 64) + 2 * (64 + 10)
    frozen = [result.stacked[name] for name in result.stacked if "frozen" in name]
    assert all(tensor.eq(tensor[:1]).all() for tensor in frozen)
    messages, sent = last(result, "messages")[0], last(result, "bytes")[0]
    assert sent == 4 * adapters * messages


def test_discs_are_found_in_scans(example):
    result = example("segmentation.py")["main"]()
    assert min(last(result, "dice")) > 0.6


def test_a_patient_is_read_off_a_gradient_and_less_off_larger_batches_and_longer_rounds(example, monkeypatch, capsys):
    monkeypatch.delenv("ALLFORONE_DATA", raising=False)
    names = example("leak.py")
    found = names["main"]()
    told = [line.rsplit(maxsplit=2)[-2:] for line in capsys.readouterr().out.splitlines()[3:17]]
    assert len(told) == 14 and all(true == recovered for true, recovered in told)  # 13 columns and the label
    everybody = [name for name, left in found.items() if left.recovered == names["ANSWERS"]]
    assert everybody == [
        "a gradient, batch of 1",
        "the same, 7 of the 8 known",
        "a round of 2 updates, batch of 1",
    ]
    assert all(left.recovered == 0 and left.likeness < 0.9 for name, left in found.items() if name not in everybody)


def test_a_plain_loop_becomes_one_call(example):
    alone, together = (example(name)["main"](epochs=4) for name in ("loop.py", "loop_together.py"))
    assert alone.keys() == together.keys()
    assert sum(together.values()) >= sum(alone.values()) - 0.3


def test_small_sites_find_their_own_kind_and_are_better_off_than_alone(example):
    problem = example("sites.py")["problem"]

    def accuracy(algorithm):
        runs = [afo.train(problem(), algorithm=algorithm, seed=seed, progress=False) for seed in range(2)]
        return statistics.fmean(value for run in runs for value in last(run, "accuracy"))

    assert accuracy(afo.AllForOne()) > accuracy(afo.Local()) > accuracy(afo.FedAvg())


def test_the_notebook_runs_from_its_first_cell_to_its_last(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = json.loads((EXAMPLES / "first_steps.ipynb").read_text())["cells"]
    scope = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert not cell["outputs"]
            exec("".join(cell["source"]), scope)
    assert isinstance(scope["result"], afo.Trained)
    assert (tmp_path / "out" / "report.html").exists() and (tmp_path / "out" / "schools").is_dir()
