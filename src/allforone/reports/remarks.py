"""What a run's user must be told in words: whose gradients were dropped, and what the guard found."""

import math

import polars

from ..runs import verdicts


def remarks(metrics: polars.DataFrame) -> list[str]:
    return [said for said in (_dropped(metrics), _guard(metrics)) if said]


def _dropped(metrics: polars.DataFrame) -> str | None:
    last = metrics.filter(polars.col("round") == metrics["round"].max(), polars.col("dropped") > 0)
    if last.is_empty():
        return None
    senders = ", ".join(f"{count} of client {client}" for client, count in last.select("client", "dropped").iter_rows())
    return f"dropped gradients, not finite or of the wrong size: {senders}"


def _guard(metrics: polars.DataFrame) -> str | None:
    found = verdicts(metrics)
    if found.is_empty():
        return None
    helped, hurt = found.filter(polars.col("low") > 0), found.filter("alone")
    mean = float(found["gain"].mean())  # type: ignore[arg-type]
    margin = 2 * float(found["gain"].std() or 0) / math.sqrt(len(found))  # type: ignore[arg-type]
    said = (f"guard: by new data, collaboration lowers the loss by {100 * mean:.0f} ± {100 * margin:.0f} % on average; "
            f"of {len(found)} clients it surely helped {len(helped)} and hurt {len(hurt)}")
    return f"{said}: given their local models were clients {_listed(hurt)}" if len(hurt) else said


def _listed(clients: polars.DataFrame) -> str:
    return ", ".join(str(client) for client in clients["client"])
