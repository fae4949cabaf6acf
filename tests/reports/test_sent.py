"""Curves by what is sent, in a real browser."""

import pytest

from allforone.reports import write_report
from allforone.reports.page_data import page_data
from allforone.runs import Comparison, compare, plan, read_comparison

ALGORITHMS = ["all-for-one", "all-for-one-round", "local", "fedavg"]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    out = tmp_path_factory.mktemp("sent") / "out"
    base = {"problem": {"name": "digits", "clients": 4}, "rounds": 3, "inner": 5}
    compare(plan(base, ALGORITHMS, [1, 2], out), out, workers=1)
    return read_comparison(out)


def test_the_page_is_told_the_messages_and_bytes_of_every_round(told):
    progress = page_data(told)["progress"]
    assert progress["local"]["bytes"] == [0, 0, 0, 0]
    assert progress["fedavg"]["messages"] == [0, 8, 16, 24]
    assert progress["all-for-one-round"]["messages"] == [0, 24, 48, 72]
    size = progress["fedavg"]["bytes"][1] / 8
    for one in progress.values():
        assert one["bytes"] == [size * messages for messages in one["messages"]]


def test_what_one_seed_does_not_know_is_not_known(invented_run):
    runs = [invented_run("a", seed, columns={"bytes": [size] * 4}) for seed, size in ((1, 1000), (2, None))]
    assert page_data(Comparison("invented", runs, None))["progress"]["a"]["bytes"] == [None] * 4


@pytest.mark.slow
@pytest.mark.parametrize("axis", ["messages", "bytes"])
def test_curves_can_be_drawn_by_what_is_sent_on_a_log_scale_where_algorithms_differ(open_page, told, tmp_path, axis):
    page = open_page(write_report(told, tmp_path / "report.html").as_uri())
    page.select_option("#axis", axis)
    assert f"by {axis} sent by all clients" in page.locator("#curves svg").get_attribute("aria-label")
    lines = {
        line.get_attribute("data-name"): [
            [float(v) for v in point.split(",")] for point in line.get_attribute("points").split()
        ]
        for line in page.locator("#curves .curve").all()
    }
    assert len(lines) == 4
    begin, end = lines["Local"]  # sends nothing: a level line from side to side
    assert begin[1] == end[1] and begin[0] < end[0]
    first, second, last = (x for x, _ in lines["FedAvg"])  # three rounds, the same sent in each, as powers of ten
    assert (second - first) / (last - first) == pytest.approx(0.631, abs=0.01)
    assert lines["All-for-one"][-1][0] == end[0] > lines["All-for-one, one exchange a round"][-1][0] > last
    page.focus("#curves svg")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#tip b").inner_text().startswith(f"{axis} sent by all clients ")
    assert page.locator("#client-curve .curve").count() == 3
    assert page.troubles == []


@pytest.mark.slow
def test_of_one_algorithm_the_axis_is_linear_and_of_one_that_sends_nothing_there_is_none(open_page, told, tmp_path):
    alone, shared = (Comparison("one", told.of(name), None) for name in ("local", "fedavg"))
    page = open_page(write_report(shared, tmp_path / "report.html").as_uri())
    page.select_option("#axis", "bytes")
    points = page.locator("#curves .curve").get_attribute("points").split()
    x = [float(point.split(",")[0]) for point in points]
    assert len(x) == 4 and x[1] - x[0] == pytest.approx(x[3] - x[2], abs=0.2)
    page = open_page(write_report(alone, tmp_path / "alone.html").as_uri())
    page.select_option("#axis", "bytes")
    assert page.locator("#curves").inner_text() == "Nothing is sent, or it is not known how much."
    assert page.troubles == []
