"""What a party brings itself, as it told `join` or `serve`: its files, which no job can name or change."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from ...catalogue import absolute

if TYPE_CHECKING:
    from ...problems import Client, Task
    from ..policy import Policy

#: Where a site's own rules lie in its kit, and what it has spent of its privacy.
POLICY, SPENT = "policy.yaml", "spent.safetensors"


@dataclass(frozen=True)
class OwnFiles:
    """In the kit of the site or the server, beside its policies."""

    task: str  #: its copy of the task, as /path/to/task.py:task
    client: str = ""  #: of a site: its data, as /path/to/my_site.py:client
    audit: str = ""  #: of a site: the log of every question that it answered
    policy: str = ""  #: of a site: its own rules, as /path/to/policy.yaml; without it those by default
    runs: str = ""  #: of the server: where the folders of runs lie

    @staticmethod
    def path(kit: Path) -> Path:
        return kit / "local" / "own.json"

    @classmethod
    def read(cls, kit: Path) -> "OwnFiles":
        return cls(**json.loads(cls.path(kit).read_text()))

    def write(self, kit: Path) -> None:
        self.path(kit).write_text(json.dumps(asdict(self), indent=2))


def of_site(kit: Path, task: str, client: str, audit: Path | None, policy: Path | None = None) -> OwnFiles:
    """Its policy is the file that is given, else that in its kit, if there is one."""
    rules = policy or (kit / POLICY if (kit / POLICY).exists() else None)
    return OwnFiles(
        absolute(task),
        absolute(client),
        audit=str((audit or kit / "audit.jsonl").resolve()),
        policy=str(rules.resolve()) if rules else "",
    )


def policy_of(own: OwnFiles) -> "Policy":
    """The site's own rules, read anew for every run."""
    from ...runs import read_yaml
    from ..policy import Policy

    return Policy.of(read_yaml(Path(own.policy)), own.policy) if own.policy else Policy()


def of_server(task: str, runs: Path) -> OwnFiles:
    return OwnFiles(absolute(task), runs=str(runs.resolve()))


def load_task_of(name: str, seed: int = 0) -> "Task":
    """A party's copy of the task, by its file; of a problem, its task."""
    from ...problems import Problem
    from ...runs import load_task
    from ...runs.config import Choice

    task = load_task(Choice(name=name), seed)
    return task.task if isinstance(task, Problem) else task


def load_checked(own: OwnFiles, seed: int = 0) -> "tuple[Task, Client]":
    """The site's task and data, looked at once: an error says what cannot be used."""
    from ...problems import Problem, check
    from ...runs import load_client
    from ..agreement import model_of

    task, client = load_task_of(own.task, seed), load_client(own.client)
    problem = Problem(**{field.name: getattr(task, field.name) for field in fields(task)}, clients=[client])
    check(problem, model_of(task, seed))
    return task, client
