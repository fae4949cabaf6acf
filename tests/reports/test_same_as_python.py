"""The page and Python know the same: clusters, reasons, gains, names."""

import re

import pytest
import torch

import allforone as afo
from allforone.reports import write_report
from allforone.reports.gains import gains
from allforone.reports.why import REASONS
from allforone.runs import Comparison, read_comparison
from allforone.runs.quantities import quantities

from ..results.sites import hospital, hospitals

pytestmark = pytest.mark.slow
NAMES = ["Geneva", "Hospital of the Holy Spirit, Lucerne", "Bern", "<b>Chur</b>", "Aarau", "7"]


def numbers(text):
    return re.sub(r"\d+(?:\.\d+)?(?:·10\S+)?", "#", text)


@pytest.mark.parametrize("algorithm", [afo.AllForOne(), afo.BySimilarity(), afo.FedAvg()], ids=lambda a: a.name)
def test_page_and_python_give_the_same_reasons_and_clusters(open_page, tmp_path, algorithm):
    present = torch.rand(6, 5, generator=torch.Generator().manual_seed(0)) < 0.8
    problem = afo.digits(clients=5)
    result = afo.train(problem, algorithm=algorithm, rounds=6, participation=lambda step: present[step // 20])
    page = open_page(result.report(tmp_path / "report.html").as_uri())
    for at, number in enumerate(result.tables.rounds if algorithm.name != "fedavg" else [6]):
        shown = page.evaluate("at => partitionAt(current(), Math.min(at, current().rounds.length - 1))", at)
        labels = {int(k): c for c, members in enumerate(result.clusters(number)) for k in members}
        assert shown == [labels[k] for k in range(5)]
        for i in range(5):
            for k in set(range(5)) - {i}:
                verdict, text = page.evaluate("([at, i, k]) => why(current(), at, i, k)", [at, i, k])
                ours = result.why(i, k, number)
                assert (verdict, numbers(text)) == (ours.verdict, numbers(ours.text))
    assert page.troubles == []


def test_a_reason_has_the_numbers_that_were_recorded():
    result = afo.train(hospitals(), rounds=4)
    last = result.tables[-1]
    said = result.why("Hospital A", "Hospital C")
    bias, noise = last.dense("bias")[0, 2], last.dense("noise")[0]
    assert f"its best weight is {float(noise[0] / (noise[0] + noise[2] + bias)):.3g}" in said.text
    assert str(said) == said.text and said.verdict in REASONS
    assert "Hospital C" in said.text and "client 2" not in said.text
    for wrong in (("Hospital A", "Hospital A"), ("Hospital A", "Hospital X")):
        with pytest.raises(afo.InputError):
            result.why(*wrong)
    with pytest.raises(afo.InputError, match="the run has rounds 1 to 4"):
        result.why("Hospital A", "Hospital C", 5)


def test_the_gains_of_the_page_are_those_of_python_and_of_the_plain_table(open_page, report, comparison):
    read, page = read_comparison(comparison), open_page(report.as_uri())
    quantity = quantities(read.metrics)[1]
    found = gains(read, "all-for-one", quantity)
    last = {
        (run.algorithm, run.seed): dict(
            run.metrics.filter(run.metrics["round"] == 5).select("client", "accuracy").rows()
        )
        for run in read.runs
    }
    for gain in found:
        expected = [last["all-for-one", s][gain.client] - last["local", s][gain.client] for s in (1, 2)]
        assert [value for _, value in gain.seeds] == pytest.approx(expected)
        assert (gain.low, gain.high) == pytest.approx((min(expected), max(expected)))
    shown = page.evaluate("gains('all-for-one', data.quantities.find(q => q.name === 'accuracy'))")
    assert [(g["client"], g["mean"]) for g in shown] == [(g.client, pytest.approx(g.mean, abs=1e-4)) for g in found]


def named(count=6):
    problem = afo.digits(clients=count)
    for client, name in zip(problem.clients, NAMES, strict=False):
        client.name = name
    return problem


def test_names_stand_in_heat_map_graph_lists_and_title(open_page, tmp_path):
    result = afo.train(named(), rounds=3)
    page = open_page(result.report(tmp_path / "report.html").as_uri(), viewport={"width": 1400, "height": 900})
    short = ["Geneva", "Hospital of the…", "Bern", "<b>Chur</b>", "Aarau", "7"]
    assert sorted(page.locator("#graph .node text").all_text_contents()) == sorted(short)
    drawn = page.evaluate(
        "(() => { const o = document.querySelector('#matrix canvas').options;"
        " return [...Array(6).keys()].map(r => [o.rowLabel(r), o.columnLabel(r)]) })()"
    )
    assert sorted(row for row, _ in drawn) == sorted(short) == sorted(column for _, column in drawn)
    assert page.locator("#client-title").inner_text() == "Geneva"
    assert page.locator("#partners tbody").inner_text().count("Hospital of the Holy Spirit, Lucerne") == 1
    assert page.locator("#client-choice option").nth(5).inner_text() == "client 7"
    assert page.troubles == []


def test_the_verdict_is_whole_at_1400_pixels_and_a_phone_is_told_to_scroll(open_page, report):
    wide = open_page(report.as_uri(), viewport={"width": 1400, "height": 900})
    for width in ("document.querySelector('#partners').closest('.scroll')", "document.documentElement"):
        assert wide.evaluate(f"{width}.scrollWidth <= {width}.clientWidth")
    assert wide.locator(".sideways").count() == 0
    phone = open_page(report.as_uri(), viewport={"width": 390, "height": 844})
    assert phone.evaluate("document.documentElement.scrollWidth") == 390
    told = phone.locator(".scroll.more").count()
    assert told > 0 and phone.locator(".sideways").count() == told


def test_blocks_of_the_map_are_the_clusters_found_in_its_round(open_page, report):
    page = open_page(report.as_uri())
    for at in range(5):
        page.locator("#slider").fill(str(at))
        order, splits = page.evaluate("(({order, splits}) => [order, splits])(arrangement(current()))")
        found = page.evaluate("partitionAt(current(), chosen.frame)")
        changes = [j for j in range(1, 6) if found[order[j]] != found[order[j - 1]]]
        assert splits == (changes if len(changes) < 5 else [])
        said = page.locator("#agreement-title").inner_text()
        assert f"Found in this round: {len(set(found))} cluster" in said


def test_a_guarded_run_shows_at_the_top_who_was_given_its_local_model(open_page, invented_run, tmp_path):
    run = invented_run(
        "all-for-one",
        columns={"gain": [0.2, -0.5, 0.1, -0.1], "gain_margin": [0.1, 0.1, 0.2, 0.1], "alone": [0, 1, 0, 0]},
    )
    clients = [{**client, "name": name} for client, name in zip(run.clients, NAMES, strict=False)]
    path = write_report(Comparison("p", [run._replace(clients=clients)], None), tmp_path / "report.html")
    page = open_page(path.as_uri())
    card = page.locator(".card", has_text="local model").inner_text()
    assert "1 of 4" in card and NAMES[1] in card
    assert page.locator("#gain svg").count() == 1
    assert "1 of them surely" in page.locator("#benefit-lead").inner_text()
    assert page.troubles == []


def test_a_report_from_python_says_the_real_algorithm_and_seed(open_page, tmp_path):
    result = afo.train(hospitals(), rounds=2, algorithm=afo.Ditto(penalty=0.3), seed=42)
    page = open_page(result.report(tmp_path / "report.html").as_uri())
    assert page.locator("#title").inner_text() == "hospitals"
    assert "seed 42." in page.locator("#lead").inner_text()
    assert page.locator("#table tbody th").inner_text() == "Ditto"


def test_each_number_with_a_letter_has_a_plain_sentence(open_page, report):
    page = open_page(report.as_uri())
    assert "A weight (α) is how much" in page.locator("#collaboration").inner_text()
    assert "The adjusted Rand index says how well" in page.locator("#clusters-note").inner_text()
    assert "Noise: how far off a step" in page.locator("#partners-note").inner_text()
    page.select_option("#algorithm", "all-for-one-binary")
    assert "Similarity (r̂): how much" in page.locator("#partners-note").inner_text()


def test_a_joined_site_is_shown_with_the_others(open_page, tmp_path):
    joined = afo.train(hospitals(), rounds=2).join(hospital("Hospital D", 1, 3), rounds=2)
    page = open_page(joined.report(tmp_path / "report.html").as_uri())
    assert "Hospital D" in page.locator("#graph").text_content()
    assert page.troubles == []
