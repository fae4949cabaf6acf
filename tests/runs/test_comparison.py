import json

import polars
import pytest
import torch

from allforone.algorithms import PAPER_ALGORITHMS
from allforone.runs import Folder
from allforone.runs.summary import statistics

pytestmark = pytest.mark.slow

OPTIONS = ["digits", "-p", "clients=4", "--rounds", "3", "--inner", "2", "--seeds", "1,2"]


@pytest.fixture(scope="module")
def comparison(shared_cli, tmp_path_factory):
    out = tmp_path_factory.mktemp("comparison") / "out"
    code, printed, err = shared_cli("compare", *OPTIONS, "--out", out)
    assert code == 0, err
    return out, printed


def test_a_comparison_gives_table_summary_figures_and_page(comparison):
    out, printed = comparison
    for name in PAPER_ALGORITHMS:
        assert name in printed
    figures = {f"{name}.{kind}" for name in ("curves", "weights") for kind in ("png", "pdf")}
    assert {path.name for path in out.iterdir()} == {"summary.json", "report.html", "runs", *figures}
    for name in figures:
        assert (out / name).read_bytes().startswith(b"\x89PNG" if name.endswith("png") else b"%PDF")


def test_the_summary_is_what_the_runs_say(comparison):
    out, _ = comparison
    summary = json.loads((out / "summary.json").read_text())
    assert summary["problem"] == "digits, clients=4"
    for name, row in summary["algorithms"].items():
        frames = [
            Folder.open(out / "runs" / name / seed).metrics().filter(polars.col("round") == 3) for seed in ("1", "2")
        ]
        together = polars.concat(frames)
        assert row["test_loss"]["mean"] == pytest.approx(together["loss"].mean())
        assert row["test_loss"]["std"] == pytest.approx(together["loss"].std(ddof=0))
        assert row["test_loss"]["worst_client"] == pytest.approx(sum(f["loss"].max() for f in frames) / 2)
        assert row["test_accuracy"]["mean"] == pytest.approx(together["accuracy"].mean())
        assert row["test_accuracy"]["worst_client"] == pytest.approx(sum(f["accuracy"].min() for f in frames) / 2)
        assert row["log10_excess_loss"] is None
        assert row["gradient_samples_per_client"] == together["samples"].mean()
        assert row["seconds"] > 0


def test_processes_give_the_same_as_one_process(comparison, cli, tmp_path):
    out, _ = comparison
    several = ("--algorithms", "all-for-one,local", "--workers", 2)
    assert cli("compare", *OPTIONS, *several, "--out", tmp_path / "parallel")[0] == 0
    one, two = (json.loads((folder / "summary.json").read_text()) for folder in (out, tmp_path / "parallel"))
    assert len(two["algorithms"]) == 2
    for name in two["algorithms"]:
        for key in ("test_loss", "test_accuracy", "gradient_samples_per_client"):
            assert one["algorithms"][name][key] == two["algorithms"][name][key]


def test_clients_can_be_weighted_by_their_data():
    values = torch.tensor([[1.0, 3.0]])
    plain = statistics(values, torch.tensor([[1.0, 1.0]]), worst="max")
    weighted = statistics(values, torch.tensor([[3.0, 1.0]]), worst="max")
    assert plain == {"mean": 2.0, "std": 1.0, "worst_client": 3.0}
    assert weighted["mean"] == 1.5
    assert weighted["std"] == pytest.approx(0.75**0.5)
    seeds = statistics(torch.tensor([[1.0, 3.0], [1.0, 3.0]]), torch.tensor([[3.0, 1.0], [1.0, 3.0]]), worst="max")
    assert seeds["mean"] == 2.0  # every seed by its own clients' sizes


def test_the_option_to_weight_by_data_reaches_the_summary(cli, tmp_path):
    options = (
        "digits",
        "-p",
        "split=dirichlet",
        "-p",
        "clients=4",
        "--rounds",
        1,
        "--seeds",
        "1,",
        "--algorithms",
        "local",
        "--out",
        tmp_path / "out",
    )
    assert cli("compare", *options)[0] == 0
    plain = json.loads((tmp_path / "out" / "summary.json").read_text())
    code, printed, _ = cli("report", tmp_path / "out", "--weighted")
    weighted = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert code == 0
    assert "weighted by" in printed
    assert weighted["weighted_by_data"]
    assert weighted["algorithms"]["local"]["test_loss"] != plain["algorithms"]["local"]["test_loss"]


def test_synthetic_has_excess_loss_and_no_accuracy(cli, tmp_path):
    assert (
        cli(
            "compare",
            "synthetic",
            "-p",
            "clients=4",
            "--rounds",
            3,
            "--seeds",
            "1,",
            "--algorithms",
            "local,oracle",
            "--out",
            tmp_path / "out",
        )[0]
        == 0
    )
    rows = json.loads((tmp_path / "out" / "summary.json").read_text())["algorithms"]
    assert "test_accuracy" not in rows["local"]
    assert rows["oracle"]["log10_excess_loss"]["mean"] < rows["local"]["log10_excess_loss"]["mean"]
    last = Folder.open(tmp_path / "out" / "runs" / "local" / "1").metrics().filter(polars.col("round") == 3)
    logs = last["excess_loss"].log10()
    assert rows["local"]["log10_excess_loss"]["mean"] == pytest.approx(logs.mean())
    assert rows["local"]["log10_excess_loss"]["std"] == pytest.approx(logs.std(ddof=0))


def test_an_algorithm_is_compared_with_what_its_authors_published(cli, tmp_path):
    code, printed, err = cli(
        "compare",
        "digits",
        "-p",
        "clients=4",
        "--rounds",
        3,
        "--seeds",
        "1,",
        "--algorithms",
        "local,ditto,ditto-as-published",
        "--out",
        tmp_path / "out",
    )
    assert code == 0, err
    assert "ditto-as-published" in printed
    rows = json.loads((tmp_path / "out" / "summary.json").read_text())["algorithms"]
    assert rows["ditto-as-published"]["test_loss"] == rows["local"]["test_loss"] != rows["ditto"]["test_loss"]
    assert cli("report", tmp_path / "out")[0] == 0


def test_an_algorithm_is_compared_with_itself_under_other_options(cli, tmp_path):
    options = ("digits", "-p", "clients=4", "--rounds", 3, "--seeds", "1,", "--out", tmp_path / "out")
    code, printed, err = cli("compare", *options, "--algorithms", "local,ditto,ditto:penalty=0")
    assert code == 0, err
    assert "ditto:penalty=0" in printed
    rows = json.loads((tmp_path / "out" / "summary.json").read_text())["algorithms"]
    assert rows["ditto:penalty=0"]["test_loss"] == rows["local"]["test_loss"] != rows["ditto"]["test_loss"]
    assert cli("report", tmp_path / "out")[0] == 0
