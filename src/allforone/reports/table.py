"""A table, written for the terminal, as Markdown, as LaTeX (booktabs) and as CSV."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich import box
from rich.table import Table as TerminalTable
from rich.text import Text

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


class Cell(NamedTuple):
    text: str
    best: bool = False


class Table(NamedTuple):
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""  #: shown on the terminal only: elsewhere the text around the table says it
    caption: str = ""  #: shown below, except in CSV
    prose: bool = False  #: whether the columns after the first hold words and not numbers


def plain(rows: Iterable[Iterable[str]]) -> list[list[Cell]]:
    """Rows of which no cell is better than another."""
    return [[Cell(text) for text in row] for row in rows]


def terminal(table: Table) -> TerminalTable:
    made = TerminalTable(
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
        title=Text(table.title, "table.title") if table.title else None,
        title_justify="left",
        caption=Text(table.caption, "table.caption") if table.caption else None,
        caption_justify="left",
    )
    for place, head in enumerate(table.heads):
        made.add_column(Text(head), justify="left" if place == 0 or table.prose else "right", overflow="fold")
    for row in table.rows:
        made.add_row(*(Text(cell.text, "bold green" if cell.best else "") for cell in row))
    return made


def markdown(table: Table) -> str:
    def written(cell: Cell) -> str:
        text = cell.text.replace("|", "\\|")
        return f"**{text}**" if cell.best else text

    heads = [Cell(head) for head in table.heads]
    rule = [Cell("---" if place == 0 or table.prose else "---:") for place in range(len(heads))]
    lines = ["| " + " | ".join(map(written, row)) + " |\n" for row in (heads, rule, *table.rows)]
    return "".join([*lines, f"\n{table.caption}\n" if table.caption else ""])


def latex(table: Table) -> str:
    """Needs \\usepackage{booktabs}."""

    def written(cell: Cell) -> str:
        return rf"\textbf{{{escaped(cell.text)}}}" if cell.best else escaped(cell.text)

    head, *body = (
        "  " + " & ".join(map(written, row)) + " \\\\\n" for row in (list(map(Cell, table.heads)), *table.rows)
    )
    columns = "l" + ("l" if table.prose else "r") * (len(table.heads) - 1)
    below = f"\\par\\smallskip{{\\small {escaped(table.caption)}\\par}}\n" if table.caption else ""
    return (
        f"\\begin{{tabular}}{{{columns}}}\n  \\toprule\n{head}  \\midrule\n{''.join(body)}  \\bottomrule\n"
        f"\\end{{tabular}}\n{below}"
    )


def escaped(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text)


def comma_separated(table: Table) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([table.heads, *([cell.text for cell in row] for row in table.rows)])
    return file.getvalue()
