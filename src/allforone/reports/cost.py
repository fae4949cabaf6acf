"""What an algorithm would have sent, had every client been a machine of its own: counted from who listened to whom.

A message carries one model or one gradient, both of the model's size. Clients that average send their model to a server
and get one back; for a gradient of another client, one sends one's model and gets the gradient back.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..runs import FinishedRun


class Cost(NamedTuple):
    samples: float  #: drawn per client
    seconds: float  #: of training, here
    messages: float | None  #: of all clients and rounds; None where it is not known what the algorithm sends
    bytes: float | None


def cost(runs: list[FinishedRun]) -> Cost:
    """The mean over runs of one algorithm."""
    last = [run.metrics.filter(run.metrics["round"] == run.metrics["round"].max()) for run in runs]
    sent = [messages(run) for run in runs]
    known = [count for count in sent if count is not None]
    count = sum(known) / len(known) if len(known) == len(runs) else None
    size = runs[0].model_bytes
    return Cost(
        sum(float(torch.tensor(frame["samples"].to_list()).double().mean()) for frame in last) / len(runs),
        sum(float(frame["seconds"][0]) for frame in last) / len(runs),
        count,
        None if count is None or size is None else count * size,
    )


def messages(run: FinishedRun) -> int | None:
    tables, algorithm = run.weights, run.config.get("algorithm", {})
    if not tables or "inner" not in run.config:
        return None
    name, inner = str(algorithm.get("name")).replace("-", "").lower(), run.config["inner"]
    weights = tables["weights"]
    present = tables["present"].sum(1) if "present" in tables else torch.full_like(tables["rounds"], weights.shape[1])
    pairs, every_pair = listened(weights), present * (present - 1)
    if "similarity" in tables:
        online = "trust" in tables or algorithm.get("name") == "all-for-one"
        if online and "every" not in algorithm and algorithm.get("name") != "all-for-one":
            return None  # started from Python: its folder does not tell how often it looked
        every = int(algorithm.get("every", 1)) if online else None
        return int((2 * inner * pairs).sum() + _looking(tables["rounds"], pairs, every_pair, every))
    if name in ("fedavg", "fedavgfinetune", "ditto", "apfl"):
        return int((2 * present).sum())
    if name == "ifca":
        return int(((1 + int(algorithm.get("clusters", 2))) * present).sum())
    if name in ("local", "oracle"):
        return int((2 * inner * pairs).sum())
    if name == "wgabc":
        return int((2 * inner * every_pair).sum())
    if name == "cobo":  # models both ways and one gradient per pair, then the models of every further update
        return int((3 * every_pair // 2 + (inner - 1) * pairs).sum())
    return None


def _looking(rounds: Tensor, pairs: Tensor, every_pair: Tensor, every: int | None) -> Tensor:
    """What estimating similarity sends beyond the round's updates, whose first models are there already."""
    unused = (every_pair - pairs).clamp(min=0)
    if every is None:  # on fresh samples: a gradient of everybody more
        return (unused + every_pair).sum()
    return (2 * unused * ((rounds - 1) % every == 0)).sum()  # on the update's own batches: of those not listened to


def listened(weights: Tensor) -> Tensor:
    """[R], how many ordered pairs of different clients have a weight."""
    return (weights != 0).sum((1, 2)) - (weights.diagonal(dim1=1, dim2=2) != 0).sum(1)
