"""A run on disk. One folder holds all that is needed to understand, resume or report it; here it is read.

config.yaml             the resolved config
environment.json        versions, machine, command
clients.json            each client's name, true cluster and number of training samples
metrics.csv             one line per round and client, appended as the run goes
sites.csv               of clients on machines, one line per round and site: why it was absent, what it took to ask it
weights.rounds          who listened to whom and why, appended round by round; see `tables_file`
checkpoint.safetensors  the state, to resume from, and the checksums of all other files
checkpoint-before.safetensors  the one before, to resume from if the last one is damaged
models.safetensors      the final models, stacked: name → [N, *shape]; written when the run is done
running.json            who writes into it now; see `lock`
"""

import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars
from pydantic import TypeAdapter, ValidationError

from ..errors import InputError
from ..fleet import Member, Models, Roster
from ..opening import content_of
from . import checkpoint, plain_yaml
from .checkpoint import Label
from .history import CONTACTS, History, contact_frame, schema
from .lock import HOLDER
from .tables import Tables
from .tables_file import TablesFile

#: The file of who listened to whom.
WEIGHTS = "weights.rounds"
METRICS = "metrics.csv"
SITES = "sites.csv"
#: What a run that ended before its first checkpoint may have left.
UNBORN = ("config.yaml", "environment.json", "clients.json", METRICS, SITES, WEIGHTS, HOLDER, "tensorboard")


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    @classmethod
    def open(cls, path: Path) -> "Folder":
        folder = cls(path)
        if (folder.path / "config.yaml").is_file():
            return folder
        if folder.path.is_dir() and any(folder.path.iterdir()) and is_unborn(folder.path):
            raise InputError(f"{path}: this run was ended before it began; begin it anew by its first command")
        raise InputError(f"{path}: no run there (no config.yaml); give the folder that `allforone run --out` wrote")

    @property
    def config(self) -> dict[str, Any]:
        return plain_yaml.read(self.path / "config.yaml")

    @property
    def clients(self) -> list[dict[str, Any]]:
        path = self.path / "clients.json"
        try:
            found = TypeAdapter(list[Member]).validate_python(
                [Member(**client) for client in json.loads(content_of(path))]
            )
        except (OSError, ValueError, TypeError, RecursionError) as error:
            reason = "not a list of clients" if isinstance(error, ValidationError | TypeError) else error
            raise InputError(f"{path}: missing or damaged ({reason})") from error
        if not found:
            raise InputError(f"{path}: missing or damaged (no client in it)")
        return [member._asdict() for member in found]

    @property
    def finished(self) -> bool:
        return (self.path / "models.safetensors").is_file()

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.safetensors"

    @property
    def checkpoint_before(self) -> Path:
        return self.path / "checkpoint-before.safetensors"

    @property
    def checkpoints(self) -> list[Path]:
        """Those that there are, the newest first."""
        return [path for path in (self.checkpoint, self.checkpoint_before) if path.exists()]

    @property
    def label(self) -> Label | None:
        """Of the newest checkpoint that can be read."""
        for path in self.checkpoints:
            try:
                return checkpoint.read_label(path)
            except InputError:
                continue
        return None

    @property
    def began(self) -> dict[str, Any]:
        """The config that the run began with, which config.yaml may say no longer."""
        return label.about.config if (label := self.label) else self.config

    def verify(self, label: Label) -> None:
        """Refuse a folder whose files are not those that a checkpoint goes with."""
        if check_of(self.path / "clients.json") != label.about.clients:
            raise InputError(f"{self.path / 'clients.json'}: missing or damaged, or of another run")
        for name, mark in label.marks.items():
            mark.verify(self.path / name)

    def other_clients(self, roster: Roster) -> list[str]:
        """What is not as in clients.json; nothing of a run that has not begun."""
        return other_clients([Member(**client) for client in self.clients], roster) if self.checkpoints else []

    def sites(self) -> polars.DataFrame:
        """What machines took, round by round; no rows where all clients were in one process."""
        path = self.path / SITES
        try:
            lines = _whole_lines(path) if path.exists() else b""
            return polars.read_csv(lines, schema=CONTACTS) if lines else contact_frame(0, [])
        except (OSError, polars.exceptions.PolarsError) as error:
            raise InputError(f"{path}: damaged ({error})") from error

    def models(self) -> Models:
        return checkpoint.read_tensors(self.path / "models.safetensors")

    def metrics(self) -> polars.DataFrame:
        path = self.path / METRICS
        try:
            lines = _whole_lines(path)
            found = polars.read_csv(lines, schema=schema(lines.split(b"\n", 1)[0].decode().split(",")))
            double = found.filter(found.select("round", "client").is_duplicated())
        except (OSError, UnicodeDecodeError, polars.exceptions.PolarsError) as error:
            raise InputError(f"{path}: missing or damaged ({error})") from error
        if double.height:
            number, client = double.select("round", "client").row(0)
            raise InputError(
                f"{path}: has several rows of round {number} and client {client}, as if two processes had written; "
                "make the run anew"
            )
        return found

    def tables(self) -> TablesFile:
        """Who listened to whom and why, of all rounds that are whole."""
        if (self.path / "weights.safetensors").exists():
            raise InputError(
                f"{self.path}: its weights.safetensors is of an older version, which is no longer read; make the run "
                "anew"
            )
        return TablesFile(self.path / WEIGHTS)


