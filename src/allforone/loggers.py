"""The rounds of a run for MLflow and for Weights & Biases."""

import os
import re
from abc import ABC, abstractmethod
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .errors import InputError
from .fleet import Roster
from .runs import Beginning, Callback, Record
from .runs.quantities import Readings, judged


def scalars(record: Record, metrics: Readings | None, roster: Roster) -> dict[str, float]:
    """Of a round by name: mean, worst and every client of which it is known, and what it took."""
    found: dict[str, float] = {}
    for quantity, values in judged(record.evaluation, metrics).items():
        known = (~values.isnan()).nonzero().flatten()
        found[f"{quantity.name}/mean"] = float(values[known].mean())
        found[f"{quantity.name}/worst"] = float(getattr(values[known], quantity.worst)())
        found |= {f"{quantity.name}/{roster[k].name or k}": float(values[k]) for k in known.tolist()}
    if record.held is not None and not record.held.isnan().all():
        found["held_out/mean"] = float(record.held.nanmean())
    if record.info is not None:
        weights = record.info.weights
        others = (weights != 0).sum(1) - (weights.diagonal() != 0).long()
        found["collaborators/mean"] = float(others.double().mean())
    found["samples per client"] = float(record.ledger.samples.double().mean())
    found["seconds"] = record.seconds
    return found


def settings(beginning: Beginning) -> dict[str, Any]:
    """What decides the run, in one level: `optimizer.lr`."""
    found: dict[str, Any] = {}
    for key, value in beginning.config.plain().items():
        if isinstance(value, dict) and key not in ("identity", "metrics"):
            found |= {f"{key}.{inner}": item for inner, item in value.items()}
        elif not isinstance(value, dict):
            found[key] = value
    return found


class _Logger(Callback, ABC):
    metrics: Readings | None
    roster: Roster

    def on_start(self, beginning: Beginning) -> None:
        self.metrics, self.roster = beginning.config.metrics, beginning.roster
        self.open(settings(beginning))

    def on_round(self, round: Record) -> None:
        self.log(scalars(round, self.metrics, self.roster), round.number)

    @abstractmethod
    def open(self, told: dict[str, Any]) -> None:
        """With the settings of a run that begins."""

    @abstractmethod
    def log(self, numbers: dict[str, float], step: int) -> None:
        """Of one round."""


class MLflow(_Logger):
    """Logs settings and rounds to MLflow; needs the extra `allforone[mlflow]`.

    Args:
        folder: where to write without a server, as MLflow's file store; by default where MLflow itself would.
        experiment: what the experiment is called.
        name: what the run is called, by default as MLflow likes.

    Example:
        >>> import allforone as afo
        >>> afo.train(problem, callbacks=[afo.MLflow("out/mlflow")])  # doctest: +SKIP
    """

    def __init__(
        self, folder: str | Path | None = None, experiment: str = "allforone", name: str | None = None
    ) -> None:
        self.mlflow = _package("mlflow", "mlflow")
        self.folder, self.experiment, self.name = folder, experiment, name
        self.client: Any = None

    def open(self, told: dict[str, Any]) -> None:
        uri = None
        if self.folder is not None:
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # a folder is what was asked for
            uri = Path(self.folder).resolve().as_uri()
        self.client = self.mlflow.MlflowClient(uri)
        known = self.client.get_experiment_by_name(self.experiment)
        number = known.experiment_id if known else self.client.create_experiment(self.experiment)
        self.run = self.client.create_run(number, run_name=self.name).info.run_id
        for key, value in told.items():
            self.client.log_param(self.run, _plain(key), str(value)[:500])

    def log(self, numbers: dict[str, float], step: int) -> None:
        for key, value in numbers.items():
            self.client.log_metric(self.run, _plain(key), value, step=step)

    def on_end(self) -> None:
        if self.client is not None:
            self.client.set_terminated(self.run)


class WandB(_Logger):
    """Logs settings and rounds to Weights & Biases; needs the extra `allforone[wandb]`.

    Args:
        project: what the project is called.
        offline: whether to write into `folder` only, to be sent later by `wandb sync`, or never.
        folder: where to write, by default the current one.
        name: what the run is called.

    Example:
        >>> import allforone as afo
        >>> afo.train(problem, callbacks=[afo.WandB(folder="out")])  # doctest: +SKIP
    """

    def __init__(
        self,
        project: str = "allforone",
        *,
        offline: bool = True,
        folder: str | Path | None = None,
        name: str | None = None,
    ) -> None:
        self.wandb = _package("wandb", "wandb")
        self.project, self.offline, self.folder, self.name = project, offline, folder, name
        self.run: Any = None

    def open(self, told: dict[str, Any]) -> None:
        if self.folder is not None:
            Path(self.folder).mkdir(parents=True, exist_ok=True)
        self.run = self.wandb.init(
            project=self.project,
            name=self.name,
            config=told,
            dir=None if self.folder is None else str(self.folder),
            mode="offline" if self.offline else "online",
        )

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.run.log(numbers, step=step)

    def on_end(self) -> None:
        if self.run is not None:
            self.run.finish()


def _package(name: str, extra: str) -> Any:
    if find_spec(name) is None:
        raise InputError(f"this logger needs the package {name}: pip install 'allforone[{extra}]'")
    return import_module(name)


def _plain(key: str) -> str:
    """MLflow takes letters, digits, and a few signs."""
    return re.sub(r"[^\w\-./ ]", "_", key)
