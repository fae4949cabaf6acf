"""A run on disk. One folder holds all that is needed to understand, resume or report it.

config.yaml             the resolved config
environment.json        versions, machine, command
clients.json            each client's name, true cluster and number of training samples
metrics.csv             one line per round and client, appended as the run goes
weights.safetensors     who listened to whom and why: weights, similarity, noise, trust, [rounds, N, N]
checkpoint.safetensors  the state, to resume from
models.safetensors      the final models, stacked: name → [N, *shape]; written when the run is done
"""

import json
import os
import platform
import sys
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars
import torch
import yaml
from torch import Tensor

from ..errors import InputError
from ..fleet import Models
from ..problems import Problem
from . import checkpoint
from .history import COLUMNS, History, Round, schema

PACKAGES = ("allforone", "torch", "numpy", "scikit-learn", "safetensors", "polars")


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, path: Path, config: dict[str, Any], problem: Problem) -> "Folder":
        """A folder for a new run; one that already holds anything is left alone."""
        folder = cls(path)
        refuse_used(folder.path)
        folder.path.mkdir(parents=True, exist_ok=True)
        folder._write("config.yaml", yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
        folder._write("environment.json", json.dumps(environment(), indent=2))
        folder._write(
            "clients.json",
            json.dumps([{"name": c.name, "cluster": c.cluster, "samples": c.size} for c in problem.clients], indent=1),
        )
        folder._write("metrics.csv", ",".join(COLUMNS) + "\n")
        return folder

    @classmethod
    def open(cls, path: Path) -> "Folder":
        folder = cls(path)
        if not (folder.path / "config.yaml").is_file():
            raise InputError(f"{path}: no run there (no config.yaml); give the folder that `allforone run --out` wrote")
        return folder

    @classmethod
    def reopen(cls, path: Path, config: dict[str, Any]) -> "Folder":
        """The folder of a run to go on with; only the number of rounds may have changed."""
        folder = cls.open(path)
        before = folder.config
        different = sorted(key for key in {*before, *config} - {"rounds"} if before.get(key) != config.get(key))
        if different:
            raise InputError(
                f"{path} holds a run with another {', '.join(different)}: nothing was changed; choose "
                "another folder, or the settings in its config.yaml"
            )
        folder._write("config.yaml", yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
        return folder

    @property
    def config(self) -> dict[str, Any]:
        return dict(yaml.safe_load((self.path / "config.yaml").read_text()))

    @property
    def clients(self) -> list[dict[str, Any]]:
        return list(json.loads((self.path / "clients.json").read_text()))

    @property
    def finished(self) -> bool:
        return (self.path / "models.safetensors").is_file()

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.safetensors"

    def append(self, rounds: Iterable[Round]) -> None:
        with (self.path / "metrics.csv").open("a") as file:
            file.writelines(
                ",".join("" if v is None else repr(v) for v in line) + "\n" for r in rounds for line in r.lines()
            )

    def save_weights(self, history: History) -> None:
        if tensors := history.tensors():
            checkpoint.write_tensors(self.path / "weights.safetensors", tensors)

    def save_models(self, models: Models) -> None:
        checkpoint.write_tensors(self.path / "models.safetensors", models)

    def models(self) -> Models:
        return checkpoint.read_tensors(self.path / "models.safetensors")[0]

    @property
    def model_bytes(self) -> int | None:
        """The size of one client's model; None before anything was saved."""
        for path, prefix in ((self.path / "models.safetensors", ""), (self.checkpoint, "/models/")):
            if path.exists():
                return checkpoint.row_bytes(path, prefix)
        return None

    def metrics(self) -> polars.DataFrame:
        try:
            written = (self.path / "metrics.csv").read_bytes()
            whole = written[: written.rfind(b"\n") + 1]  # the last line may be in the middle of being written
            columns, width = list(schema().items()), whole.split(b"\n", 1)[0].count(b",") + 1
            found = polars.read_csv(whole, schema=dict(columns[:width]))
            return found.with_columns(  # a folder of an older version lacks the last columns
                polars.lit(None, kind).alias(name) for name, kind in columns[width:]
            )
        except (FileNotFoundError, polars.exceptions.PolarsError) as error:
            raise InputError(f"{self.path / 'metrics.csv'}: missing or damaged ({error})") from error

    def weights(self) -> dict[str, Tensor]:
        """As `History.tensors`; folders of older versions have rounds, weights and similarity only."""
        path = self.path / "weights.safetensors"
        return checkpoint.read_tensors(path)[0] if path.exists() else {}

    def history(self, rounds: int) -> History:
        """The first `rounds` rounds as they were; what was written after them is cut off the files."""
        metrics = self.metrics().filter(polars.col("round") <= rounds)
        temporary = self.path / "metrics.csv.unfinished"
        metrics.write_csv(temporary)
        os.replace(temporary, self.path / "metrics.csv")
        return History.restored(metrics, self.weights(), rounds)

    def _write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)


def refuse_used(path: Path) -> None:
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(
            f"{path} already exists and is not empty: nothing was overwritten; choose another --out, "
            "or go on with what is there (allforone resume RUN, allforone compare --resume)"
        )


def environment() -> dict[str, Any]:
    return {
        "command": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "packages": {name: version(name) for name in PACKAGES},
    }
