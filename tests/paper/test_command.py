"""`allforone paper`: every figure and table from one command."""

import csv
import json

import numpy as np
import pytest
import torch

from allforone.fleet import Stacked
from allforone.paper import EXPERIMENTS, Scores, by_authors, by_problem, printed, scores, side_by_side
from allforone.paper.scores import judged_on_training_data, train_scores
from allforone.paper.summary import summarise
from allforone.paper.tables import WHO
from allforone.problems import digits
from allforone.runs import Folder, execute, parse, prepare, read_run

from ..problems.test_formats import write_heart

pytestmark = pytest.mark.slow


def read(path):
    return list(csv.reader(path.read_text().splitlines()))


def test_figures_1_and_2_in_their_quick_version(tmp_path, cli):
    code, _, err = cli("paper", "figure1", "--quick", "--out", tmp_path)
    assert code == 0, err
    chosen = ("--quick", "--seeds", "127,", "--algorithms", "local,fedavg,ditto,ditto-as-published")
    code, _, err = cli("paper", "figure2", *chosen, "--out", tmp_path, "--publish", tmp_path / "kept")
    assert code == 0, err
    for name in ("figure1", "figure2"):
        for suffix in (".png", ".pdf"):
            assert (tmp_path / "quick" / (name + suffix)).stat().st_size > 5000
    runs = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("models.safetensors")}
    assert len(runs) == 2 * 4 == len([*(tmp_path / "kept").rglob("summary.json")])
    assert cli("paper", "figure2", *chosen, "--out", tmp_path)[0] == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("models.safetensors")} == runs
    published = ("--from", tmp_path / "kept", "--out", tmp_path / "again")
    for by in ("rounds", "samples", "bytes"):
        code, _, err = cli("paper", "figure2", "--by", by, *published)
        assert code == 0, err
    again = tmp_path / "again" / "figure2.png"
    assert again.read_bytes() == (tmp_path / "quick" / "figure2.png").read_bytes()
    assert {path.name for path in again.parent.glob("*.png")} == {
        *("figure2.png", "figure2-samples.png", "figure2-bytes.png")
    }
    code, _, err = cli("paper", "costs", "--problems", "synthetic-2", *published)
    assert code == 0, err
    rows = {row[0]: row[1:] for row in read(tmp_path / "again" / "costs-synthetic-2.csv")}
    assert rows["algorithm"][0] == "log10 excess" and rows["Local"][1:4] == ["1", "20", "40"]
    assert rows["Local"][5:] == ["0", "0"] and float(rows["FedAvg"][6]) > 0 and "Ditto, as published" in rows
    code, _, err = cli("paper", "figure2", "--by", "minutes", "--out", tmp_path)
    assert code == 2 and "rounds, samples, bytes" in err
    code, _, err = cli("paper", "figure2", "--algorithms", "fedavgg", "--out", tmp_path)
    assert code == 2 and "'fedavgg': not of the paper" in err


def test_tables_have_the_paper_ours_and_as_published_side_by_side(tmp_path, cli, monkeypatch):
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("ALLFORONE_DATA", str(tmp_path / "data"))
    write_heart(tmp_path / "data")
    chosen = "local,fedavg,ditto,all-for-one,fedavg-as-published,ditto-as-published"
    asked = ("--seeds", "127,", "--problems", "heart-disease,ixi")
    options = ("--quick", *asked, "--algorithms", chosen, "--out", tmp_path)
    code, _, err = cli("paper", "table2", *options, "--publish", tmp_path / "kept")
    assert code == 0, err
    assert "left out: ixi" in err
    rows = read(tmp_path / "quick" / "table2-accuracy.csv")
    assert rows[0][1:] == [f"Heart disease: {who}" for who in WHO]
    by_name = {row[0]: row[1:] for row in rows[1:]}
    assert by_name["Local"][0] == "77.8 / 82.1" and by_name["Local"][2] == "–" != by_name["Local"][3]
    assert by_name["Ditto"][2] != "–" and by_name["All-for-one"][0] == "–"
    assert by_name["FedAvg"][2] != "–" and "as published" not in "".join(by_name)
    code, _, err = cli("paper", "table3", *options)
    assert code == 0, err
    assert "\\toprule" in (tmp_path / "quick" / "table3-accuracy.tex").read_text()
    code, _, err = cli("paper", "figure3", *options)
    assert code == 0 and (tmp_path / "quick" / "figure3.png").exists(), err
    published = ("--from", tmp_path / "kept", "--out", tmp_path / "again")
    for name in ("table2", "table3"):
        code, _, err = cli("paper", name, *asked, *published)
        assert code == 0, err
        assert read(tmp_path / "again" / f"{name}-accuracy.csv") == read(tmp_path / "quick" / f"{name}-accuracy.csv")


