"""What is asked of a result later: a run of it once more, in which one thing is otherwise."""

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import polars
import torch
from torch import nn

from ..algorithms.guarded import KEPT, judge
from ..errors import InputError, blaming, suggest
from ..fleet import Without, load_row
from ..problems import Client, Problem
from ..problems.calling import called
from ..problems.data import Finite, draw
from ..runs import Start, needs_data
from ..runs.quantities import EXCESS, LOSS, Quantity, quantities
from .again import again
from .trained import Trained

#: Training samples of a newcomer by which it is told whose model suits it.
TRIED = 1000


class Departure(NamedTuple):
    """What the others lose if a site leaves."""

    table: polars.DataFrame  #: client, site, metric, stays and leaves (how each ends), loses (above 0: worse off)
    result: Trained  #: of the run in which it never took part


def join(result: Trained, client: Client, rounds: int | None, out: str | Path | None, progress: bool | None) -> Trained:
    problem = needs_data(result.problem, "join")
    if not isinstance(client, Client):
        raise InputError(f"join: {type(client).__name__} is no client: give an afo.Client(train, test, name=…)")
    if client.name is not None and client.name in result.names:
        raise InputError(f"join: there is a client called {client.name} already; give the new one another name")
    if result.config.private:
        raise InputError("join: a newcomer starts from another's model, of which a part is private; train anew with it")
    newcomer = len(problem.clients)
    nearest = most_similar(result, problem, client)
    models = {name: torch.cat([tensor, tensor[nearest : nearest + 1]]) for name, tensor in result.stacked.items()}
    told = f"{client.name or newcomer} from the model of {result.names[nearest] or nearest}"
    return again(
        result,
        {"rounds": rounds or result.config.rounds, "participation": 1.0, "attack": None},
        out,
        progress,
        problem=replace(problem, clients=[*problem.clients, client]),
        participation=None,
        start=Start(models, result.steps, told),
        learns=newcomer,
    )


@torch.no_grad()
def most_similar(result: Trained, problem: Problem, client: Client) -> int:
    """Whose model has the least loss on data that none of them was trained on."""
    size = min(TRIED, len(client.train)) if isinstance(client.train, Finite) else TRIED
    module = copy.deepcopy(problem.initial_model(result.config.seed)).eval()
    with blaming("the new client: a model or the loss fails on its training data", "Look at its inputs and targets"):
        inputs, targets = draw(
            client.train, size, seed=result.config.seed, client=len(problem.clients), step=0, purpose="join"
        )
        losses = [
            float(problem.loss(called(load_row(module, result.stacked, k), copy.deepcopy(inputs)), targets))
            for k in range(len(problem.clients))
        ]
    known = [loss if math.isfinite(loss) else math.inf for loss in losses]
    return known.index(min(known))


def without(result: Trained, client: int | str, metric: str | None, progress: bool | None) -> Departure:
    problem, number = needs_data(result.problem, "without"), result.number(client)
    if len(problem.clients) < 2:
        raise InputError("without: there is no other client that could lose something")
    participation = result.given.participation
    stays = result.config.participation if participation is None else participation
    absent = Without(stays, number, len(problem.clients), result.config.seed)
    rerun = again(result, None, None, progress, participation=absent)
    quantity = chosen(result, metric)
    table = (
        _last(result, quantity)
        .rename({"value": "stays"})
        .join(_last(rerun, quantity).select("client", polars.col("value").alias("leaves")), on="client")
    )
    sign = 1 if quantity.lower_is_better else -1
    worse = (sign * (polars.col("leaves") - polars.col("stays"))).alias("loses")
    return Departure(table.filter(polars.col("client") != number).with_columns(worse), rerun)


def chosen(result: Trained, metric: str | None) -> Quantity:
    """What models are compared by: the one named, else the most telling that is known."""
    told = quantities(result.config.metrics)
    known = [q for q in told if q.values(result.metrics).count()]
    if metric is None:
        return known[0]
    found = [quantity for quantity in known if quantity.name == metric]
    if not found:
        raise InputError(f"metric '{metric}'; {suggest(metric, [quantity.name for quantity in known])}")
    return found[0]


def _last(result: Trained, quantity: Quantity) -> polars.DataFrame:
    """What is last known of each client."""
    metrics = result.finished.metrics
    last = metrics.filter(polars.col("round") == metrics["round"].max()).sort("client")
    return polars.DataFrame(
        {
            "client": last["client"],
            "site": [result.names[k] or str(k) for k in last["client"]],
            "metric": [quantity.name] * last.height,
            "value": quantity.values(last),
        }
    )


def gains(result: Trained, alone: Trained, metric: str | None) -> polars.DataFrame:
    problem, quantity = needs_data(result.problem, "gains"), chosen(result, metric)
    both = (
        _last(result, quantity).rename({"value": "ours"}).with_columns(_last(alone, quantity)["value"].alias("alone"))
    )
    sign = 1 if quantity.lower_is_better else -1
    gain = (sign * (polars.col("alone") - polars.col("ours"))).alias("gain")
    margins = [_margin(result, alone, problem, k, quantity) for k in range(len(problem.clients))]
    margin = polars.Series("margin", margins, polars.Float64)
    return (
        both.with_columns(gain, margin)
        .with_columns(
            (polars.col("gain") - polars.col("margin")).alias("low"),
            (polars.col("gain") + polars.col("margin")).alias("high"),
        )
        .drop("margin")
    )


@torch.no_grad()
def _margin(result: Trained, alone: Trained, problem: Problem, client: int, quantity: Quantity) -> float | None:
    """Of the paired interval over parts of the test data; None where these are too few, 0 where the loss is known."""
    test = problem.clients[client].test
    if not isinstance(test, Finite):
        return 0.0
    measure: Callable[[Any, Any], Any] = problem.loss if quantity in (LOSS, EXCESS) else problem.metrics[quantity.name]
    ours, theirs = result.model(client), alone.model(client)
    differences = torch.full((1, KEPT), torch.nan, dtype=torch.float64)
    for place, part in enumerate(torch.arange(len(test)).tensor_split(min(KEPT, len(test)))):
        inputs, targets = test.take(part)
        differences[0, place] = _on(measure, ours, inputs, targets) - _on(measure, theirs, inputs, targets)
    margin = float(judge(differences).margin)
    return margin if math.isfinite(margin) else None


def _on(measure: Callable[[Any, Any], Any], model: nn.Module, inputs: Any, targets: Any) -> float:
    """NaN where a part of the data is too small for the measure, as for an area under a curve."""
    try:
        return float(measure(called(model, inputs), targets))
    except Exception:  # of the whole data it was known
        return math.nan
