"""What an algorithm costs, and what it would have sent, had every client been a machine of its own."""

from typing import NamedTuple

import polars

from ..runs import FinishedRun


class Cost(NamedTuple):
    samples: float  #: drawn per client
    seconds: float  #: of training, here
    messages: float | None  #: of all clients and rounds; None where it is not known what the algorithm sends
    bytes: float | None  #: that were in them
    epsilon: list[float | None] | None  #: spent by each client of its privacy; None: nothing was private


def cost(runs: list[FinishedRun]) -> Cost:
    """The mean over runs of one algorithm."""
    last = [run.metrics.filter(polars.col("round") == polars.col("round").max()) for run in runs]
    messages, size = (_mean([frame[name][0] for frame in last]) for name in ("messages", "bytes"))
    return Cost(
        sum(frame["samples"].to_numpy().mean() for frame in last) / len(runs),
        sum(float(frame["seconds"][0]) for frame in last) / len(runs),
        messages,
        size,
        _spent(last),
    )


def _spent(last: list[polars.DataFrame]) -> list[float | None] | None:
    """The mean over runs, by client; None of those of whom one run does not tell."""
    told = [frame.sort("client")["epsilon"].to_list() for frame in last if "epsilon" in frame.columns]
    spent = [_mean(list(of_client)) for of_client in zip(*told, strict=True)] if len(told) == len(last) else []
    return spent if any(value is not None for value in spent) else None


def _mean(sent: list[float | None]) -> float | None:
    known = [value for value in sent if value is not None]
    return sum(known) / len(known) if len(known) == len(sent) else None
