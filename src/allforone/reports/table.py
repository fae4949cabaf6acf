"""The table of a comparison: its cells, and the terminal's rendering of them."""

from typing import Any, NamedTuple

from rich import box
from rich.table import Table

#: key in the summary → (title, whether lower is better, factor, format)
COLUMNS = {
    "log10_excess_loss": ("log10 excess", True, 1, ".1f"),
    "test_accuracy": ("accuracy %", False, 100, ".1f"),
    "test_loss": ("loss", True, 1, ".2f"),
}


class Cell(NamedTuple):
    text: str
    best: bool = False  #: of the algorithms that do not know the true clusters


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


def terminal_table(summary: dict[str, Any]) -> Table:
    weighted = ", weighted by data" if summary["weighted_by_data"] else ""
    table = Table(
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
        title=summary["problem"],
        title_justify="left",
        caption=f"Each client's own model on its own test data, mean ± std over clients and seeds{weighted}. "
        "worst: the worst client. samples: drawn per client, those for estimation included.",
        caption_justify="left",
    )
    titles, rows = cells(summary)
    table.add_column("algorithm", no_wrap=True)
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    for name, row in rows.items():
        table.add_row(name, *(f"[bold green]{cell.text}[/]" if cell.best else cell.text for cell in row))
    return table
