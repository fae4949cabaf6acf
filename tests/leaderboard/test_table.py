"""The leaderboard as tables, and the small files that they are made of."""

import csv
import json

import pytest

from allforone.catalogue import FORMATS
from allforone.errors import InputError
from allforone.leaderboard.settings import Published, Setting
from allforone.leaderboard.summary import added, read, summarise, without_seconds, write
from allforone.leaderboard.table import groups, narrow, overall_table, setting_table, written

from .by_hand import comparison, run

HELD = [[2.0, 2.0, 2.0], [1.0, 1.0, 1.0]]
HELD_BY_TWO = [[2.0, 2.0], [1.0, 1.0]]


def summary(name="digits-iid", better=0.1, published=None, seeds=(1, 2)):
    """Of Local, FedAvg, better than it everywhere, and the oracle, better still."""
    alone = {1: [0.5, 0.6, 0.7], 2: [0.4, 0.6, 0.8]}
    gain = {"local": 0.0, "fedavg": better, "oracle": better + 0.05}
    step = {"local": 0.0, "fedavg": 0.01, "oracle": 0.01}
    runs = [
        run(each, seed, [[0.1] * 3, [v + gain[each] + k * step[each] for k, v in enumerate(alone[seed])]], HELD)
        for each in gain
        for seed in alone
    ]
    setting = Setting(name, "by hand", {"name": "digits"}, {"rounds": 2}, seeds=seeds, published=published)
    return summarise(setting, comparison(*runs))


def texts(table):
    return {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}


def test_the_table_of_a_setting_has_rank_both_rounds_worst_site_difference_and_cost():
    table = setting_table(summary())
    rows = texts(table)
    assert [*rows] == ["oracle", "fedavg", "local"]
    assert rows["fedavg"][:5] == ["1", "71.0", "71.0", "55.0", "0/6"]
    assert rows["fedavg"][5].startswith("+11.0 [+")
    assert rows["oracle"][0] == rows["local"][4] == rows["local"][5] == "–"
    assert rows["local"][6:] == ["16", "0", "0.0", "0.5"]
    assert [row[0].text for row in table.rows if row[2].best] == ["fedavg"]  # the oracle is told what others are not


def test_elsewhere_than_on_the_terminal_contestants_are_called_by_their_labels():
    assert {"FedAvg", "Local"} < {*texts(setting_table(summary(), "markdown"))}


def test_on_the_terminal_costs_have_a_table_of_their_own():
    results, costs = narrow(setting_table(summary()))
    assert [*results.heads][-1] == "vs alone" and [*costs.heads] == ["algorithm", "samples", "messages", "MB", "s"]
    assert texts(costs)["local"] == ["16", "0", "0.0", "0.5"]


def test_published_numbers_stand_beside_ours_with_their_rule_and_those_of_others_below():
    table = setting_table(
        summary(published=Published("A, table 2", "best round", {"fedavg": (55.1, 0.8), "x": (9, 1)}))
    )
    assert table.heads[7] == "published"
    assert texts(table)["fedavg"][6] == "55.10 ± 0.80" and texts(table)["local"][6] == "–"
    assert table.caption.endswith("published: A, table 2, best round. Published only: x 9.00 ± 1.00.")


def test_a_contestant_without_all_seeds_is_named():
    assert "fedavg is without seeds 3." in setting_table(summary(seeds=(1, 2, 3))).caption


def test_who_could_have_taken_part_and_did_not_is_named():
    found = summary()["not_run"]  # digits have no head by hand, so that who keeps one private could not
    assert {"ditto", "all-for-one", "cfl"} <= {*found} and not {"local", "fedavg", "oracle", "fedper"} & {*found}
    assert "Not run: all-for-one, " in setting_table(summary()).caption


def test_what_is_published_says_nothing_of_seconds():
    published = without_seconds(summary())
    assert setting_table(summary()).heads[-1] == "s" and setting_table(published).heads[-1] == "MB"
    assert "seconds" in written([summary()], "markdown") and "seconds" not in written([published], "markdown")


def test_settings_of_the_same_data_stand_side_by_side():
    dealt = [summary("one", 0.1), summary("two", -0.1)]
    ((name, table),) = groups(dealt)
    assert name == "digits" and [*table.heads] == ["algorithm", "one", "two"]
    assert texts(table)["fedavg"] == ["71.0", "51.0"] and texts(table)["local"] == ["60.0", "60.0"]
    assert [[cell.best for cell in row[1:]] for row in table.rows if row[0].text == "fedavg"] == [[True, False]]
    assert groups(dealt[:1]) == []


