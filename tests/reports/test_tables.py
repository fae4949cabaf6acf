"""The table of a comparison, for papers and spreadsheets."""

import csv
import io

import pytest

from allforone.runs import Comparison, summarise


@pytest.fixture
def table(cli, comparison):
    def printed(form):
        code, out, err = cli("report", comparison, "--table", form)
        assert code == 0, err
        return out

    return printed


def test_every_format_has_a_line_per_algorithm_and_marks_the_best(table):
    markdown, latex, terminal = table("markdown"), table("latex"), table("terminal")
    assert markdown.count("\n") == 2 + 5 and markdown.count("**") == 2 * 2
    assert latex.count("\\\\") == 1 + 5 and latex.count("\\textbf") == 2
    assert "accuracy \\%" in latex and "$\\pm$" in latex and "±" not in latex
    assert "all-for-one-binary" in terminal


def test_csv_holds_the_summary_with_all_its_digits(table, comparison):
    from allforone.runs import read_comparison

    rows = {row["algorithm"]: row for row in csv.DictReader(io.StringIO(table("csv")))}
    for name, summary in summarise(read_comparison(comparison))["algorithms"].items():
        assert float(rows[name]["test_accuracy_mean"]) == summary["test_accuracy"]["mean"]
        assert float(rows[name]["test_loss_worst_client"]) == summary["test_loss"]["worst_client"]
        assert rows[name]["seeds"] == "1 2"


def test_an_unknown_format_is_told_with_the_known_ones(cli, comparison):
    code, _, err = cli("report", comparison, "--table", "latx")
    assert code == 2 and "did you mean 'latex'" in err


def test_names_with_special_letters_stay_text_in_latex_and_markdown(invented_run):
    from allforone.reports import plain_table

    run = invented_run("a_b|c&d", 1)
    summary = summarise(Comparison("p", [run], None))
    assert r"a\_b|c\&d" in plain_table(summary, "latex")
    assert r"a_b\|c&d" in plain_table(summary, "markdown")