def _whole_lines(path: Path) -> bytes:
    """The last line may be in the middle of being written."""
    written = content_of(path)
    return written[: written.rfind(b"\n") + 1]


class Recorded(History):
    """That of a run that is done, read from its folder when it is asked for."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.tables: Tables = folder.tables()

    @property
    def metrics(self) -> polars.DataFrame:
        return self.folder.metrics()

    @property
    def sites(self) -> polars.DataFrame:
        return self.folder.sites()


def other_clients(before: Sequence[Member], now: Sequence[Member]) -> list[str]:
    """What of them is not as it was."""
    if len(before) != len(now):
        return [f"number of clients ({len(before)}, now {len(now)})"]
    found = []
    for number, (then, here) in enumerate(zip(before, now, strict=True)):
        if then != here:
            what = "data" if then._replace(fingerprint=None) == here._replace(fingerprint=None) else "client"
            found.append(f"{what} {f'of client {number}' if what == 'data' else number} ({here.name or number})")
    return found


def check_of(path: Path) -> int | None:
    """The CRC-32 of a small file."""
    try:
        return zlib.crc32(content_of(path))
    except OSError:
        return None


def differences(before: dict[str, Any], now: dict[str, Any], rounds: bool = False) -> list[str]:
    """The keys of a config that differ, the number of rounds if asked or where a horizon's step size depends on it."""
    rounds = rounds or (now.get("schedule") or {}).get("name") == "horizon"
    keys = {*before, *now, *before.get("identity", {}), *now.get("identity", {})}
    keys -= {"identity", "evaluate_every", "least_sites", "title"}

    def of(config: dict[str, Any], key: str) -> list[Any]:
        return [config.get(key), config.get("identity", {}).get(key)]

    return sorted(key for key in keys - (set() if rounds else {"rounds"}) if of(before, key) != of(now, key))


def refuse_used(path: Path) -> None:
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(
            f"{path} already exists and is not empty: nothing was overwritten; choose another --out, "
            "or go on with what is there (allforone resume RUN, allforone compare --resume)"
        )


def refuse_begun(path: Path) -> None:
    """As `refuse_used`, but for what a run may have left that ended before its first checkpoint."""
    if not is_unborn(path):
        refuse_used(path)


def is_unborn(path: Path) -> bool:
    """Whether a folder holds nothing but what a run writes before its first checkpoint."""
    if not path.is_dir():
        return False
    names = {file.name for file in path.iterdir()}
    whole = {name for name in names if not name.endswith(".unfinished")} - {HOLDER}
    halves = {name.removesuffix(".unfinished") for name in names - whole}
    return whole <= {*UNBORN} and halves <= {*UNBORN, "checkpoint.safetensors"} and (not whole or _is_ours(path))


def _is_ours(path: Path) -> bool:
    """Whether its config.yaml, the first file of a run, is a resolved one: the user's own is never overwritten."""
    try:
        return b"\nidentity:" in content_of(path / "config.yaml")
    except OSError:
        return False