def test_over_all_settings_ranks_are_averaged_and_sure_differences_counted():
    rows = texts(overall_table([summary("one", 0.1), summary("two", -0.1), summary("three", 0.0)]))
    assert rows["fedavg"] == ["1.3", "2", "1", "1", "6/18", "3"]
    assert rows["local"] == ["1.7", "1", "–", "–", "–", "3"]
    assert rows["oracle"][:2] == ["–", "–"]
    assert [*rows] == ["fedavg", "local", "oracle"]


def test_csv_has_a_row_for_each_setting_and_contestant_with_all_digits():
    published = Published("A", "best", {"fedavg": (55.1, 0.8)})
    rows = [*csv.DictReader(written([summary("one", published=published), summary("two")], "csv").splitlines())]
    assert [(row["setting"], row["contestant"]) for row in rows][:4] == [
        *(("one", name) for name in ("oracle", "fedavg", "local")),
        ("two", "oracle"),
    ]
    fedavg = rows[1]
    assert float(fedavg["last"]) == pytest.approx(0.71) and fedavg["seeds"] == "1 2" and fedavg["rank"] == "1"
    assert fedavg["validated_rounds"] == "1 1" and fedavg["published_percent"] == "55.1"
    assert rows[0]["rank"] == rows[3]["published_percent"] == ""


@pytest.mark.parametrize(("form", "mark"), [("markdown", "### one"), ("latex", r"\toprule")])
def test_text_has_all_tables_and_of_several_the_one_over_all(form, mark):
    one, two = (written(given, form) for given in ([summary("one")], [summary("one"), summary("two")]))
    assert mark in one and "All settings" not in one
    assert "All settings" in two and len(two) > 2 * len(one) * 0.9


def test_a_summary_is_read_as_it_was_written_in_the_order_of_the_settings(tmp_path):
    given = [
        summary("zebra"),
        summary("mnist-iid"),
        summary("digits-iid", published=Published("A", "b", {"x": (1, 2)})),
    ]
    for each in given:
        write(each, tmp_path)
    found = read(tmp_path)
    assert [each["setting"] for each in found] == ["digits-iid", "mnist-iid", "zebra"]
    assert found[::-1] == json.loads(json.dumps(given))
    text = (tmp_path / "zebra.json").read_text()
    assert sum(line.lstrip().startswith('"fedavg": {"rank": 1') for line in text.splitlines()) == 1


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"metric": "accuracy", "metrics": {"accuracy": {}}, "contestants": {"a": {}}}']
)
def test_what_is_no_summary_is_named(tmp_path, text):
    (tmp_path / "digits-iid.json").write_text(text)
    with pytest.raises(InputError, match=r"digits-iid\.json: no summary of a setting .* remove it"):
        read(tmp_path)


def test_every_format_can_write_a_setting():
    for form in FORMATS:
        assert FORMATS[form](setting_table(summary(), form))


def in_part(names, seeds=(1, 2)):
    """Of three contestants, a part of the runs."""
    values = {"local": [0.5, 0.6], "fedavg": [0.4, 0.9], "ditto": [0.6, 0.7]}
    runs = [
        run(each, seed, [[0.1] * 2, [value + seed / 100 for value in values[each]]], HELD_BY_TWO)
        for each in names
        for seed in seeds
    ]
    return summarise(Setting("by-hand", "", {"name": "digits"}, {"rounds": 2}, seeds=seeds), comparison(*runs))


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ((("local", "fedavg"),), (("local", "ditto"),)),
        ((("local", "fedavg", "ditto"), (1,)), (("local", "fedavg", "ditto"), (2,))),
        ((("local", "fedavg", "ditto"), (2,)), (("ditto", "local", "fedavg"), (1,))),
    ],
)
def test_what_is_published_in_parts_is_what_is_published_at_once(first, then, tmp_path):
    write(in_part(*first), tmp_path)
    assert added(in_part(*then), read(tmp_path)[0]) == in_part(("local", "fedavg", "ditto"))


def test_runs_of_another_config_or_of_a_summary_without_them_are_not_added():
    new, old = in_part(("local", "ditto")), in_part(("local", "fedavg"))
    assert "fedavg" in added(new, old)["contestants"]
    assert added(new, {**old, "config": {}}) == added(new, {**old, "runs": {}}) == new
    assert added(new, {key: value for key, value in old.items() if key != "runs"}) == added(new, None) == new
