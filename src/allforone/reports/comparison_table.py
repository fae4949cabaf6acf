"""The table of a comparison: which numbers it shows, and which of them are best."""

from typing import Any

from ..runs import Comparison, summarise
from ..runs.quantities import EXCESS, LOSS, Quantity, quantities
from . import style
from .table import Cell, Table, plain

GUARDED = "Guarded: all trained on four fifths of their data, and a client whom collaboration hurt has its local model."


def comparison_table(comparison: Comparison, weighted: bool = False, form: str = "terminal") -> Table:
    """For the terminal with the algorithms' names and an explanation, else with their labels; CSV has all digits."""
    summary = summarise(comparison, weighted)
    if form == "csv":
        return all_digits(comparison, summary)
    said = [GUARDED] if any(run.config.get("guard") for run in comparison.runs) else []
    said += _private(comparison)
    titles, rows = cells(summary)
    if form == "terminal":
        by_data = ", weighted by data" if weighted else ""
        said.insert(0, f"Each client's own model on its own test data, mean ± std over clients and seeds{by_data}.")
        said.insert(1, "worst: the worst client. samples: drawn per client, those for estimation included.")
    return Table(
        ["algorithm", *titles],
        [[Cell(name if form == "terminal" else style.label(name)), *row] for name, row in rows.items()],
        title=comparison.problem,
        caption=" ".join(said),
    )


def _private(comparison: Comparison) -> list[str]:
    """What all runs keep private; where it is some runs' alone, their names tell."""
    found = {tuple(run.config.get("private") or ()) for run in comparison.runs}
    patterns = next(iter(found)) if len(found) == 1 else ()
    return [f"Private, so never sent: {', '.join(patterns)}."] if patterns else []


def cells(summary: dict[str, Any]) -> tuple[list[str], dict[str, list[Cell]]]:
    """The titles, and each algorithm's cells."""
    rows, shown = summary["algorithms"], known(summary)
    if EXCESS in shown:  # says all that the plain loss would
        shown.remove(LOSS)
    winners = {quantity: _best(rows, quantity) for quantity in shown}
    titles = [quantity.head for quantity in shown]
    titles.insert(1, "worst")
    return [*titles, "samples", "s"], {name: _row(name, row, winners) for name, row in rows.items()}


def known(summary: dict[str, Any]) -> list[Quantity]:
    """The loss, and what else any algorithm knows; the most telling first."""
    rows = summary["algorithms"].values()
    return [q for q in quantities(summary["metrics"]) if q is LOSS or any(row[q.key] for row in rows)]


def _best(rows: dict[str, Any], quantity: Quantity) -> str | None:
    """Of the algorithms that are not told the true clusters, if there are others."""
    means = {name: row[quantity.key]["mean"] for name, row in rows.items() if row[quantity.key]}
    candidates = [name for name in means if not style.needs_clusters(name)] or list(means)
    sign = 1 if quantity.lower_is_better else -1
    return min(candidates, key=lambda name: sign * means[name], default=None)


def _row(name: str, row: dict[str, Any], winners: dict[Quantity, str | None]) -> list[Cell]:
    def number(quantity: Quantity, part: str) -> str:
        return quantity.shown((row[quantity.key] or {}).get(part))

    found = [
        Cell(f"{number(q, 'mean')} ± {number(q, 'std')}" if row[q.key] else number(q, "mean"), winner == name)
        for q, winner in winners.items()
    ]
    found.insert(1, Cell(number(next(iter(winners)), "worst_client")))
    return [*found, Cell(f"{row['gradient_samples_per_client']:.0f}"), Cell(f"{row['seconds']:.2f}")]


def all_digits(comparison: Comparison, summary: dict[str, Any]) -> Table:
    """For further computing; a percentage is a share here, and what is not known is empty."""
    parts = [(q.key, part) for q in known(summary) for part in ("mean", "std", "worst_client")]
    costs = ("gradient_samples_per_client", "seconds")
    return Table(
        ["algorithm", *("_".join(part) for part in parts), *costs, "seeds", "guarded"],
        plain(
            [
                name,
                *(str(row[key][part]) if row[key] else "" for key, part in parts),
                *(str(row[key]) for key in costs),
                " ".join(map(str, row["seeds"])),
                str(any(run.config.get("guard") for run in comparison.of(name))).lower(),
            ]
            for name, row in summary["algorithms"].items()
        ),
    )
