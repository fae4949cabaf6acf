"""Paper, ours and, for some algorithms, what the paper's authors ran, side by side."""

from ..reports.style import label
from ..reports.table import Table, plain
from . import printed
from .experiments import AS_PUBLISHED, EXPERIMENTS
from .printed import Pair
from .scores import Scores

WHO = ("paper", "ours", "as published", "as averaged by the authors")
#: Behind a number that differs from the paper's by more than the deviation that it prints, and what it says.
STRAYS, SAID = "*", "* further from print than the deviation that the paper prints"
Found = dict[str, dict[str, Scores]]  #: by problem and algorithm


def side_by_side(found: Found, deviations: bool = False, by_authors: Found | None = None) -> dict[str, Table]:
    """For accuracy and loss: algorithms × (problem: paper, ours, as published, and what was run as the authors ran it
    once more, by their average), each as train / test."""
    papers = {
        "accuracy %": (
            printed.ACCURACY_STD if deviations else printed.ACCURACY,
            "accuracy_std" if deviations else "accuracy",
            ".1f",
        ),
        "log10 loss": ({} if deviations else printed.LOG_LOSS, "log_loss_std" if deviations else "log_loss", ".2f"),
    }
    every = (name for of in found.values() for name in of)
    names = list(dict.fromkeys(name for name in every if name not in AS_PUBLISHED.values()))
    heads = ["train / test", *(f"{EXPERIMENTS[problem].title}: {who}" for problem in found for who in WHO)]
    tables = {}
    for title, (paper, field, form) in papers.items():
        rows = []
        for name in names:
            cells = []
            for problem, of in found.items():
                averaged, variant = (by_authors or {}).get(problem, {}), AS_PUBLISHED.get(name, "")
                shown = (of.get(name), of.get(variant), averaged.get(variant, averaged.get(name)))
                pairs = (paper.get(name, {}).get(problem), *(getattr(each, field) if each else None for each in shown))
                cells += [_cell(pair, form) for pair in pairs]
                if paper is printed.ACCURACY:
                    cells[-1] = _cell(pairs[-1], form, _strays(pairs[0], pairs[-1], name, problem))
            rows.append([label(name), *cells])
        told = SAID if any(STRAYS in cell for row in rows for cell in row) else ""
        tables[title] = Table(heads, plain(rows), title + (", standard deviation" if deviations else ""), told)
    return tables


def by_problem(table: Table) -> list[Table]:
    """One table of each problem, so that it fits a terminal."""
    parts = []
    for first in range(1, len(table.heads), len(WHO)):
        shown = slice(first, first + len(WHO))
        rows = [[row[0], *row[shown]] for row in table.rows]
        title = f"{table.heads[first].partition(':')[0]}: {table.title}"
        parts.append(Table([table.heads[0], *WHO], rows, title, table.caption))
    return parts


def _strays(paper: Pair | None, ours: Pair | None, name: str, problem: str) -> tuple[bool, bool]:
    """Of the training and of the test accuracy, as printed with one digit."""
    if paper is None or ours is None:
        return False, False
    train, test = (
        abs(round(found, 1) - given) > deviation + 0.01  # which are all of one digit
        for found, given, deviation in zip(ours, paper, printed.ACCURACY_STD[name][problem], strict=True)
    )
    return train, test


def _cell(pair: Pair | None, form: str, marked: tuple[bool, bool] = (False, False)) -> str:
    if pair is None:
        return "–"
    return " / ".join(f"{value:{form}}{STRAYS * mark}" for value, mark in zip(pair, marked, strict=True))
