"""The table of a comparison as text for a paper, a page or a spreadsheet: Markdown, LaTeX (booktabs), CSV."""

import csv
import io
from typing import Any

from ..errors import InputError, suggest
from . import style
from .comparison_table import Cell, all_digits, cells

FORMATS = ("terminal", "markdown", "latex", "csv")
LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
}


def plain_table(summary: dict[str, Any], form: str) -> str:
    if form not in FORMATS or form == "terminal":
        raise InputError(f"unknown table format '{form}'; {suggest(form, FORMATS)}")
    return {"markdown": markdown, "latex": latex, "csv": comma_separated}[form](summary)


def markdown(summary: dict[str, Any]) -> str:
    def cell(text: str) -> str:
        return text.replace("|", "\\|")

    titles, rows = cells(summary)
    lines = [["algorithm", *map(cell, titles)], ["---", *["---:"] * len(titles)]]
    lines += [
        [cell(style.label(name)), *(f"**{c.text}**" if c.best else c.text for c in row)] for name, row in rows.items()
    ]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def latex(summary: dict[str, Any]) -> str:
    """Needs \\usepackage{booktabs}."""

    def cell(content: Cell) -> str:
        text = escaped(content.text)
        return rf"\textbf{{{text}}}" if content.best else text

    titles, rows = cells(summary)
    lines = [[escaped(style.label(name)), *map(cell, row)] for name, row in rows.items()]
    body = "".join("  " + " & ".join(line) + " \\\\\n" for line in lines)
    head = "  " + " & ".join(["algorithm", *map(escaped, titles)]) + " \\\\\n"
    columns = "l" + "r" * len(titles)
    return f"\\begin{{tabular}}{{{columns}}}\n  \\toprule\n{head}  \\midrule\n{body}  \\bottomrule\n\\end{{tabular}}\n"


def escaped(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text)


def comma_separated(summary: dict[str, Any]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(all_digits(summary))
    return file.getvalue()
