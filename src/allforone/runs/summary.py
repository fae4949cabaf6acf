"""A comparison in numbers: each client's own model on its own test data, over clients and seeds."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars
import torch
from torch import Tensor

from ..algorithms import ALGORITHMS
from ..errors import InputError, blaming, notice
from ..fleet import Attack
from .config import parse
from .folder import Folder, differences
from .history import carried
from .quantities import LEAST_EXCESS, LOSS, Quantity, quantities
from .tables import Tables


class FinishedRun(NamedTuple):
    algorithm: str
    seed: int
    metrics: polars.DataFrame
    tables: Tables  #: who listened to whom
    config: dict[str, Any]
    sizes: list[int]  #: samples each client owns; of those who do not lie
    clients: Sequence[dict[str, Any]] = ()  #: name, size, true cluster of all
    liars: Sequence[int] = ()  #: the clients that lie, in an experiment with attacks
    sites: polars.DataFrame | None = None  #: of clients on machines, what each took in each round


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

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """How each metric is read."""
        return {name: reading for run in self.runs for name, reading in (run.config.get("metrics") or {}).items()}

    @property
    def quantities(self) -> list[Quantity]:
        """The loss, and what else is known of any client; the most telling first."""
        frames = [run.metrics for run in self.runs]
        return [q for q in quantities(self.metrics) if q is LOSS or any(q.values(frame).count() for frame in frames)]


def read_run(path: Path) -> FinishedRun:
    with blaming(f"{path}: damaged, or not of a run of this version"):
        return _read_run(path)


def _read_run(path: Path) -> FinishedRun:
    folder = Folder.open(path)
    parsed = parse(folder.config, str(path / "config.yaml"))
    name, config = parsed.shown, parsed.plain()
    if label := folder.label:
        folder.verify(label)
        if different := differences(label.about.config, config):
            raise InputError(f"{path / 'config.yaml'}: has another {', '.join(different)} than the run began with")
    clients = folder.clients
    sizes, metrics = [client["size"] for client in clients], folder.metrics()
    metrics = carried(metrics.filter(polars.len().over("round") == len(sizes)))  # the last round may be half written
    liars: list[int] = []
    if config.get("attack"):  # what becomes of the liars' own models is of no interest
        liars = Attack.parse(config["attack"]).choose(len(sizes), config["seed"])
        sizes = [size for client, size in enumerate(sizes) if client not in liars]
        metrics = metrics.filter(~polars.col("client").is_in(liars))
    return FinishedRun(name, config["seed"], metrics, folder.tables(), config, sizes, clients, liars, folder.sites())


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
    read = [read_run(path)] if single else _readable(done)
    begun = [run for run in read if run.metrics.height]
    if not begun:
        raise InputError(f"{path}: no round is done yet; wait a moment")
    runs = sorted(begun, key=lambda run: (order.get(run.algorithm.split(":")[0], len(order)), run.algorithm, run.seed))
    clusters = [client["cluster"] for client in begun[0].clients]
    return Comparison(
        runs[0].config.get("title") or Path(runs[0].config["problem"]["name"]).name,
        runs,
        None if None in clusters else clusters,
    )


def _readable(places: list[Path]) -> list[FinishedRun]:
    """Those that can be read; the others are told."""
    found, troubles = [], []
    for place in places:
        try:
            found.append(read_run(place))
        except InputError as error:
            troubles.append(str(error))
    if not found:
        raise InputError(troubles[0])
    for trouble in troubles:
        notice(f"left out: {trouble}")
    return found


def summarise(comparison: Comparison, weighted: bool = False) -> dict[str, Any]:
    """Final values: mean and std over clients and seeds, weighted by their data if asked, and the worst client."""
    return {
        "problem": comparison.problem,
        "weighted_by_data": weighted,
        "metrics": comparison.metrics,
        "algorithms": {name: _summary(comparison, name, weighted) for name in comparison.algorithms},
    }


def _summary(comparison: Comparison, algorithm: str, weighted: bool) -> dict[str, Any]:
    runs = comparison.of(algorithm)
    last = [run.metrics.filter(polars.col("round") == polars.col("round").max()).sort("client") for run in runs]
    sizes = torch.tensor([run.sizes if weighted else [1] * len(run.sizes) for run in runs], dtype=torch.float64)

    def final(quantity: Quantity) -> dict[str, float] | None:
        lists = [quantity.values(frame).fill_null(math.nan).to_list() for frame in last]
        values = torch.tensor(lists, dtype=torch.float64)
        return statistics(log10_excess(values) if quantity.powers else values, sizes, quantity.worst)

    return {
        **{quantity.key: final(quantity) for quantity in quantities(comparison.metrics)},
        "gradient_samples_per_client": _mean(last, "samples"),
        "seconds": _mean(last, "seconds"),
        "seeds": [run.seed for run in runs],
    }


def statistics(values: Tensor, sizes: Tensor, worst: str) -> dict[str, float] | None:
    """Of values [seeds, clients], weighted by sizes alike: mean, std, and the mean over seeds of the worst client.

    What is not known, NaN, does not count; None where nothing is.
    """
    told = ~values.isnan().all(1)
    if not told.any():
        return None
    values, sizes = values[told], sizes[told]
    known = ~values.isnan()
    share = torch.where(known, sizes, 0)
    share = share / share.sum(1, keepdim=True) / len(values)
    mean = torch.where(known, share * values, 0).sum()
    edge = torch.where(known, values, -torch.inf).amax(1)
    if worst == "min":
        edge = torch.where(known, values, torch.inf).amin(1)
    return {
        "mean": float(mean),
        "std": float(torch.where(known, share * (values - mean).square(), 0).sum().sqrt()),
        "worst_client": float(edge.mean()),
    }


def _mean(frames: list[polars.DataFrame], column: str) -> float:
    return float(torch.tensor([frame[column].to_list() for frame in frames], dtype=torch.float64).mean())


def log10_excess(excess: Tensor) -> Tensor:
    return excess.clamp(min=LEAST_EXCESS).log10()
