"""A comparison in numbers: each client's own model on its own test data, over clients and seeds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars
import torch
from torch import Tensor

from ..algorithms import ALGORITHMS
from ..errors import InputError
from ..fleet import Attack
from .config import parse
from .folder import Folder
from .history import carried

#: Smaller excess losses cannot be told from zero in float64.
LEAST_EXCESS = 1e-28


class FinishedRun(NamedTuple):
    algorithm: str
    seed: int
    metrics: polars.DataFrame
    weights: dict[str, Tensor]
    config: dict[str, Any]
    sizes: list[int]  #: samples each client owns; of those who do not lie
    clients: Sequence[dict[str, Any]] = ()  #: name, true cluster and samples of all
    model_bytes: int | None = None  #: of one client's model
    liars: Sequence[int] = ()  #: the clients that lie, in an experiment with attacks


def last_round(run: FinishedRun) -> int:
    return int(run.metrics["round"].to_numpy().max())


class Comparison(NamedTuple):
    problem: str
    runs: list[FinishedRun]
    clusters: list[int] | None

    @property
    def algorithms(self) -> list[str]:
        return list(dict.fromkeys(run.algorithm for run in self.runs))

    def of(self, algorithm: str) -> list[FinishedRun]:
        return [run for run in self.runs if run.algorithm == algorithm]


def read_run(path: Path) -> FinishedRun:
    folder = Folder.open(path)
    config = folder.config
    name = parse(config, str(path / "config.yaml")).shown
    clients = folder.clients
    sizes, metrics = [client["size"] for client in clients], folder.metrics()
    metrics = carried(metrics.filter(polars.len().over("round") == len(sizes)))  # the last round may be half written
    liars: list[int] = []
    if config.get("attack"):  # what becomes of the liars' own models is of no interest
        liars = Attack.parse(config["attack"]).choose(len(sizes), config["seed"])
        sizes = [size for client, size in enumerate(sizes) if client not in liars]
        metrics = metrics.filter(~polars.col("client").is_in(liars))
    return FinishedRun(
        name, config["seed"], metrics, folder.weights(), config, sizes, clients, folder.model_bytes, liars
    )


def read_comparison(path: Path, unfinished: bool = False) -> Comparison:
    """The finished runs of a comparison's folder (with `unfinished`, all that began), or the one of a run's folder."""
    single = (path / "config.yaml").is_file()
    places = [path] if single else sorted(file.parent for file in path.glob("runs/*/*/config.yaml"))
    if not places:
        raise InputError(f"{path}: no runs there; give a folder that `allforone run` or `allforone compare` wrote")
    done = [place for place in places if single or unfinished or Folder(place).finished]
    if not done:
        raise InputError(f"{path}: none of its {len(places)} runs is finished; go on with `allforone compare --resume`")
    order = {name: place for place, name in enumerate(ALGORITHMS)}
    begun = [run for run in map(read_run, done) if run.metrics.height]
    if not begun:
        raise InputError(f"{path}: no round is done yet; wait a moment")
    runs = sorted(begun, key=lambda run: (order.get(run.algorithm.split(":")[0], len(order)), run.algorithm, run.seed))
    clients = Folder(done[0]).clients
    clusters = [client["cluster"] for client in clients]
    return Comparison(
        Path(runs[0].config["problem"]["name"]).name,
        runs,
        None if None in clusters else clusters,
    )


def summarise(comparison: Comparison, weighted: bool = False) -> dict[str, Any]:
    """Final values: mean and std over clients and seeds, weighted by their data if asked, and the worst client."""
    return {
        "problem": comparison.problem,
        "weighted_by_data": weighted,
        "algorithms": {name: _summary(comparison, name, weighted) for name in comparison.algorithms},
    }


def _summary(comparison: Comparison, algorithm: str, weighted: bool) -> dict[str, Any]:
    runs = comparison.of(algorithm)
    last = [run.metrics.filter(polars.col("round") == polars.col("round").max()).sort("client") for run in runs]
    sizes = torch.tensor([run.sizes if weighted else [1] * len(run.sizes) for run in runs], dtype=torch.float64)

    def values(column: str) -> Tensor | None:  # [seeds, clients]
        if any(frame[column].null_count() for frame in last):
            return None
        return torch.tensor([frame[column].to_list() for frame in last], dtype=torch.float64)

    excess = values("excess_loss")
    samples, seconds = values("samples"), values("seconds")
    assert samples is not None and seconds is not None
    return {
        "test_loss": statistics(values("loss"), sizes, worst="max"),
        "test_accuracy": statistics(values("accuracy"), sizes, worst="min"),
        "log10_excess_loss": statistics(None if excess is None else log10_excess(excess), sizes, worst="max"),
        "gradient_samples_per_client": float(samples.mean()),
        "seconds": float(seconds.mean()),
        "seeds": [run.seed for run in runs],
    }


def statistics(values: Tensor | None, sizes: Tensor, worst: str) -> dict[str, float] | None:
    """Of values [seeds, clients], weighted by sizes alike: mean, std, and the mean over seeds of the worst client."""
    if values is None:
        return None
    share = sizes / sizes.sum(1, keepdim=True) / len(values)
    mean = (share * values).sum()
    edge = values.amax(1) if worst == "max" else values.amin(1)
    return {
        "mean": float(mean),
        "std": float((share * (values - mean).square()).sum().sqrt()),
        "worst_client": float(edge.mean()),
    }


def log10_excess(excess: Tensor) -> Tensor:
    return excess.clamp(min=LEAST_EXCESS).log10()
