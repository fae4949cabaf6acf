"""What an algorithm costs, and what it would have sent, had every client been a machine of its own.

A message carries one model or one gradient, both of the model's size; the algorithm says how many it sends.
"""

from typing import NamedTuple

import polars

from ..runs import FinishedRun


class Cost(NamedTuple):
    samples: float  #: drawn per client
    seconds: float  #: of training, here
    messages: float | None  #: of all clients and rounds; None where it is not known what the algorithm sends
    bytes: float | None


def cost(runs: list[FinishedRun]) -> Cost:
    """The mean over runs of one algorithm."""
    last = [run.metrics.filter(polars.col("round") == polars.col("round").max()) for run in runs]
    sent = [frame["messages"][0] for frame in last]
    count = None if None in sent else sum(sent) / len(runs)
    size = runs[0].model_bytes
    return Cost(
        sum(frame["samples"].to_numpy().mean() for frame in last) / len(runs),
        sum(float(frame["seconds"][0]) for frame in last) / len(runs),
        count,
        None if count is None or size is None else count * size,
    )
