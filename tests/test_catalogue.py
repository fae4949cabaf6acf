"""Names: what they stand for, their options, and files of the user."""

from pathlib import Path

import pytest

from allforone import algorithms, catalogue, fleet, paper, problems
from allforone.catalogue import ALGORITHMS, FLEETS, FORMATS, PROBLEMS, absolute, folder_name, label, split_options
from allforone.problems import sources


@pytest.mark.parametrize(
    "names", [ALGORITHMS, PROBLEMS, FLEETS, FORMATS], ids=["algorithms", "problems", "fleets", "formats"]
)
def test_every_name_stands_for_something_that_can_be_called(names):
    assert all(callable(names[name]) for name in names)
    assert len(names) == len(dict(names)) and "nothing" not in names


def test_the_catalogue_knows_what_the_rooms_have():
    assert algorithms.ALGORITHMS is ALGORITHMS and problems.PROBLEMS is PROBLEMS
    assert dict(FLEETS) == dict(fleet.FLEETS)
    assert [*fleet.ATTACKS] == catalogue.ATTACKS
    assert catalogue.DATA_SETS == [*sources.SOURCES] == paper.REAL
    assert {*catalogue.PAPER_ALGORITHMS} < {*ALGORITHMS}
    assert ALGORITHMS["ditto"](penalty=1).penalty == 1


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("ditto", "ditto", []),
        ("ditto:penalty=1:as_published=true", "ditto", ["penalty=1", "as_published=true"]),
        ("decreasing:convexity", "decreasing", ["convexity"]),
        ("my_file.py:algorithm", "my_file.py:algorithm", []),
        ("a/my_file.py:algorithm:penalty=1", "a/my_file.py:algorithm", ["penalty=1"]),
        ("ray:address=ray://host:10001:nodes=2", "ray", ["address=ray://host:10001", "nodes=2"]),
        ("ditto:read=my_file.py:algorithm", "ditto", ["read=my_file.py:algorithm"]),
        (r"C:\sites\my_file.py:problem", r"C:\sites\my_file.py:problem", []),
    ],
)
def test_options_follow_a_name_or_a_file_and_their_values_may_hold_colons(text, name, options):
    assert split_options(text) == (name, options)


def test_a_users_file_is_found_from_anywhere_shown_without_its_folder_and_names_a_folder():
    text = "sites/my_file.py:algorithm:penalty=1"
    assert absolute(text) == f"{Path.cwd()}/{text}" and absolute("ditto:penalty=1") == "ditto:penalty=1"
    assert label(absolute(text)) == "my_file.py:algorithm:penalty=1" and label("ditto:penalty=1") == "ditto:penalty=1"
    assert folder_name(absolute(text)) == "my_file.py_algorithm_penalty=1"
    assert folder_name("ray:address=ray://host:1") == "ray_address=ray___host_1"
