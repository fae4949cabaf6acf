"""What algorithms are called and how they are drawn: each says so itself."""

import re
from importlib.resources import files

import pytest

from allforone.algorithms import ALGORITHMS
from allforone.reports import style
from allforone.reports.comparison_table import cells
from allforone.runs import Comparison, summarise


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_label_is_the_algorithms_own(name):
    assert style.label(name) == ALGORITHMS[name]().label != name


def test_options_follow_the_label_and_what_is_not_ours_keeps_its_name():
    assert style.label("ditto:penalty=1") == "Ditto, penalty 1"
    assert style.label("my_file.py:algorithm") == "my_file.py:algorithm"
    assert style.label("my_file.py:algorithm:rate=2") == "my_file.py:algorithm, rate 2"
    assert style.label("run") == "This run"


def test_who_is_told_the_clusters_is_dashed_and_never_the_best_of_others(invented_run):
    assert [name for name in ALGORITHMS if style.linestyle(name) == "--"] == ["oracle"]
    runs = [
        invented_run(name, columns={"accuracy": [value] * 4, "loss": [1 - value] * 4})
        for name, value in (("oracle", 0.9), ("local", 0.5), ("mine", 0.7))
    ]
    _, rows = cells(summarise(Comparison("p", runs, None)))
    assert [name for name, row in rows.items() if row[0].best] == ["mine"]
    _, rows = cells(summarise(Comparison("p", runs[:1], None)))
    assert rows["oracle"][0].best


def test_the_page_knows_no_algorithm_and_no_metric_by_its_name():
    parts = files("allforone.reports").joinpath("explorer")
    scripts = "".join(part.read_text() for part in parts.iterdir() if part.name.endswith(".js"))
    for name in (*ALGORITHMS, "accuracy", "excess_loss"):
        assert f'"{name}"' not in scripts and not re.search(rf"\.{name}\b", scripts)
