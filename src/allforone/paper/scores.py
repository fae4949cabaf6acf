"""Final metric and loss of runs on training and test data, as the paper's tables have them."""

import copy
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..fleet import FLEETS
from ..opening import content_of
from ..problems import Client, Problem
from ..problems.data import Finite
from ..runs import Folder, load_problem, parse
from ..runs.durable import write_text
from ..runs.history import finite

#: Of every client, by name: the loss and the problem's metrics; None where one is not known.
Values = dict[str, list[float | None]]
Pair = tuple[float, float]
#: What is kept of a run; see `summary`.
Summary = dict[str, Any]


class Scores(NamedTuple):
    """Over clients and seeds, weighted by an `Average`: (train, test) of each."""

    accuracy: Pair  #: the problem's first metric, in percent
    accuracy_std: Pair
    log_loss: Pair  #: the mean of log10 of the clients' losses
    log_loss_std: Pair


#: From the clients' sizes [N] to how much each of a run counts.
Average = Callable[[Tensor], Tensor]


def by_data(sizes: Tensor) -> Tensor:
    """Every sample counts the same, as the paper's text has it."""
    return sizes


def by_authors(sizes: Tensor) -> Tensor:
    """Every client counts the same but the last, which does not: what the paper's tables are."""
    counted = torch.ones_like(sizes)
    counted[-1] = 0
    return counted


def scores(summaries: Sequence[Summary], average: Average = by_data) -> dict[str, Scores]:
    """Of every algorithm."""
    names = dict.fromkeys(run["algorithm"] for run in summaries)
    return {name: _scores([run for run in summaries if run["algorithm"] == name], average) for name in names}


def _scores(runs: Sequence[Summary], average: Average) -> Scores:
    parts: list[list[Values]] = [[run[part] for run in runs] for part in ("train", "test")]
    counts = torch.cat([average(torch.tensor(run["sizes"]).double()) for run in runs])

    def over(name: str, shown: Callable[[Tensor], Tensor]) -> tuple[Pair, Pair]:
        """Means and standard deviations of what is known."""
        means, deviations = [], []
        for part in parts:
            each = [torch.nan if value is None else value for found in part for value in found[name]]
            values = shown(torch.tensor(each, dtype=torch.float64))
            known = ~values.isnan()
            share = counts[known] / counts[known].sum()
            mean = (share * values[known]).sum()
            means.append(float(mean))
            deviations.append(float((share * (values[known] - mean).square()).sum().sqrt()))
        return (means[0], means[1]), (deviations[0], deviations[1])

    accuracy, accuracy_std = over(next(iter(runs[0]["config"]["metrics"])), lambda share: 100 * share)
    loss, loss_std = over("loss", lambda loss: loss.clamp(min=1e-12).log10())
    return Scores(accuracy, accuracy_std, loss, loss_std)


def train_scores(path: Path) -> Values:
    """Each client's own final model on all of its training data: computed once, then kept in the folder."""
    kept = path / "train.json"
    with suppress(OSError, ValueError, RecursionError, AttributeError, TypeError):  # missing or damaged: made anew
        scored: Values = json.loads(content_of(kept))
        if {len(values) for values in scored.values()} == {len(Folder(path).clients)}:
            return scored
    folder = Folder.open(path)
    config = parse(folder.config, str(path / "config.yaml"))
    problem = judged_on_training_data(load_problem(config.problem, config.seed))
    fleet = FLEETS["stacked"](problem, seed=config.seed, batch_size=config.batch_size)
    found = fleet.evaluate(folder.models(), fleet.begin(0, range(0)))
    scored = {name: finite(tensor) for name, tensor in {"loss": found.loss, **found.metrics}.items()}
    write_text(kept, json.dumps(scored))
    return scored


def judged_on_training_data(problem: Problem) -> Problem:
    def of(client: Client) -> Client:
        assert isinstance(client.train, Finite)
        judged = copy.copy(client)
        judged.test = client.train.part(torch.arange(len(client.train)), augmented=False)
        return judged

    return replace(problem, clients=[of(client) for client in problem.clients])
