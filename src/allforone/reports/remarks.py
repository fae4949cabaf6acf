"""What a run's user must be told in words: whose gradients were refused, and what the guard found."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import polars

from ..errors import called
from ..runs import verdicts


def remarks(
    metrics: polars.DataFrame, liars: Sequence[int] = (), names: Mapping[int, str | None] = MappingProxyType({})
) -> list[str]:
    """Of a run; what becomes of the models of those who lie is of no interest."""
    honest = metrics.filter(~polars.col("client").is_in(list(liars)))
    return [said for said in (_refused(metrics, names), _guard(honest, names)) if said]


def _refused(metrics: polars.DataFrame, names: Mapping[int, str | None]) -> str | None:
    last = metrics.filter(polars.col("round") == metrics["round"].max(), polars.col("refused") > 0)
    if last.is_empty():
        return None
    senders = ", ".join(
        f"{count} of {called(k, names.get(k))}" for k, count in last.select("client", "refused").iter_rows()
    )
    return f"refused gradients, not finite or of the wrong size: {senders}"


def _guard(metrics: polars.DataFrame, names: Mapping[int, str | None]) -> str | None:
    found = verdicts(metrics)
    if found.is_empty():
        return None
    helped, hurt = found.filter(polars.col("low") > 0), found.filter("alone")
    middle = float(found["gain"].median())  # type: ignore[arg-type]
    said = (
        f"guard: by new data, collaboration {'raises' if middle < 0 else 'lowers'} the loss by "
        f"{100 * abs(middle):.0f} % in the median; of {len(found)} clients it surely helped {len(helped)} "
        f"and hurt {len(hurt)}"
    )
    listed = ", ".join(names.get(client) or str(client) for client in hurt["client"])
    return f"{said}: given their local models were clients {listed}" if len(hurt) else said
