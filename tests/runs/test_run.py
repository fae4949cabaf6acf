"""A run and its folder."""

import json

import polars
import pytest
import torch
import yaml
from safetensors.torch import load_file

import allforone as afo
from allforone.algorithms import PAPER_ALGORITHMS
from allforone.runs import Folder, execute, parse, prepare, read_comparison

QUICK = {
    "problem": {"name": "digits", "clients": 4},
    "rounds": 3,
    "inner": 2,
    "algorithm": {"name": "all-for-one-binary", "samples": 20},
}


def test_a_run_folder_holds_all_there_is_to_know(cli, tmp_path):
    out = tmp_path / "run"
    code, printed, _ = cli(
        "run",
        "digits",
        "-p",
        "clients=4",
        "--rounds",
        3,
        "--inner",
        2,
        "--algorithm",
        "all-for-one-binary",
        "-a",
        "samples=20",
        "--lr",
        0.3,
        "--out",
        out,
    )
    assert code == 0
    assert "report.html" in printed
    config = yaml.safe_load((out / "config.yaml").read_text())
    assert config == {
        "problem": {"name": "digits", "clients": 4},
        "rounds": 3,
        "inner": 2,
        "batch_size": 16,
        "seed": 127,
        "algorithm": {"name": "all-for-one-binary", "threshold": 0.1, "samples": 20},
        "optimizer": {"name": "SGD", "lr": 0.3},
        "fleet": {"name": "stacked"},
        "evaluate_every": 1,
        "participation": 1.0,
        "guard": False,
        "metrics": {"accuracy": {"lower_is_better": False, "percent": True, "digits": 1}},
        "identity": {
            "model": {"name": "Sequential", "digest": config["identity"]["model"]["digest"]},
            "loss": "torch.nn.functional.cross_entropy",
            "metrics": {"accuracy": "allforone.problems.metrics._share_right"},
        },
        "title": "digits, clients=4",
    }
    clients = json.loads((out / "clients.json").read_text())
    assert [list(client) for client in clients] == [["name", "size", "cluster", "stream", "fingerprint"]] * 4
    assert len({client["fingerprint"] for client in clients}) == 4
    environment = json.loads((out / "environment.json").read_text())
    assert environment["packages"]["torch"].startswith("2.13.0")
    metrics = Folder.open(out).metrics()
    assert metrics.height == 4 * 4  # rounds 0 to 3, four clients
    last = metrics.filter(polars.col("round") == 3)
    assert last["samples"].to_list() == [3 * (20 + 2 * 16)] * 4
    assert last["weight_sum"].to_list() == pytest.approx([1.0] * 4)
    assert last.select("loss", "accuracy", "collaborators", "seconds").null_count().sum_horizontal().item() == 0
    tables = Folder.open(out).tables()
    assert tables.dense("weights").shape == tables.dense("similarity").shape == (3, 4, 4)
    models = load_file(out / "models.safetensors")
    assert models["0.weight"].shape == (4, 32, 64)


@pytest.mark.parametrize(("name", "samples"), [("all-for-one", 16), ("all-for-one-binary", 64)])
def test_only_the_papers_estimator_looks_at_as_many_samples_as_the_problem_says(name, samples):
    run = prepare(parse({**QUICK, "algorithm": name}))
    assert run.config.algorithm.options["samples"] == samples


def test_the_same_seed_gives_the_same_run_and_another_seed_another(tmp_path):
    def final(name, seed):
        return execute(prepare(parse({**QUICK, "seed": seed})), tmp_path / name).stacked

    one, same, other = final("one", 1), final("same", 1), final("other", 2)
    assert all(one[name].equal(same[name]) for name in one)
    assert not all(one[name].equal(other[name]) for name in one)


def test_both_fleets_write_the_same_metrics(tmp_path):
    frames = []
    for fleet in ("stacked", "loop"):
        execute(prepare(parse({**QUICK, "fleet": fleet})), tmp_path / fleet)
        frames.append(Folder.open(tmp_path / fleet).metrics().drop("seconds"))
    for column in frames[0].columns:
        ours, theirs = (torch.tensor(f[column].fill_null(-1).cast(polars.Float64).to_list()) for f in frames)
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4, msg=column)


def test_yaml_and_options_together_options_win(cli, tmp_path):
    config = tmp_path / "settings.yaml"
    config.write_text(
        "problem: {name: digits, clients: 4}\nrounds: 2\nalgorithm: local\n"
        "optimizer: {name: Adam, lr: 0.01}\nscheduler: {name: StepLR, step_size: 1}\n"
    )
    out = tmp_path / "run"
    assert cli("run", "digits", "--config", config, "--rounds", 1, "--out", out)[0] == 0
    resolved = Folder.open(out).config
    assert (resolved["rounds"], resolved["algorithm"], resolved["optimizer"]) == (
        1,
        {"name": "local"},
        {"name": "Adam", "lr": 0.01},
    )
    assert resolved["problem"]["clients"] == 4
    again = tmp_path / "again"
    assert cli("run", "digits", "--config", out / "config.yaml", "--out", again)[0] == 0
    assert Folder.open(again).config == resolved


