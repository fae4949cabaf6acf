"""The coordinator's night watch: a run that lost its job is started again, and one whose site came back begins anew."""

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import AllForOneError, InputError
from .link import ABORTED, OVER, Link

#: Seconds between two looks.
EVERY = 2.0
#: Seconds before a run is started again: they double from one time to the next, until it got further.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
#: Seconds for which a site cannot be reached before its signs of life count: its line may have broken for a moment.
SURE = 10.0


@dataclass
class Intent:
    """What is wanted of a run, in a file beside its folder at the server: its settings, and whether it is to go on."""

    settings: dict[str, Any]
    state: str = "running"  #: running, finished, or stopped
    why: str = ""

    @classmethod
    def read(cls, path: Path) -> "Intent":
        return cls(**json.loads(path.read_text()))

    def write(self, path: Path) -> None:
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(self.__dict__, indent=2))
        os.replace(unfinished, path)


def intent_of(runs: Path, name: str) -> Path:
    return runs / f"{name}.json"


def check_run_name(name: str) -> None:
    """It becomes that of a job, and of a folder at the server."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise InputError(f"'{name}' cannot be a run's name: letters, digits, . - and _ only; choose another --out")


@dataclass
class Keeper:
    """Looks after the runs of a server until it is told to end."""

    link: Link
    runs: Path
    say: Callable[[str], None]
    _pauses: dict[str, float] = field(default_factory=dict)
    _not_before: dict[str, float] = field(default_factory=dict)
    _ending: set[str] = field(default_factory=set)  # jobs that were asked to end
    _ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._watch, name="keeps the runs going", daemon=True)

    def __enter__(self) -> "Keeper":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """While the server still answers: FLARE's session does not end without it."""
        self._ended.set()
        self._thread.join(timeout=5)
        self.link.close()

    def _watch(self) -> None:
        """Look every few seconds, whatever happens in between."""
        while not self._ended.wait(EVERY):
            for name, intent in self._wanted():
                try:
                    self._look(name, intent)
                except AllForOneError as error:
                    self.say(f"{name}: {error}")
                    break  # the server does not answer: the others would only wait as well
                except Exception as error:  # whatever FLARE raises: the watch goes on
                    self.say(f"{name}: could not be looked after ({type(error).__name__}: {error}); trying again")

    def _wanted(self) -> Iterator[tuple[str, Intent]]:
        for path in sorted(self.runs.glob("*.json")):
            try:
                intent = Intent.read(path)
            except (ValueError, TypeError, OSError):
                continue  # not ours, or just being written
            if intent.state == "running":
                yield path.stem, intent

    def _look(self, name: str, intent: Intent) -> None:
        job = self.link.newest(name)
        status = str(job["status"]) if job else OVER
        if status == ABORTED:
            intent.state, intent.why = "stopped", "ended by the coordinator"
            intent.write(intent_of(self.runs, name))
        elif status.startswith(OVER):
            self._again(name, intent)
        elif status == "RUNNING" and time.monotonic() > self._not_before.get(name, 0.0) + LONGEST_PAUSE:
            self._pauses.pop(name, None)
        if status == "RUNNING" and job and self._somebody_is_back(number := str(job["job_id"])):
            self.say(f"{name}: a site is back; the run goes on from its last round with it")
            self.link.ask(number, "anew")
            self._ending.add(number)

    def _again(self, name: str, intent: Intent) -> None:
        now = time.monotonic()
        if now < self._not_before.get(name, 0.0):
            return
        pause = self._pauses.get(name, FIRST_PAUSE)
        self._not_before[name], self._pauses[name] = now + pause, min(2 * pause, LONGEST_PAUSE)
        self.say(f"{name}: going on from its last round")
        self.link.submit(name, intent.settings, int(intent.settings["least_sites"]))

    def _somebody_is_back(self, job: str) -> bool:
        """Whether a site that this job cannot reach has given a sign of life since."""
        if job in self._ending:
            return False
        unreachable = (self.link.ask(job, "gone") or {}).get("unreachable", {})
        gone = {site: since for site, since in unreachable.items() if time.time() > since + SURE}
        if not gone:
            return False
        alive = self.link.signs_of_life()
        return any(alive.get(site, 0.0) > since for site, since in gone.items())
