"""A result on disk: read from a run's folder, or written as one."""

import json
from pathlib import Path
from typing import Any, NoReturn

import yaml

from ..errors import InputError
from ..fleet import Member, Roster
from ..problems import Problem, Task
from . import checkpoint
from .config import PYTHON, RunConfig, parse
from .durable import write_text
from .folder import METRICS, SITES, WEIGHTS, Folder, Recorded, other_clients, refuse_used
from .parts import load_task
from .run import as_seen
from .tables_file import TablesFile
from .training import Result
from .writing import environment


def read_result(path: Path, task: Task | None = None) -> Result:
    """What a finished run gave. `task` is what was learned, where the folder alone cannot tell."""
    if (path / "runs").is_dir() and not (path / "config.yaml").is_file():
        raise InputError(f"{path} holds a comparison: give one of its runs, such as {path}/runs/all-for-one/127")
    folder = Folder.open(path)
    if not folder.finished:
        raise InputError(f"{path}: this run is not finished; go on with `allforone resume {path}`")
    config = parse(folder.config, str(path / "config.yaml"))
    if label := folder.label:
        folder.verify(label)
    if task is None:
        python = config.problem.name == PYTHON
        task = _unknown(path, config.title) if python else load_task(config.problem, config.seed)
    roster = Roster(Member(**client) for client in folder.clients)
    if isinstance(task, Problem) and (different := other_clients(roster, _seen(task, config))):
        raise InputError(f"{path} is of a run with another {', '.join(different)}; give the problem that was trained")
    return Result(config, task, roster, folder.models(), Recorded(folder))


def _seen(problem: Problem, config: RunConfig) -> Roster:
    """The clients as the run saw them."""
    return Roster.of(as_seen(problem, config).clients)


def _unknown(path: Path, title: str | None) -> Task:
    """The task of a run whose model and loss are known in Python only."""

    def missing(*_: Any) -> NoReturn:
        raise InputError(f"{path}: started from Python, so its model is known there only: afo.load('{path}', model)")

    return Task(missing, missing, name=title or "task")


def write_result(result: Result, path: Path) -> Path:
    """A new run folder that holds all of a result but a checkpoint, so that nothing can be resumed from it."""
    refuse_used(path)
    path.mkdir(parents=True, exist_ok=True)
    write_text(path / "config.yaml", yaml.safe_dump(result.config.plain(), sort_keys=False, allow_unicode=True))
    write_text(path / "environment.json", json.dumps(environment(), indent=2))
    write_text(path / "clients.json", json.dumps([member._asdict() for member in result.roster], indent=1))
    write_text(path / METRICS, result.metrics.write_csv())
    if result.history.sites.height:
        write_text(path / SITES, result.history.sites.write_csv())
    tables = TablesFile(path / WEIGHTS)
    for snapshot in result.tables:
        tables.append(snapshot)
    tables.file.flush()
    checkpoint.write_tensors(path / "models.safetensors", result.stacked)
    return path