def test_settings_are_those_of_the_problems_and_missing_data_are_said(tmp_path, cli, monkeypatch):
    monkeypatch.setenv("ALLFORONE_DATA", str(tmp_path))
    write_heart(tmp_path)
    assert cli("paper", "settings", "--out", tmp_path)[0] == 0
    rows = {row[0]: row[1:] for row in read(tmp_path / "settings.csv")}
    assert rows["step size"][4] == "0.01 (printed 0.05)" and rows["decay"][4] == "0 (printed 0.0005)"
    assert rows["step size"][:2] == ["0.25", "0.125"] and rows["rounds"][:2] == ["40", "200"]
    assert rows["clients"][2] == "no data"


def test_without_any_data_the_command_says_how_to_get_them(tmp_path, cli, monkeypatch):
    monkeypatch.setenv("ALLFORONE_DATA", str(tmp_path))
    code, _, err = cli("paper", "table2", "--out", tmp_path)
    assert code == 2 and "allforone data fetch" in err
    code, _, err = cli("paper", "figure3", "--problems", "minst", "--out", tmp_path)
    assert code == 2 and "mnist" in err


def test_train_scores_are_of_all_training_data_without_augmentation_and_are_kept(tmp_path):
    config = parse({"problem": {"name": "digits", "clients": 3}, "rounds": 2, "algorithm": "local"})
    result = execute(prepare(config), tmp_path / "run")
    found = train_scores(tmp_path / "run")
    fleet = Stacked(judged_on_training_data(digits(seed=127, clients=3)), seed=0)
    assert found["loss"] == pytest.approx(fleet.evaluate(result.stacked, fleet.begin(0, range(0))).loss.tolist())
    model, client = result.models[1], result.problem.clients[1]
    inputs, targets = client.train.take(torch.arange(len(client.train)))
    assert found["accuracy"][1] == pytest.approx(float((model(inputs).argmax(1) == targets).double().mean()))
    kept = tmp_path / "run" / "train.json"
    kept.write_text('{"loss": [1, 2, 3], "accuracy": [1, 1, 1]}')
    assert train_scores(tmp_path / "run") == {"loss": [1, 2, 3], "accuracy": [1, 1, 1]}
    for damage in ("", "[", "[1]", "{}", '{"loss": [1], "accuracy": [1]}', '{"loss": 1}', "[" * 100_000):
        kept.write_text(damage)
        assert train_scores(tmp_path / "run") == found == train_scores(tmp_path / "run"), damage


def test_deviations_stand_where_means_stood_and_the_paper_prints_none_for_losses():
    score = Scores((90.0, 80.0), (1.0, 2.0), (-1.0, -0.5), (0.1, 0.2))
    means, deviations = (side_by_side({"mnist": {"local": score}}, std) for std in (False, True))

    def first(table):
        return [cell.text for cell in table.rows[0]]

    assert first(means["accuracy %"]) == ["Local", "100.0 / 99.1", "90.0 / 80.0", "–", "–"]
    assert first(deviations["accuracy %"]) == ["Local", "0.0 / 0.4", "1.0 / 2.0", "–", "–"]
    assert first(deviations["log10 loss"]) == ["Local", "–", "0.10 / 0.20", "–", "–"]


def test_on_a_terminal_every_problem_has_a_table_of_its_own():
    score = Scores((90.0, 80.0), (1.0, 2.0), (-1.0, -0.5), (0.1, 0.2))
    wide = side_by_side({"mnist": {"local": score}, "ixi": {"local": score}})["accuracy %"]
    mnist, ixi = by_problem(wide)
    assert (mnist.title, ixi.title) == ("Mnist: accuracy %", "Ixi: accuracy %")
    assert [*mnist.heads] == [*ixi.heads] == ["train / test", *WHO]
    assert [cell.text for cell in ixi.rows[0]] == ["Local", "97.3 / 97.3", "90.0 / 80.0", "–", "–"]


