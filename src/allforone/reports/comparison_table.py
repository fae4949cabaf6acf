"""The table of a comparison: which numbers it shows, and which of them are best."""

from typing import Any

from ..runs import Comparison, summarise
from . import style
from .table import Cell, Table, plain

#: key in the summary → (title, whether lower is better, factor, format)
COLUMNS = {
    "log10_excess_loss": ("log10 excess", True, 1, ".1f"),
    "test_accuracy": ("accuracy %", False, 100, ".1f"),
    "test_loss": ("loss", True, 1, ".2f"),
}

GUARDED = "Guarded: all trained on four fifths of their data, and a client whom collaboration hurt has its local model."


def comparison_table(comparison: Comparison, weighted: bool = False, form: str = "terminal") -> Table:
    """For the terminal with the algorithms' names and an explanation, else with their labels; CSV has all digits."""
    summary = summarise(comparison, weighted)
    if form == "csv":
        return all_digits(comparison, summary)
    said = [GUARDED] if any(run.config.get("guard") for run in comparison.runs) else []
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


def cells(summary: dict[str, Any]) -> tuple[list[str], dict[str, list[Cell]]]:
    """The titles, and each algorithm's cells."""
    rows = summary["algorithms"]
    keys = [key for key in COLUMNS if all(row[key] is not None for row in rows.values())]
    if keys[0] == "log10_excess_loss":  # says all that the plain loss would
        keys.remove("test_loss")
    winners = {key: _best(rows, key) for key in keys}
    titles = [COLUMNS[key][0] for key in keys]
    titles.insert(1, "worst")
    return [*titles, "samples", "s"], {name: _row(name, row, keys, winners) for name, row in rows.items()}


def _best(rows: dict[str, Any], key: str) -> str:
    """Of the algorithms that do not know the true clusters."""
    candidates = {name: row for name, row in rows.items() if name != "oracle"} or rows
    sign = 1 if COLUMNS[key][1] else -1
    return str(min(candidates, key=lambda name: sign * candidates[name][key]["mean"]))


def _row(name: str, row: dict[str, Any], keys: list[str], winners: dict[str, str]) -> list[Cell]:
    def number(key: str, part: str) -> str:
        _, _, factor, form = COLUMNS[key]
        return format(factor * row[key][part], form)

    found = [Cell(f"{number(key, 'mean')} ± {number(key, 'std')}", winners[key] == name) for key in keys]
    found.insert(1, Cell(number(keys[0], "worst_client")))
    return [*found, Cell(f"{row['gradient_samples_per_client']:.0f}"), Cell(f"{row['seconds']:.2f}")]


def all_digits(comparison: Comparison, summary: dict[str, Any]) -> Table:
    """For further computing; an accuracy is a share."""
    rows = summary["algorithms"]
    keys = [key for key in COLUMNS if all(row[key] is not None for row in rows.values())]
    parts = [(key, part) for key in keys for part in ("mean", "std", "worst_client")]
    costs = ("gradient_samples_per_client", "seconds")
    return Table(
        ["algorithm", *("_".join(part) for part in parts), *costs, "seeds", "guarded"],
        plain(
            [
                name,
                *(str(row[key][part]) for key, part in parts),
                *(str(row[key]) for key in costs),
                " ".join(map(str, row["seeds"])),
                str(any(run.config.get("guard") for run in comparison.of(name))).lower(),
            ]
            for name, row in rows.items()
        ),
    )
