"""How a quantity went: mean and standard deviation over clients and seeds, round by round."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars

from ..runs import Comparison
from ..runs.quantities import LEAST_EXCESS, Quantity

Array = npt.NDArray[np.float64]


class Curve(NamedTuple):
    rounds: list[int]
    samples: list[float]  #: drawn per client
    seconds: list[float]
    mean: Array  #: over the clients of which it is known; NaN where it is of none
    std: Array


def curve(comparison: Comparison, algorithm: str, quantity: Quantity) -> Curve:
    """Of the quantity, or of its logarithm where its powers of ten are told."""
    value = polars.col("value")
    table = (
        polars.concat(
            run.metrics.select("round", "samples", "seconds", quantity.values(run.metrics).alias("value"))
            for run in comparison.of(algorithm)
        )
        .with_columns(value.clip(lower_bound=LEAST_EXCESS).log10() if quantity.powers else value)
        .group_by("round")
        .agg(
            polars.col("samples", "seconds").mean(),
            value.mean().alias("mean"),
            value.std(ddof=0).alias("std"),
        )
        .sort("round")
    )
    rounds, samples, seconds = (table[name].to_list() for name in ("round", "samples", "seconds"))
    return Curve(rounds, samples, seconds, table["mean"].to_numpy(), table["std"].to_numpy())
