"""What the page tells of clients on machines."""

import polars
import pytest

from allforone.fleet import Contact
from allforone.reports import write_report
from allforone.reports.page_data import page_data
from allforone.runs import Comparison
from allforone.runs.history import contact_frame

LATE = "no answer within 30 s"


def with_machines(run, absent=((2, "VA", LATE), (3, "VA", "its process died"))):
    away = {(number, site): why for number, site, why in absent}
    frames = [
        contact_frame(
            number,
            [
                Contact(site, away.get((number, site)), 0.5 * number, 1000 * number, 20)
                for site in ("Cleveland", "Hungary", "Switzerland", "VA")
            ],
        )
        for number in (1, 2, 3, 4)
    ]
    return run._replace(sites=polars.concat(frames))


def test_absences_seconds_and_bytes_are_those_of_the_record(invented_run):
    run = with_machines(invented_run("all-for-one", rounds=4))
    (told,) = page_data(Comparison("p", [run], None))["machines"]["all-for-one"]
    assert told["rounds"] == [1, 4]
    first, *_, last = told["sites"]
    assert (first["name"], first["absences"], first["absent"]) == ("Cleveland", 0, [])
    assert (first["seconds"], first["longest"], first["sent"], first["received"]) == (1.25, 2.0, 10000, 80)
    assert last["absent"] == [(2, LATE), (3, "its process died")] and last["absences"] == 2


def test_clients_of_one_process_are_no_machines(invented_run):
    assert page_data(Comparison("p", [invented_run("all-for-one")], None))["machines"] == {"all-for-one": []}


@pytest.mark.slow
def test_the_page_shows_who_was_absent_when_and_why(open_page, invented_run, tmp_path):
    run = with_machines(invented_run("all-for-one", rounds=4))
    page = open_page(write_report(Comparison("p", [run], None), tmp_path / "report.html").as_uri())
    assert page.locator("#machines").is_visible() and page.locator("nav a[href='#machines']").is_visible()
    assert "Most often VA, in 2 rounds of 4; the last reason: its process died." in page.inner_text("#machines-lead")
    assert page.locator("#presence title").all_text_contents() == [f"round 2: {LATE}", "round 3: its process died"]
    assert "2 of 4" in page.inner_text("#machine-table") and "10.0 kB" in page.inner_text("#machine-table")
    assert page.troubles == []


@pytest.mark.slow
def test_the_page_of_one_process_has_no_section_of_machines(open_page, invented_run, tmp_path):
    page = open_page(write_report(Comparison("p", [invented_run("local")], None), tmp_path / "report.html").as_uri())
    assert not page.locator("#machines").is_visible() and not page.locator("nav a[href='#machines']").is_visible()
