"""What the page tells of clients on machines: who was absent when and why, and what it took to ask each."""

from typing import Any

import polars

from ..runs import FinishedRun

#: Absences of a machine that the page holds at most, the latest.
MOST_ABSENCES = 400


def machines(run: FinishedRun) -> dict[str, Any] | None:
    """Of each machine its absences, seconds and bytes; None where all clients were in one process."""
    if run.sites is None or run.sites.is_empty():
        return None
    rounds = run.sites["round"]
    sites = [_machine(name, rows) for (name,), rows in run.sites.group_by("site", maintain_order=True)]
    return {"seed": run.seed, "rounds": [int(rounds.min()), int(rounds.max())], "sites": sites}  # type: ignore[arg-type]


def _machine(name: object, rows: polars.DataFrame) -> dict[str, Any]:
    away = rows.filter(polars.col("why").is_not_null())
    there = rows.filter(polars.col("why").is_null())
    return {
        "name": str(name),
        "rounds": rows.height,
        "absent": away.select("round", "why").tail(MOST_ABSENCES).rows(),
        "absences": away.height,
        "seconds": there["seconds"].median(),
        "longest": there["seconds"].max(),
        "sent": rows["sent"].sum(),
        "received": rows["received"].sum(),
    }
