"""Why one client does or does not use another, as the page says it in a real browser."""

import math
import re

import pytest
import torch

import allforone as afo
from allforone.reports import write_report
from allforone.runs import Comparison
from allforone.runs.history import History

pytestmark = pytest.mark.slow


def test_why_a_partner_is_not_used_is_told_from_what_was_recorded(open_page, invented_run, tmp_path):
    def change(tables):
        for name in ("weights", "similarity"):
            tables[name][:, 0, 1:] = 0
        tables["similarity"][:, 0, 2] = 0.2
        tables["weights"][1, :, 3] = 0
        tables["present"][1, 3] = False

    run = invented_run("all-for-one-binary", 1, tables=("similarity",), threshold=0.3, change=change)
    page = open_page(write_report(Comparison("p", [run], None), tmp_path / "report.html").as_uri())

    def reason(at, i, k):
        return page.evaluate("([at, i, k]) => why(current(), at, i, k)[1]", [at, i, k])

    assert "similarity is 0" in reason(0, 0, 1)
    assert "0.2" in reason(0, 0, 2) and "threshold λ = 0.3" in reason(0, 0, 2)
    assert "absent" in reason(1, 0, 3)
    assert "counts with weight" in reason(0, 1, 2)
    assert page.troubles == []


def test_a_criterion_without_a_known_threshold_is_not_called_similarity_zero(open_page, invented_run, tmp_path):
    def change(tables):
        tables["weights"][:, 0, 1], tables["similarity"][:, 0, 1] = 0, 0.2

    run = invented_run("all-for-one", 1, tables=("similarity",), change=change)
    page = open_page(write_report(Comparison("p", [run], None), tmp_path / "report.html").as_uri())
    assert "similarity 0.2" in page.evaluate("why(current(), 1, 0, 1)[1]")


def test_why_a_partner_is_used_has_the_numbers_of_bias_and_noise(open_page, tmp_path):
    result = afo.train(afo.digits(clients=4), rounds=3, seed=1)
    tables = {name: table.double() for name, table in result.tables.tensors().items()}
    page = open_page(result.report(tmp_path / "report.html").as_uri())
    for at, i, k in [(at, i, k) for at in range(3) for i in range(4) for k in range(4) if i != k]:
        weight, bias, noise = (tables[name][at, i] for name in ("weights", "bias", "noise"))
        alone, best = noise[i], noise[i] / (noise[i] + noise[k] + bias[k])
        expected = {
            r"err by (\S+) times": alone,
            r"could fall to (\S+)\.": alone * noise[k] / (alone + noise[k]),
            r"off by (\S+) \(bias": bias[k],
            r"best weight is (\S+),": best,
            r"which saves (\S+)\.": alone - alone * (noise[k] + bias[k]) / (alone + noise[k] + bias[k]),
            r"it gets (?:only )?(\d\S+)\.": weight[k],
            r"(?:lower|lowered) noise to (\S+?)(?: already|\.(?:\s|$))": (weight.square() * noise).sum(),
        }
        said = page.evaluate("([at, i, k]) => why(current(), at, i, k)[1]", [at, i, k])
        found = {words: re.search(words, said) for words in expected}
        assert sum(match is not None for match in found.values()) >= 4, said
        for words, match in found.items():
            if match:
                assert float(match[1]) == pytest.approx(float(expected[words]), rel=0.01, abs=2e-5), said
    assert page.locator("#partners thead").inner_text().split() == ["partner", "weight", "bias", "noise", "verdict"]
    assert page.troubles == []


def test_every_verdict_of_the_least_error_is_told(open_page, invented_run, tmp_path):
    def change(tables):
        for name, value in (("bias", 5.0), ("noise", 0.4), ("trust", 1.0), ("weights", 0.0)):
            tables[name][:] = value
        first, second, third = ({name: tables[name][at] for name in tables} for at in range(3))
        first["weights"][:] = torch.eye(9)
        first["bias"][~torch.eye(9, dtype=torch.bool)] = torch.nan  # a stream's first round
        second["weights"][0] = torch.tensor([0.4, 0.3, 0.2, 0.08, 0.0, 0.0, 0.0, 0.02, 0.0])
        second["bias"][0] = torch.tensor([0.0, 0.0, 0.1, 1.0, 1.5, 50.0, torch.nan, 0.5, 0.0])
        second["noise"][0, 8] = 40
        second["trust"][0, 3], second["trust"][0, 7] = 0.5, 0.1
        third["weights"][0, 0] = 1
        third["trust"][0, 2] = 0

    run = invented_run("all-for-one", 1, clients=9, tables=("similarity", "bias", "noise", "trust"), change=change)
    page = open_page(write_report(Comparison("p", [run], None), tmp_path / "report.html").as_uri())

    def verdicts(at):
        return [page.evaluate("([at, k]) => why(current(), at, 0, k)", [at, k]) for k in range(1, 9)]

    assert {verdict for verdict, _ in verdicts(0)} == {"not known yet"}
    told = dict(zip(range(1, 9), verdicts(1), strict=True))
    assert [verdict for verdict, _ in told.values()] == [
        "same task",
        "worth its bias",
        "partly let through",
        "others do better",
        "too different",
        "no partner",
        "partly let through",
        "too noisy",
    ]
    assert "As far as can be seen, both have the same task (no bias)" in told[1][1]
    assert "would get 0.16. Only 50 % of that is let through" in told[3][1]
    assert "others have lowered noise to 0.119 already" in told[4][1] and "it gets no weight" in told[4][1]
    alone = dict(zip(range(1, 9), verdicts(2), strict=True))
    assert alone[1][0] == "not worth it" and "so client 0 trains alone" in alone[1][1]
    assert alone[2][0] == "not let through"
    assert page.troubles == []


def test_in_the_first_round_on_streams_nothing_is_known_of_others(open_page, tmp_path):
    result = afo.train(afo.synthetic(clients=3), rounds=2)
    page = open_page(result.report(tmp_path / "report.html").as_uri())
    page.locator("#slider").fill("0")
    assert "Nothing is known of others yet, so client 0 trains alone." in page.locator("#why-text").inner_text()
    assert page.locator("#partners tbody tr").first.inner_text().split("\t")[2:] == ["–", "–", "not known yet"]
    assert page.evaluate("why(current(), 1, 0, 1)[1]").startswith("Alone, client 0's steps err by ")


@pytest.mark.parametrize("huge", [1e30, 1e300, math.inf])
def test_bias_and_noise_beyond_all_bounds_leave_the_page_finite(open_page, invented_run, tmp_path, huge):
    history, eye, present = History(), torch.eye(4, dtype=torch.float64), torch.ones(4, dtype=torch.bool)
    table = huge * torch.ones(4, 4, dtype=torch.float64)
    for number in (1, 2, 3):
        bias = torch.where(eye > 0, 0, table)
        info = afo.algorithms.Info(eye, 1 - bias.clamp(max=1), bias=bias, noise=table, trust=torch.ones_like(eye))
        history.add_info(number, info, present)
    run = invented_run("all-for-one")._replace(tables=history.tables)
    assert history.tables.dense("bias").isfinite().all() and history.tables.dense("noise").isfinite().all()
    page = open_page(write_report(Comparison("p", [run], None), tmp_path / "report.html").as_uri())
    told = page.locator("#why-text").inner_text() + page.locator("#partners").inner_text()
    assert "NaN" not in told and "Infinity" not in told and "–" not in told
    assert "its best weight is 0.333" in told
    assert page.troubles == []