def test_rounds_between_evaluations_are_not_judged_but_their_weights_are_kept(tmp_path):
    execute(prepare(parse({**QUICK, "rounds": 5, "evaluate_every": 2})), tmp_path / "run")
    folder = Folder.open(tmp_path / "run")
    assert folder.metrics()["round"].unique().sort().to_list() == [0, 2, 4, 5]
    assert folder.tables().rounds == [1, 2, 3, 4, 5]


OWN = """
import torch
import torch.nn.functional as F
from torch import nn
import allforone as afo

def problem(seed, clients: int = 3):
    torch.manual_seed(seed)
    data = [(torch.randn(20, 5), torch.randn(20, 1)) for _ in range(clients)]
    return afo.Problem(lambda: nn.Linear(5, 1), F.mse_loss, clients=[afo.Client(d, d) for d in data])

fixed = problem(0)
nothing = lambda: 3
data = 3

def fails():
    raise FileNotFoundError("sites.csv")

def needs(path, other: "Unknown" = None):
    return problem(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["problem", "fixed"])
def test_a_users_own_file_runs(cli, tmp_path, name):
    (tmp_path / "mine.py").write_text(OWN)
    code, printed, err = cli("run", f"{tmp_path / 'mine.py'}:{name}", "--rounds", 2, "--out", tmp_path / "run")
    assert code == 0, err
    assert "loss" in printed
    assert (
        cli(
            "compare",
            f"{tmp_path / 'mine.py'}:{name}",
            "--rounds",
            2,
            "--seeds",
            "1,2",
            "--out",
            tmp_path / "comparison",
        )[0]
        == 0
    )
    assert set(json.loads((tmp_path / "comparison" / "summary.json").read_text())["algorithms"]) == {
        *PAPER_ALGORITHMS
    } - {"oracle"}  # no true clusters, so no oracle


def test_a_users_file_takes_options(cli, tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    mine = f"{tmp_path / 'mine.py'}:problem"
    assert cli("run", mine, "-p", "clients=5", "--rounds", 1, "--out", tmp_path / "run")[0] == 0
    assert len(Folder.open(tmp_path / "run").clients) == 5


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mine.py:porblem", "did you mean 'problem'"),
        ("mine.py:nothing", "must return an allforone.Problem"),
        ("other.py:problem", "no such file"),
        ("mine.py:data", "is a int: it must be an allforone.Problem"),
        ("mine.py:fails", "failed: FileNotFoundError: sites.csv"),
        ("mine.py:needs", "'path' is missing"),
    ],
)
def test_a_users_file_that_does_not_fit_is_explained(cli, tmp_path, name, said):
    (tmp_path / "mine.py").write_text(OWN)
    code, _, err = cli("run", tmp_path / name, "--out", tmp_path / "run")
    assert code == 2
    assert said in err
    assert not (tmp_path / "run").exists()


def test_a_users_file_can_import_its_neighbours_and_lie_in_a_folder_with_brackets(cli, tmp_path):
    folder = tmp_path / "a[1]"
    folder.mkdir()
    (folder / "neighbour_of_mine.py").write_text(OWN)
    (folder / "front.py").write_text("from neighbour_of_mine import problem")
    code, printed, err = cli("run", f"{folder / 'front.py'}:problem", "--rounds", 1, "--out", folder / "run[2]")
    assert code == 0, err
    assert str(folder / "run[2]" / "report.html") in printed


def test_a_run_without_a_title_is_called_by_its_problem_and_the_options_given():
    named = prepare(parse({"problem": {"name": "digits", "split": "iid", "clients": 4}})).config.title
    assert named == "digits, split=iid, clients=4"
    assert prepare(parse({"problem": "digits"})).config.title == "digits"


def test_a_run_is_called_by_its_title_and_goes_on_under_another(tmp_path):
    out, quick = tmp_path / "run", {"problem": {"name": "digits", "clients": 4}, "rounds": 1}
    execute(prepare(parse({**quick, "title": "Three sites"})), out)
    assert read_comparison(out).problem == "Three sites"
    execute(prepare(parse({**quick, "title": "Four sites"})), out, resume=True)
    assert read_comparison(out).problem == "Four sites"


def test_advice_is_one_line_on_standard_error_before_a_run_and_can_be_kept_back(cli, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("allforone.algorithms.all_for_one.MANY", 3)
    assert "partners=16" in cli("run", "synthetic", "-p", "clients=4", "--rounds", 1, "--out", tmp_path / "all")[2]
    few = ("-a", "partners=2", "--out", tmp_path / "few")
    assert cli("run", "synthetic", "-p", "clients=4", "--rounds", 1, *few)[2] == ""
    afo.train(afo.synthetic(clients=4), rounds=1)
    assert len(capsys.readouterr().err.splitlines()) == 1
    afo.train(afo.synthetic(clients=4), rounds=1, progress=False)
    assert capsys.readouterr().err == ""
