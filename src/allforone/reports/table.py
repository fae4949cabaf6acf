"""The table of a comparison, for the terminal."""

from typing import Any

from rich import box
from rich.table import Table

#: key in the summary → (title, whether lower is better, factor, format)
COLUMNS = {
    "log10_excess_loss": ("log10 excess", True, 1, ".1f"),
    "test_accuracy": ("accuracy %", False, 100, ".1f"),
    "test_loss": ("loss", True, 1, ".2f"),
}


def shown_columns(summary: dict[str, Any]) -> list[str]:
    """Those that every algorithm has; the plain loss only where nothing tells more."""
    rows = summary["algorithms"].values()
    found = [key for key in COLUMNS if all(row[key] is not None for row in rows)]
    return [key for key in found if key != "test_loss" or found[0] != "log10_excess_loss"]


def best(summary: dict[str, Any], key: str) -> str:
    """The best algorithm that does not know the true clusters."""
    rows = {name: row for name, row in summary["algorithms"].items() if name != "oracle"} or summary["algorithms"]
    sign = 1 if COLUMNS[key][1] else -1
    return min(rows, key=lambda name: sign * rows[name][key]["mean"])


def cell(row: dict[str, Any], key: str, part: str = "mean") -> str:
    _, _, factor, form = COLUMNS[key]
    value = format(factor * row[key][part], form)
    return f"{value} ± {format(factor * row[key]['std'], form)}" if part == "mean" else value


def terminal_table(summary: dict[str, Any]) -> Table:
    keys = shown_columns(summary)
    weighted = ", weighted by data" if summary.get("weighted_by_data") else ""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False, title=summary["problem"], title_justify="left",
                  caption=f"Each client's own model on its own test data, mean ± std over clients and seeds{weighted}. "
                          "worst: the worst client. samples: drawn per client, those for estimation included.",
                  caption_justify="left")
    table.add_column("algorithm", no_wrap=True)
    for key in keys:
        table.add_column(COLUMNS[key][0], justify="right", no_wrap=True)
        if key == keys[0]:
            table.add_column("worst", justify="right", no_wrap=True)
    table.add_column("samples", justify="right", no_wrap=True)
    table.add_column("s", justify="right", no_wrap=True)
    winners = {key: best(summary, key) for key in keys}
    for name, row in summary["algorithms"].items():
        cells = []
        for key in keys:
            value = cell(row, key)
            cells.append(f"[bold green]{value}[/]" if winners[key] == name else value)
            if key == keys[0]:
                cells.append(cell(row, key, "worst_client"))
        table.add_row(name, *cells, f"{row['gradient_samples_per_client']:.0f}", f"{row['seconds']:.2f}")
    return table
