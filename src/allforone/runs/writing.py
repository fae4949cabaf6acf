"""The folder of a run while it is written: begun, appended to, checkpointed, gone on with."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars
import torch
import yaml

from ..errors import InputError, notice
from ..fleet import Contact, Models, Optimizer, Roster
from ..opening import content_of
from . import checkpoint
from .checkpoint import About, Checkpoint
from .durable import Appended, Mark, write_text, writing
from .folder import METRICS, SITES, WEIGHTS, Folder, Recorded, check_of, differences, refuse_begun
from .history import Record, contact_frame
from .tables_file import TablesFile

PACKAGES = ("allforone", "torch", "numpy", "scikit-learn", "safetensors", "polars")


class Written(Recorded):
    """That of a run with a folder: what is on disk is not held in memory as well."""

    def __init__(self, folder: Folder, marks: Mapping[str, Mark]) -> None:
        """Go on after these marks; what follows them is cut off."""
        super().__init__(folder)
        self.rows = Appended(folder.path / METRICS, marks.get(METRICS, Mark()))
        self.contacts = Appended(folder.path / SITES, marks.get(SITES, Mark()))
        self.weights = TablesFile(folder.path / WEIGHTS, marks.get(WEIGHTS, Mark()))
        self.tables = self.weights

    def add(self, record: Record) -> None:
        _append_rows(self.rows, record.frame())

    def add_contacts(self, number: int, contacts: list[Contact]) -> None:
        if contacts:
            _append_rows(self.contacts, contact_frame(number, contacts))

    @property
    def marks(self) -> dict[str, Mark]:
        return {METRICS: self.rows.mark, SITES: self.contacts.mark, WEIGHTS: self.weights.file.mark}

    def flush(self) -> None:
        for file in (self.rows, self.contacts, self.weights.file):
            file.flush()


def _append_rows(file: Appended, rows: polars.DataFrame) -> None:
    text: str = rows.write_csv(include_header=not file.mark.size)
    file.append(text.encode())


class Writer:
    """Whoever has one holds the folder's lock."""

    def __init__(self, path: Path, config: dict[str, Any], roster: Roster) -> None:
        self.path, self.folder, self.config, self.roster = path, Folder(path), config, roster

    @classmethod
    def new(cls, path: Path, config: dict[str, Any], roster: Roster) -> "Writer":
        """Of a new run; a folder that holds one already, or anything else, is left alone."""
        refuse_begun(path)
        return cls(path, config, roster)

    @classmethod
    def again(cls, path: Path, config: dict[str, Any], roster: Roster) -> "Writer":
        """Of a run to go on with; of what decides its numbers, only that of rounds may have changed."""
        folder = Folder.open(path)
        if folder.finished and not folder.checkpoints:
            raise InputError(
                f"{path} has no checkpoint to go on from, since result.save writes none: begin a new run from its "
                f"models, as by train(models=afo.load('{path}'), …)"
            )
        different = differences(folder.began, config) + folder.other_clients(roster)
        if different:
            raise InputError(
                f"{path} holds a run with another {', '.join(different)}: nothing was changed; choose "
                "another folder, or the settings that it began with"
            )
        return cls(path, config, roster)

    def latest(self, optimizer: Optimizer) -> Checkpoint | None:
        """The newest checkpoint that is whole and goes with the other files; None of a run that has not begun."""
        troubles: list[str] = []
        for path in self.folder.checkpoints:
            try:
                self.folder.verify(checkpoint.read_label(path))
                done = checkpoint.load(path, optimizer, self.config.get("device", "cpu"))
            except InputError as error:
                troubles.append(str(error))
                continue
            if done.round > self.config["rounds"]:
                raise InputError(
                    f"{self.path} has {done.round} rounds already, which is more than {self.config['rounds']}"
                )
            if troubles:
                notice(f"{troubles[0]}; going on from the checkpoint before, after round {done.round}")
                with writing(self.folder.checkpoint):
                    os.replace(path, self.folder.checkpoint)
            return done
        if troubles:
            raise InputError(f"{troubles[0]}; put back a copy of it, or remove the folder and make the run anew")
        return None

    def begin(self) -> Written:
        """Before the first round; rounds of which there is no checkpoint are forgotten."""
        self._write_config()
        write_text(self.path / "environment.json", json.dumps(environment(), indent=2))
        clients = [member._asdict() for member in self.roster]
        write_text(self.path / "clients.json", json.dumps(clients, indent=1))
        return Written(self.folder, {})

    def go_on(self, done: Checkpoint) -> Written:
        """After the rounds that are done; what was written after them is cut off the files."""
        if done.round < self.config["rounds"]:
            self._tell_other_versions(done.round)
            (self.path / "models.safetensors").unlink(missing_ok=True)  # they are no longer the final ones
        self._write_config()
        return Written(self.folder, done.marks)

    def _tell_other_versions(self, done: int) -> None:
        """A run that two versions share is that of neither."""
        try:
            begun = _versions(json.loads(content_of(self.path / "environment.json")))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):  # people may have changed it
            return
        now = _versions(environment())
        other = [f"{name} {begun[name]}, now {now[name]}" for name in now if begun.get(name, now[name]) != now[name]]
        if other:
            notice(
                f"{self.path}: the first {done} rounds are of {'; '.join(other)}: together they are no run of either, "
                "make it anew where that matters"
            )

    def save(self, done: Checkpoint) -> None:
        """A checkpoint, after all that it goes with is on the disk; the one before is kept."""
        about = About(self.config, check_of(self.path / "clients.json") or 0, torch.get_num_threads())
        checkpoint.save(self.folder.checkpoint, done, about, keep=self.folder.checkpoint_before)

    def finish(self, models: Models) -> None:
        checkpoint.write_tensors(self.path / "models.safetensors", models)

    def _write_config(self) -> None:
        write_text(self.path / "config.yaml", yaml.safe_dump(self.config, sort_keys=False, allow_unicode=True))


def environment() -> dict[str, Any]:
    return {
        "command": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "commit": _commit(),
        "packages": {name: version(name) for name in PACKAGES},
    }


def _versions(environment: dict[str, Any]) -> dict[str, str | None]:
    return {"commit": environment["commit"], **environment["packages"]}


def _commit() -> str | None:
    """The last one that changed the package, where it runs from a git checkout; with a + if it was changed since."""
    package = Path(__file__).parents[1]

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(package), *arguments, "--", "."]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        commit = git("log", "-1", "--format=%h", "--abbrev=10")
        return (commit and commit + ("+" if git("status", "--porcelain") else "")) or None
    except (OSError, subprocess.SubprocessError):
        return None