def test_the_accuracy_of_the_tables_is_the_first_metric_whatever_its_name_over_those_of_whom_it_is_known(tmp_path):
    path = tmp_path / "runs" / "local" / "127"
    config = parse({"problem": {"name": "digits", "clients": 3}, "rounds": 1, "algorithm": "local"})
    execute(prepare(config), path)
    folder = Folder(path)
    metrics = folder.metrics().rename({"accuracy": "dice"})
    last = metrics.filter(metrics["round"] == 1)["dice"].to_list()
    metrics.write_csv(path / "metrics.csv")
    for checkpoint in folder.checkpoints:  # which know what the files were
        checkpoint.unlink()
    written = (path / "config.yaml").read_text()
    (path / "config.yaml").write_text(written.replace("\n  accuracy:", "\n  dice:"))
    (path / "train.json").write_text(json.dumps({"loss": [1, 1, 1], "dice": [0.5, None, 0.5]}))
    kept = [summarise("local", read_run(path), path, trained=True)]
    found = scores(kept)["local"]
    sizes = [client["size"] for client in folder.clients]
    assert found.accuracy == pytest.approx((50, 100 * np.average(last, weights=sizes)))
    assert found.accuracy_std[0] == 0
    theirs = scores(kept, by_authors)["local"]
    assert theirs.accuracy == pytest.approx((50, 100 * np.mean(last[:2])))  # without the last, and all others alike
    assert theirs.accuracy_std[1] == pytest.approx(100 * np.std(last[:2]))


def test_what_their_authors_ran_stands_in_the_row_of_the_baseline():
    ours, theirs = (Scores((value, value), (0, 0), (0, 0), (0, 0)) for value in (90.0, 80.0))
    found = {"mnist": {"ditto": ours, "ditto-as-published": theirs}}
    (line,) = side_by_side(found, by_authors=found)["accuracy %"].rows
    assert [cell.text for cell in line] == ["Ditto", "100.0 / 99.1", "90.0 / 90.0", "80.0 / 80.0", "80.0* / 80.0*"]
    found["mnist"].pop("ditto-as-published")
    (line,) = side_by_side(found, by_authors=found)["accuracy %"].rows
    assert [cell.text for cell in line[3:]] == ["–", "90.0* / 90.0*"]


def test_what_differs_from_print_by_more_than_its_deviation_has_a_star():
    def cells(**accuracy):
        found = {"mnist": {name: Scores(pair, (0, 0), (0, 0), (0, 0)) for name, pair in accuracy.items()}}
        table = side_by_side(found, by_authors=found)["accuracy %"]
        return [row[-1].text for row in table.rows], table.caption

    said = "* further from print than the deviation that the paper prints"
    assert cells(local=(100.0, 98.6)) == (["100.0 / 98.6*"], said)  # printed 100.0 ± 0.0 / 99.1 ± 0.4
    assert cells(fedavg=(97.69, 99.24)) == (["97.7 / 99.2"], "")  # printed 98.9 ± 1.2 / 98.7 ± 0.5
    assert cells(local=(99.9, 98.7), oracle=(1.0, 1.0)) == (["99.9* / 98.7", "1.0 / 1.0"], said)
    found = {"mnist": {"local": Scores((0.0, 0.0), (9.0, 9.0), (9.0, 9.0), (0.0, 0.0))}}
    others = [side_by_side(found, True, found)["accuracy %"], side_by_side(found, False, found)["log10 loss"]]
    assert not any("*" in cell.text for table in others for row in table.rows for cell in row)
    (part,) = by_problem(side_by_side({"mnist": {"local": Scores((0, 0), (0, 0), (0, 0), (0, 0))}})["accuracy %"])
    assert part.caption == ""  # of what is not averaged as they did, nothing is said


def test_what_the_paper_prints_is_copied_right():
    """Against the sentences of its text, and sums over its rows."""
    assert printed.ACCURACY["all-for-one-binary"]["cifar10"] == (69.9, 64.2)
    assert printed.ACCURACY["fedavg"]["mnist"] == (98.9, 98.7)
    assert {name for table in (printed.ACCURACY, printed.LOG_LOSS, printed.ACCURACY_STD) for name in table} == {
        "all-for-one-binary",
        "all-for-one-continuous",
        "local",
        "fedavg",
        "ditto",
        "cobo",
        "wga-bc",
        "apfl",
    }
    assert all(set(row) <= set(EXPERIMENTS) for row in printed.ACCURACY.values())
