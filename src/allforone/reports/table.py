"""The table of a comparison on the terminal."""

from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from .comparison_table import cells


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
        table.add_column(Text(title), justify="right", no_wrap=True)
    for name, row in rows.items():
        table.add_row(Text(name), *(Text(cell.text, "bold green" if cell.best else "") for cell in row))
    return table
