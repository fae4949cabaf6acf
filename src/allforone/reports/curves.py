"""How a quantity went: mean and standard deviation over clients and seeds, round by round."""

from typing import NamedTuple

import polars

from ..runs import Comparison
from ..runs.summary import LEAST_EXCESS

#: what can be drawn: column → (title, whether lower is better)
QUANTITIES = {
    "log10_excess_loss": ("log₁₀ excess loss", True),
    "accuracy": ("test accuracy", False),
    "loss": ("test loss", True),
}


class Curve(NamedTuple):
    rounds: list[int]
    samples: list[float]  #: drawn per client
    seconds: list[float]
    mean: list[float]
    std: list[float]


def quantities(comparison: Comparison) -> list[str]:
    """Those that every run has; the most telling first."""
    found = []
    for name in QUANTITIES:
        column = "excess_loss" if name == "log10_excess_loss" else name
        if not any(run.metrics[column].null_count() for run in comparison.runs):
            found.append(name)
    return found


def curve(comparison: Comparison, algorithm: str, quantity: str) -> Curve:
    frames = [run.metrics for run in comparison.of(algorithm)]
    value = (
        polars.col("excess_loss").clip(lower_bound=LEAST_EXCESS).log10()
        if quantity == "log10_excess_loss"
        else polars.col(quantity)
    )
    table = (
        polars.concat(frames)
        .with_columns(value.alias("value"))
        .group_by("round")
        .agg(
            polars.col("samples", "seconds").mean(),
            polars.col("value").mean().alias("mean"),
            polars.col("value").std(ddof=0).alias("std"),
        )
        .sort("round")
    )
    return Curve(*(table[name].to_list() for name in ("round", "samples", "seconds", "mean", "std")))
