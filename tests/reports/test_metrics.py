"""Metrics of the user's own: as many as there are, under the names that they were given, wherever a run is shown."""

import csv
import io
import math
from functools import partial

import numpy as np
import polars
import pytest
import torch
from rich.console import Console
from torch import nn

import allforone as afo
from allforone import progress, tensorboard
from allforone.catalogue import FORMATS
from allforone.reports import comparison_table, draw_figures, write_report
from allforone.reports.comparison_table import cells
from allforone.runs import Comparison, Folder, Given, execute, parse, prepare, read_comparison, read_run, summarise
from allforone.runs.quantities import EXCESS, LOSS, quantities
from allforone.runs.summary import statistics

ROUNDS = 4
LABELS = {"All-for-one": "all-for-one", "Local": "local", "FedAvg": "fedavg"}


def share_wrong(output, target):
    return (output.argmax(1) != target).double().mean()


def auc(output, target):
    """How often a sample of class 1 has the higher score; not defined where there is one class only."""
    scores = output[:, 1] - output[:, 0]
    above = (scores[target == 1][:, None] > scores[target == 0]).double()
    return above.mean() if above.numel() else math.nan


METRICS = {
    "accuracy": afo.accuracy,
    "wrong <answers>": afo.Metric(share_wrong, lower_is_better=True, percent=True, digits=2),
    "AUC": auc,
}


def client(number):
    """Two classes that overlap, seen from two sides; client 2 is judged on one class only."""
    random = torch.Generator().manual_seed(number)
    inputs = torch.randn(80, 3, generator=random)
    targets = (inputs[:, number % 2] + torch.randn(80, generator=random) > 0).long()
    judged = targets[40:] == 1 if number == 2 else slice(None)
    return afo.Client((inputs[:40], targets[:40]), (inputs[40:][judged], targets[40:][judged]), cluster=number % 2)


