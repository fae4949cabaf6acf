"""A run on disk. One folder holds all that is needed to understand, resume or report it.

config.yaml             the resolved config
environment.json        versions, machine, command
clients.json            each client's name, true cluster and number of training samples
metrics.csv             one line per round and client, appended as the run goes
weights.rounds          who listened to whom and why, appended round by round; see `tables_file`
checkpoint.safetensors  the state, to resume from
models.safetensors      the final models, stacked: name → [N, *shape]; written when the run is done
"""

import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars
import torch
import yaml

from ..errors import InputError
from ..fleet import Member, Models, Roster
from . import checkpoint
from .history import History, Record, schema
from .tables_file import TablesFile

PACKAGES = ("allforone", "torch", "numpy", "scikit-learn", "safetensors", "polars")
#: The file of who listened to whom.
WEIGHTS = "weights.rounds"


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, path: Path, config: dict[str, Any], roster: Roster) -> "Folder":
        """A folder for a new run; one that already holds anything is left alone."""
        folder = cls(path)
        refuse_used(folder.path)
        folder.path.mkdir(parents=True, exist_ok=True)
        folder._write("config.yaml", yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
        folder._describe(roster)
        return folder

    @classmethod
    def open(cls, path: Path) -> "Folder":
        folder = cls(path)
        if not (folder.path / "config.yaml").is_file():
            raise InputError(f"{path}: no run there (no config.yaml); give the folder that `allforone run --out` wrote")
        return folder

    @classmethod
    def reopen(cls, path: Path, config: dict[str, Any], roster: Roster) -> "Folder":
        """The folder of a run to go on with; of what decides its numbers, only that of rounds may have changed."""
        folder = cls.open(path)
        different = differences(folder.config, config) + folder.other_clients(roster)
        if different:
            raise InputError(
                f"{path} holds a run with another {', '.join(different)}: nothing was changed; choose "
                "another folder, or the settings in its config.yaml"
            )
        done = folder.metrics()["round"].max() if folder.checkpoint.exists() else 0  # without one it starts anew
        assert isinstance(done, int)
        if done > config["rounds"]:
            raise InputError(f"{path} has {done} rounds already, which is more than {config['rounds']}")
        if done < config["rounds"]:
            (folder.path / "models.safetensors").unlink(missing_ok=True)  # they are no longer the final ones
        if not (folder.path / "clients.json").exists():
            folder._describe(roster)
        folder._write("config.yaml", yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
        return folder

    def _describe(self, roster: Roster) -> None:
        self._write("environment.json", json.dumps(environment(), indent=2))
        self._write("clients.json", json.dumps([member._asdict() for member in roster], indent=1))

    def other_clients(self, roster: Roster) -> list[str]:
        """What is not as in clients.json; nothing where a run was killed before it was written."""
        if not (self.path / "clients.json").exists() and not self.checkpoint.exists():
            return []
        before = [Member(**client) for client in self.clients]
        if len(before) != len(roster):
            return [f"number of clients ({len(before)}, now {len(roster)})"]
        found = []
        for number, (then, now) in enumerate(zip(before, roster, strict=True)):
            if then != now:
                what = "data" if then._replace(fingerprint=None) == now._replace(fingerprint=None) else "client"
                found.append(f"{what} {f'of client {number}' if what == 'data' else number} ({now.name or number})")
        return found

    @property
    def config(self) -> dict[str, Any]:
        return dict(yaml.safe_load((self.path / "config.yaml").read_text()))

    @property
    def clients(self) -> list[dict[str, Any]]:
        try:
            return list(json.loads((self.path / "clients.json").read_text()))
        except (FileNotFoundError, json.JSONDecodeError) as error:
            raise InputError(f"{self.path / 'clients.json'}: missing or damaged ({error})") from error

    @property
    def finished(self) -> bool:
        return (self.path / "models.safetensors").is_file()

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.safetensors"

    def append(self, record: Record) -> None:
        path = self.path / "metrics.csv"
        with path.open("a") as file:
            record.frame().write_csv(file, include_header=not path.stat().st_size)

    def clear(self) -> History:
        """Forget rounds of which there is no checkpoint."""
        for name in ("metrics.csv", WEIGHTS):
            (self.path / name).unlink(missing_ok=True)
        return Written(self)

    def save_models(self, models: Models) -> None:
        checkpoint.write_tensors(self.path / "models.safetensors", models)

    def models(self) -> Models:
        return checkpoint.read_tensors(self.path / "models.safetensors")[0]

    def metrics(self) -> polars.DataFrame:
        try:
            written = (self.path / "metrics.csv").read_bytes()
            whole = written[: written.rfind(b"\n") + 1]  # the last line may be in the middle of being written
            found = polars.read_csv(whole, schema=schema(whole.split(b"\n", 1)[0].decode().split(",")))
            # runs of before did not count them
            return found if "bytes" in found.columns else found.with_columns(bytes=polars.lit(None, polars.Int64))
        except (FileNotFoundError, UnicodeDecodeError, polars.exceptions.PolarsError) as error:
            raise InputError(f"{self.path / 'metrics.csv'}: missing or damaged ({error})") from error

    def tables(self) -> TablesFile:
        """Who listened to whom and why, of all rounds that are whole."""
        if (self.path / "weights.safetensors").exists():
            raise InputError(
                f"{self.path}: its weights.safetensors is of an older version, which is no longer read; make the run "
                "anew, or remove that file to go on without the weights of its rounds"
            )
        return TablesFile(self.path / WEIGHTS)

    def cut(self, rounds: int) -> History:
        """The first `rounds` rounds as they were; what was written after them is cut off the files."""
        self.tables().cut(rounds)
        metrics = self.metrics().filter(polars.col("round") <= rounds)
        temporary = self.path / "metrics.csv.unfinished"
        metrics.write_csv(temporary)
        os.replace(temporary, self.path / "metrics.csv")
        return Written(self)

    def _write(self, name: str, text: str) -> None:
        """All or nothing: a reader never sees half a file."""
        unfinished = self.path / f"{name}.unfinished"
        unfinished.write_text(text)
        os.replace(unfinished, self.path / name)


class Written(History):
    """That of a run with a folder: what is on disk is not held in memory as well."""

    def __init__(self, folder: Folder) -> None:
        self.folder, self.tables = folder, folder.tables()

    def add(self, record: Record) -> None:
        self.folder.append(record)

    @property
    def metrics(self) -> polars.DataFrame:
        return self.folder.metrics()


def differences(before: dict[str, Any], now: dict[str, Any], rounds: bool = False) -> list[str]:
    """The keys of a config that differ, the number of rounds if asked or where a horizon's step size depends on it."""
    rounds = rounds or (now.get("schedule") or {}).get("name") == "horizon"
    keys = {*before, *now, *before.get("identity", {}), *now.get("identity", {})}
    keys -= {"identity", "evaluate_every", "title"}

    def of(config: dict[str, Any], key: str) -> list[Any]:
        return [config.get(key), config.get("identity", {}).get(key)]

    return sorted(key for key in keys - (set() if rounds else {"rounds"}) if of(before, key) != of(now, key))


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
