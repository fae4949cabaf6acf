"""A run at the server, seen from where it was started: sent off as plain settings, followed, and brought home."""

import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from ...errors import InputError
from ...runs import RunConfig, refuse_used
from ...runs.config import Choice, checked_options
from ..presence import Patience
from .fetching import Fetching
from .keeper import check_run_name
from .link import ABORTED, OVER, Link, Unreachable
from .provision import Federation, Kit

#: Seconds between two questions to a run that is followed.
EVERY = 0.5
#: Seconds in which the server itself starts a run again whose job ended too early, before its follower gives up.
SECOND_CHANCE = 90.0

Show = Callable[[int, str], None]  #: the number of a round, and its numbers in words
Say = Callable[[str], None]


def flare(kit: str, deadline: float = 300.0, token: str = "") -> dict[str, Any]:
    """The options of `--fleet flare:kit=…`: the coordinator's kit, and seconds that a site may take for an answer; the
    token is made when a run starts, by which it is told from others of its name."""
    Patience(deadline=deadline)  # which refuses what is no time
    return {"kit": kit, "deadline": deadline, "token": token or uuid.uuid4().hex}


class Remote:
    """A run by its name, at the server of a federation."""

    def __init__(self, config: RunConfig, out: Path) -> None:
        options = flare(**checked_options(flare, config.fleet.options, "fleet flare", ()))
        kit = Kit.open(Path(options["kit"]), "coordinator")
        fleet = Choice(name=config.fleet.name, **{**options, "kit": str(kit.path)})  # found from another folder too
        self.config, self.out, self.name = config.model_copy(update={"fleet": fleet}), out, out.name
        check_run_name(self.name)
        self.federation: Federation = kit.federation
        self.least = config.least_sites or 1
        if self.least > len(kit.federation.sites):
            raise InputError(f"least_sites is {self.least}, and there are {len(kit.federation.sites)} sites")
        self.settings = settings_of_run(config, self.name, kit.federation, options)
        self.link = Link(kit.path, kit.name)

    def start(self) -> str:
        """Send it off, and leave a folder from which `allforone resume` finds it again."""
        refuse_used(self.out)
        job = self.link.submit(self.name, self.settings, len(self.federation.sites))
        self.out.mkdir(parents=True, exist_ok=True)
        told = yaml.safe_dump(self.config.plain(), sort_keys=False, allow_unicode=True)
        (self.out / "config.yaml").write_text(told, encoding="utf-8")
        return job

    def resume(self, say: Say) -> str:
        """The job that is running for it, or a new one that goes on from the last round; the server may be starting."""
        said = ""
        while True:
            try:
                job = self.link.newest(self.name)
                if job is not None and not str(job["status"]).startswith(OVER):
                    return str(job["job_id"])
                return self.link.submit(self.name, self.settings, self.least)
            except Unreachable as error:
                if str(error) != said:
                    say(f"{error} Waiting for it")
                said = str(error)
            time.sleep(EVERY)

    def follow(self, job: str, show: Show, say: Say) -> None:
        """Show its rounds as they come, through restarts of all kinds, until it is done; then fetch its folder."""
        since, notes, patient_until, said = -1, 0, time.monotonic() + SECOND_CHANCE, ""
        files = Fetching(partial(self.link.ask, job), self.out)
        while True:
            try:
                news = self.link.ask(job, "news", since=since, notes=notes)
                now = "" if news else self._where(job)
            except Unreachable as error:
                news, now = None, f"{error} Waiting for it"
                patient_until = time.monotonic() + SECOND_CHANCE
            if news:
                patient_until, said = time.monotonic() + SECOND_CHANCE, ""
                for note in news["notes"]:
                    say(note)
                notes += len(news["notes"])
                for item in news["rounds"]:
                    since = int(item["round"])
                    show(since, str(item["numbers"]))
                if news["rounds"] and news["state"] == "running":
                    self._look(files)
                if news["state"] == "finished":
                    files.all_of_it()
                    self.link.ask(job, "thanks")
                    return
                if news["state"] == "stopped":
                    self.link.ask(job, "thanks")
                    raise InputError(f"{news['why']}. Go on with: allforone resume {self.out}")
            elif now.startswith(OVER):
                before, job = job, self._next(job, now, patient_until)
                if job != before:
                    notes, files = 0, Fetching(partial(self.link.ask, job), self.out)
            elif now and now != said:
                say(now)
                said = now
            time.sleep(EVERY)

    def _look(self, files: Fetching) -> None:
        """What `allforone watch` shows of it. Where that fails, the next question tells why."""
        with suppress(InputError):
            files.look()

    def _where(self, job: str) -> str:
        """What a job that does not answer is waiting for."""
        newest = self.link.newest(self.name)
        status = str(newest["status"]) if newest and newest["job_id"] == job else OVER
        if status == "SUBMITTED":
            missing = [site for site in self.federation.sites if site not in self.link.signs_of_life()]
            return f"waiting for {', '.join(missing)} to join" if missing else ""
        return status if status.startswith(OVER) else ""

    def _next(self, job: str, status: str, patient_until: float) -> str:
        newest = self.link.newest(self.name)
        if newest is not None and newest["job_id"] != job:
            return str(newest["job_id"])
        again = f"Go on with: allforone resume {self.out}"
        if status == ABORTED:
            raise InputError(f"the run was ended by somebody. {again}")
        if time.monotonic() > patient_until:
            raise InputError(f"the run's job ended too early ({status}); the server's log says why. {again}")
        return job


def settings_of_run(config: RunConfig, name: str, federation: Federation, options: dict[str, Any]) -> dict[str, Any]:
    """What travels: plain values, without a path; whose code it is, each party knows itself."""
    if ":" in str(config.algorithm.name):
        raise InputError(f"{config.algorithm.name}: code does not travel to the server; use an algorithm by its name")
    if config.attack:
        raise InputError("attack: an experiment for one process, where all sites are one's own; leave it out")
    if config.private:
        raise InputError(
            "private: models are at the server, so that nothing of them would be private; train on --fleet stacked"
        )
    if config.device:
        raise InputError("device: sites on machines of their own compute on the CPU; leave it out")
    plain = {key: value for key, value in config.plain().items() if key not in ("problem", "fleet")}
    return {
        "run": name,
        "config": plain,
        "sites": list(federation.sites),
        "least_sites": config.least_sites or 1,
        "deadline": options["deadline"],
        "token": options["token"],
    }