def problem():
    clients = [client(number) for number in range(4)]
    return afo.Problem(partial(nn.Linear, 3, 2), nn.functional.cross_entropy, metrics=METRICS, clients=clients)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A comparison that was made from Python: three algorithms, three metrics."""
    out = tmp_path_factory.mktemp("metrics") / "out"
    for algorithm in (afo.AllForOne(), afo.Local(), afo.FedAvg()):
        place = out / "runs" / algorithm.name / "127"
        afo.train(problem(), algorithm=algorithm, rounds=ROUNDS, inner=2, out=place)
    return out


def one_round():
    return prepare(parse({"problem": "python", "rounds": 1, "algorithm": "local"}), Given(problem=problem()))


def final(folder, algorithm, metric):
    metrics = Folder(folder / "runs" / algorithm / "127").metrics()
    return metrics.filter(polars.col("round") == ROUNDS).sort("client")[metric].to_list()


def test_metrics_csv_has_a_column_of_each_name(folder):
    metrics = read_run(folder / "runs" / "local" / "127").metrics
    assert metrics.columns[2:6] == ["loss", "accuracy", "wrong <answers>", "AUC"]
    assert metrics["accuracy"].to_list() == pytest.approx((1 - metrics["wrong <answers>"]).to_list())


def test_what_is_unknown_of_one_client_is_null_and_the_mean_is_over_the_others(folder):
    values = final(folder, "local", "AUC")
    assert values[2] is None and None not in values[:2] + values[3:]
    found = summarise(read_comparison(folder))["algorithms"]["local"]["test_AUC"]
    known = [value for value in values if value is not None]
    assert found == pytest.approx({"mean": np.mean(known), "std": np.std(known), "worst_client": min(known)})


def test_tables_have_a_column_for_each_in_every_format(folder, capsys):
    comparison = read_comparison(folder)
    printed = {form: write(comparison_table(comparison, form=form)) for form, write in FORMATS.items()}
    titles, rows = cells(summarise(comparison))
    assert titles == ["accuracy %", "worst", "loss", "wrong <answers> %", "AUC", "samples", "s"]
    wrong = 100 * np.array(final(folder, "local", "wrong <answers>"))
    assert rows["local"][3].text == f"{wrong.mean():.2f} ± {wrong.std():.2f}"
    Console(width=120).print(printed["terminal"])
    head = next(line for line in capsys.readouterr().out.splitlines() if "algorithm" in line)
    assert head.split() == " ".join(["algorithm", *titles]).split()
    assert "wrong <answers> % | AUC" in printed["markdown"]
    assert r"wrong <answers> \% & AUC" in printed["latex"]
    line = next(csv.DictReader(io.StringIO(printed["csv"])))
    assert float(line["test_AUC_mean"]) == summarise(comparison)["algorithms"]["all-for-one"]["test_AUC"]["mean"]


def test_the_lowest_is_best_where_lower_is_better(invented_run):
    readings = {"error": {"lower_is_better": True}, "score": {}}
    runs = [
        invented_run(name, metrics=readings, columns={"loss": [None] * 4, "error": [value] * 4, "score": [value] * 4})
        for name, value in (("a", 0.2), ("b", 0.1), ("c", 0.3))
    ]
    titles, rows = cells(summarise(Comparison("p", runs, None)))
    best = {title: [name for name, row in rows.items() if row[place].best] for place, title in enumerate(titles)}
    assert (best["error"], best["score"], best["loss"]) == (["b"], ["c"], [])
    assert rows["a"][titles.index("loss")].text == "–"


def test_the_worst_client_has_the_largest_value_where_lower_is_better():
    one, two = quantities({"error": {"lower_is_better": True}, "score": {}})[1], quantities({"score": {}})[1]
    values, sizes = torch.tensor([[1.0, math.nan, 3.0]]), torch.ones(1, 3)
    assert statistics(values, sizes, one.worst)["worst_client"] == 3
    assert statistics(values, sizes, two.worst)["worst_client"] == 1
    assert statistics(torch.full((2, 3), math.nan), torch.ones(2, 3), "max") is None


def test_clients_absent_in_the_last_round_count_with_what_is_last_known_of_them(tmp_path):
    def here(step):
        return torch.tensor([True, step < 2, True])

    path = tmp_path / "run"
    result = afo.train(afo.digits(clients=3), rounds=3, inner=1, participation=here, algorithm=afo.Local(), out=path)
    accuracy = {(row["round"], row["client"]): row["accuracy"] for row in result.metrics.to_dicts()}
    assert accuracy[3, 1] is None
    expected = np.mean([accuracy[3, 0], accuracy[2, 1], accuracy[3, 2]])
    found = summarise(read_comparison(path))["algorithms"]["local"]["test_accuracy"]
    assert found["mean"] == pytest.approx(expected)


@pytest.mark.slow
def test_a_client_that_was_never_judged_is_left_out_of_table_page_and_figures(open_page, invented_run, tmp_path):
    unknown = {"loss": [0.5, None, 0.7, 0.9], "accuracy": [None, None, 0.5, 0.7], "auc": [None] * 4}
    readings = {"accuracy": {"percent": True, "digits": 1}, "auc": {}}
    runs = [
        invented_run("all-for-one", metrics=readings, columns=unknown, tables=("similarity",)),
        invented_run("local", metrics=readings, columns={**unknown, "accuracy": [None] * 4}),
    ]
    comparison = Comparison("p", runs, None)
    titles, rows = cells(summarise(comparison))
    assert titles == ["accuracy %", "worst", "loss", "samples", "s"]
    assert [cell.text for cell in rows["all-for-one"][:3]] == ["60.0 ± 10.0", "50.0", "0.70 ± 0.16"]
    assert [cell.text for cell in rows["local"][:2]] == ["–", "–"]
    assert all(path.stat().st_size > 1000 for path in draw_figures(comparison, tmp_path))
    page = open_page(write_report(comparison, tmp_path / "report.html").as_uri())
    assert page.locator("#curves .curve").count() == 1
    assert "Local –" in page.locator("#cards").inner_text()
    for client in range(4):
        page.select_option("#client-choice", str(client))
    page.select_option("#quantity", "loss")
    page.check("input[name=scale][value=log]")
    assert page.locator("#curves .curve").count() == 2
    assert page.evaluate("gains('all-for-one', quantity()).length") == 3
    assert "NaN" not in page.locator("main").inner_html()
    assert page.troubles == []


def test_the_page_offers_every_metric_and_stars_by_its_direction(open_page, folder, tmp_path):
    page = open_page(write_report(read_comparison(folder), tmp_path / "report.html").as_uri())
    offered = page.locator("#quantity option").all_inner_texts()
    assert offered == ["test accuracy", "test loss", "test wrong <answers>", "test AUC"]
    heads = page.locator("#table thead th").all_inner_texts()
    for place, name in ((1, "accuracy"), (4, "wrong <answers>")):
        means = {label: np.mean(final(folder, key, name)) for label, key in LABELS.items()}
        best = (min if name == "wrong <answers>" else max)(means, key=means.get)
        assert heads[place].startswith(name)
        starred = page.locator("#table tbody tr", has=page.locator(f"td:nth-child({place + 1}).best"))
        assert starred.locator("th").inner_text() == best
    for name in ("wrong <answers>", "AUC"):
        page.select_option("#quantity", name)
        assert page.locator("#curves svg").get_attribute("aria-label").startswith(f"test {name} by round")
        assert page.locator("#curves .curve").count() == 3
        assert page.locator("input[name=scale][value=log]").is_disabled()
        gained = page.evaluate("gains('all-for-one', quantity()).map(g => [g.client, g.mean])")
        sign = -1 if name == "wrong <answers>" else 1
        for client, gain in gained:
            ours, alone = (final(folder, algorithm, name)[client] for algorithm in ("all-for-one", "local"))
            assert gain == pytest.approx(sign * (ours - alone), abs=1e-6)
        assert len(gained) == (4 if name == "wrong <answers>" else 3)
    assert page.troubles == []


def test_tensorboard_has_mean_worst_and_every_client_that_is_known(tmp_path):
    pytest.importorskip("tensorboard", reason="allforone[tensorboard] is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = one_round()
    with tensorboard.scalars(tmp_path / "tensorboard", run.config.metrics) as on_round:
        result = execute(run, on_round=on_round)
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    metrics = result.metrics.filter(polars.col("round") == 1)

    def last(tag):
        return events.Scalars(tag)[-1].value

    for name, worst in (("accuracy", "min"), ("wrong <answers>", "max"), ("AUC", "min"), ("loss", "max")):
        assert last(f"{name}/mean") == pytest.approx(metrics[name].mean(), rel=1e-6)
        assert last(f"{name}/worst") == pytest.approx(getattr(metrics[name], worst)(), rel=1e-6)
        known = {tag for tag in events.Tags()["scalars"] if tag.startswith(f"{name} by client/")}
        assert known == {f"{name} by client/{client}" for client in range(4) if name != "AUC" or client != 2}


def test_progress_names_every_metric_as_it_is_printed(capsys, monkeypatch):
    run, seen = one_round(), []
    metrics = execute(run, on_round=seen.append).metrics.filter(polars.col("round") == 1)
    means = {name: metrics[name].mean() for name in METRICS}
    said = progress.numbers(seen[-1], run.config.metrics)
    assert f"accuracy {100 * means['accuracy']:.1f} %  wrong <answers> {100 * means['wrong <answers>']:.2f} %" in said
    assert f"AUC {means['AUC']:.3f}" in said
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    monkeypatch.setenv("COLUMNS", "200")
    afo.train(problem(), algorithm=afo.Local(), rounds=1)
    assert "AUC" in capsys.readouterr().err


def test_the_most_telling_quantity_comes_first():
    readings = {"auc": {}, "brier": {"lower_is_better": True}}
    assert [q.name for q in quantities(readings)] == ["excess_loss", "auc", "loss", "brier"]
    assert quantities(None) == [EXCESS, LOSS]
