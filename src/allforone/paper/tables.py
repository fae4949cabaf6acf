"""Paper, ours and, for some algorithms, what the paper's authors ran, side by side."""

from ..reports.style import label
from ..reports.table import Table, plain
from . import printed
from .experiments import AS_PUBLISHED, EXPERIMENTS
from .scores import Scores

WHO = ("paper", "ours", "as published", "as averaged by the authors")
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
