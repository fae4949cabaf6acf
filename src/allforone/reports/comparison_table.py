"""The table of a comparison: which numbers it shows, and which of them are best."""

from typing import Any, NamedTuple

from ..runs.quantities import EXCESS, LOSS, Quantity, quantities
from . import style


class Cell(NamedTuple):
    text: str
    best: bool = False


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


def all_digits(summary: dict[str, Any]) -> list[list[Any]]:
    """Titles and lines for further computing; a percentage is a share here, and what is not known is empty."""
    parts = [(q.key, part) for q in known(summary) for part in ("mean", "std", "worst_client")]
    costs = ("gradient_samples_per_client", "seconds")
    lines = [
        [
            name,
            *((row[key] or {}).get(part) for key, part in parts),
            *(row[key] for key in costs),
            " ".join(map(str, row["seeds"])),
        ]
        for name, row in summary["algorithms"].items()
    ]
    return [["algorithm", *("_".join(part) for part in parts), *costs, "seeds"], *lines]
