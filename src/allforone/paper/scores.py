"""Final accuracy and loss of a comparison on training and test data, as the paper's tables have them."""

import copy
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import polars
import torch
from torch import Tensor

from ..fleet import FLEETS
from ..problems import Client, Problem
from ..problems.data import Finite
from ..runs import Comparison, Folder, load_problem, parse
from ..runs.summary import read_run


class Scores(NamedTuple):
    """Over clients and seeds, weighted by the clients' data: (train, test) of each."""

    accuracy: tuple[float, float]  #: in percent
    accuracy_std: tuple[float, float]
    log_loss: tuple[float, float]  #: the mean of log10 of the clients' losses
    log_loss_std: tuple[float, float]


def scores(comparison: Comparison, out: Path) -> dict[str, Scores]:
    """Of every algorithm of a comparison that lies in `out`."""
    return {
        name: _scores([out / "runs" / name.replace(":", "_") / str(run.seed) for run in comparison.of(name)])
        for name in comparison.algorithms
    }


def _scores(folders: list[Path]) -> Scores:
    parts = {"train": [train_scores(folder) for folder in folders], "test": [_test(folder) for folder in folders]}
    sizes = torch.tensor([client["samples"] for folder in folders for client in Folder(folder).clients]).double()

    def over(value: str) -> tuple[list[float], list[float]]:
        means, deviations = [], []
        for part in ("train", "test"):
            values = torch.tensor([x for found in parts[part] for x in found[value]], dtype=torch.float64)
            values = 100 * values if value == "accuracy" else values.clamp(min=1e-12).log10()
            mean = (sizes * values).sum() / sizes.sum()
            means.append(float(mean))
            deviations.append(float(((sizes * (values - mean).square()).sum() / sizes.sum()).sqrt()))
        return means, deviations

    (accuracy, accuracy_std), (loss, loss_std) = over("accuracy"), over("loss")
    return Scores(*((pair[0], pair[1]) for pair in (accuracy, accuracy_std, loss, loss_std)))


def _test(folder: Path) -> dict[str, list[float]]:
    metrics = read_run(folder).metrics
    last = metrics.filter(polars.col("round") == polars.col("round").max()).sort("client")
    return {"loss": last["loss"].to_list(), "accuracy": last["accuracy"].to_list()}


def train_scores(path: Path) -> dict[str, list[float]]:
    """Each client's own final model on all of its training data: computed once, then kept in the folder."""
    kept = path / "train.json"
    if not kept.exists():
        folder = Folder.open(path)
        config = parse(folder.config, str(path / "config.yaml"))
        problem = judged_on_training_data(load_problem(config.problem, config.seed))
        found = FLEETS["stacked"](problem, seed=config.seed, batch_size=config.batch_size).evaluate(folder.models())
        unfinished = kept.with_name("train.json.unfinished")
        unfinished.write_text(json.dumps({"loss": found.loss.tolist(), "accuracy": _listed(found.accuracy)}))
        os.replace(unfinished, kept)
    scored: dict[str, Any] = json.loads(kept.read_text())
    return scored


def judged_on_training_data(problem: Problem) -> Problem:
    def of(client: Client) -> Client:
        assert isinstance(client.train, Finite)
        judged = copy.copy(client)
        judged.test = client.train.part(torch.arange(len(client.train)), augmented=False)
        return judged

    return replace(problem, clients=[of(client) for client in problem.clients])


def _listed(values: Tensor | None) -> list[float]:
    assert values is not None, "the real problems all have a metric"
    return [float(value) for value in values]
