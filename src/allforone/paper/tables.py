"""Paper, ours and, for some baselines, what their authors ran, side by side."""

from ..reports.style import label
from ..reports.table import Table, plain
from . import printed
from .experiments import AS_PUBLISHED, EXPERIMENTS
from .scores import Scores

WHO = ("paper", "ours", "as published")


def side_by_side(found: dict[str, dict[str, Scores]], deviations: bool = False) -> dict[str, Table]:
    """For accuracy and loss: algorithms × (problem: paper, ours, as published), each as train / test."""
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
                theirs, variant = paper.get(name, {}).get(problem), of.get(AS_PUBLISHED.get(name, ""))
                ours = getattr(of[name], field) if name in of else None
                cells += [_cell(pair, form) for pair in (theirs, ours, getattr(variant, field) if variant else None)]
            rows.append([label(name), *cells])
        tables[title] = Table(heads, plain(rows), title + (", standard deviation" if deviations else ""))
    return tables


def by_problem(table: Table) -> list[Table]:
    """One table of each problem, so that it fits a terminal."""
    parts = []
    for first in range(1, len(table.heads), len(WHO)):
        shown = slice(first, first + len(WHO))
        rows = [[row[0], *row[shown]] for row in table.rows]
        parts.append(Table([table.heads[0], *WHO], rows, f"{table.heads[first].partition(':')[0]}: {table.title}"))
    return parts


def _cell(pair: tuple[float, float] | None, form: str) -> str:
    return "–" if pair is None else f"{pair[0]:{form}} / {pair[1]:{form}}"
