"""The table of a comparison, for papers and spreadsheets."""

import csv
import io

import pytest
from rich.console import Console

from allforone.reports import comparison_table
from allforone.reports.table import Cell, Table, comma_separated, latex, markdown, plain, terminal
from allforone.runs import Comparison, summarise

pytestmark = pytest.mark.slow


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


def test_names_with_special_letters_stay_text_in_every_format():
    table = Table(["who|how", "%"], [[Cell("a_b|c&d"), Cell("[1]", best=True)]], title="[t]", caption="x_1: $")
    assert r"  a\_b|c\&d & \textbf{[1]} \\" in latex(table) and r"x\_1: \$" in latex(table)
    assert r"| a_b\|c&d | **[1]** |" in markdown(table) and r"| who\|how | % |" in markdown(table)
    assert comma_separated(table) == "who|how,%\na_b|c&d,[1]\n"
    screen = Console(width=40, file=io.StringIO())
    screen.print(terminal(table))
    assert all(text in screen.file.getvalue() for text in ("[t]", "a_b|c&d", "[1]", "x_1: $"))


def test_words_stand_left_and_numbers_right():
    rows = plain([["a", "b"]])
    assert "| --- | ---: |" in markdown(Table(["x", "y"], rows)) and "{lr}" in latex(Table(["x", "y"], rows))
    words = Table(["x", "y"], rows, prose=True)
    assert "| --- | --- |" in markdown(words) and "{ll}" in latex(words)


def test_nothing_is_cut_off_on_a_narrow_terminal():
    screen = Console(width=20, file=io.StringIO())
    screen.print(terminal(Table(["algorithm", "accuracy %"], plain([["all-for-one", "98.76 ± 54.32"]]))))
    assert "…" not in screen.file.getvalue() and "54.32" in screen.file.getvalue()


def test_every_format_says_that_a_comparison_was_guarded(invented_run):
    run = invented_run("all-for-one", 1)
    plain_one, guarded = (
        Comparison("p", [run._replace(config={**run.config, "guard": guard})], None) for guard in (False, True)
    )
    for form, words in (("terminal", "Guarded: "), ("markdown", "Guarded: "), ("latex", "Guarded: "), ("csv", ",true")):
        said, unsaid = (
            comma_separated(table) + table.caption
            for table in (comparison_table(of, form=form) for of in (guarded, plain_one))
        )
        assert words in said and words not in unsaid, form
    assert markdown(comparison_table(guarded, form="markdown")).endswith("has its local model.\n")
    assert "has its local model." in latex(comparison_table(guarded, form="latex"))


def test_a_table_on_the_terminal_looks_like_this():
    heads = ["algorithm", "accuracy %", "worst", "samples"]
    rows = plain([["local", "95.9 ± 2.1", "92.2", "4800"], ["all-for-one-binary", "7.1 ± 1.7", "94.1", "6720"]])
    screen = Console(width=80, file=io.StringIO())
    screen.print(terminal(Table(heads, rows, "digits", "Each client's own model on its own test data, mean ± std.")))
    assert screen.file.getvalue() == (
        "digits                                          \n"
        "                                                \n"
        " algorithm           accuracy %  worst  samples \n"
        " ────────────────────────────────────────────── \n"
        " local               95.9 ± 2.1   92.2     4800 \n"
        " all-for-one-binary   7.1 ± 1.7   94.1     6720 \n"
        "                                                \n"
        "Each client's own model on its own test data,   \n"
        "mean ± std.                                     \n"
    )
