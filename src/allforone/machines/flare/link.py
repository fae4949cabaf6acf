"""The coordinator's line to the server, over FLARE's admin interface: start a job, find it, ask it something."""

import contextlib
import io
import json
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from ...errors import InputError
from . import policies
from .messages import SETTINGS, TOPIC
from .provision import missing_flare

Found = TypeVar("Found")

#: Seconds in which the server must answer when a line is opened.
PATIENCE = 10.0
#: How FLARE calls the state of a job that is over, and that of one which somebody ended.
OVER, ABORTED = "FINISHED", "FINISHED:ABORTED"


class Unreachable(InputError):  # noqa: N818  (a state of the world)
    """The server does not answer."""


class Link:
    """A session with the server, opened when it is first needed and again after it broke."""

    def __init__(self, kit: Path, user: str) -> None:
        self.kit, self.user = kit, user
        self._session: Any = None

    def __enter__(self) -> "Link":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
                session.close()

    def submit(self, name: str, settings: dict[str, Any], least_sites: int) -> str:
        """Start a job with these plain values; its number. FLARE waits until `least_sites` are there."""
        with tempfile.TemporaryDirectory() as work:
            folder = write_job(Path(work), name, settings, least_sites)
            return str(self._call(lambda session: session.submit_job(str(folder))))

    def newest(self, name: str) -> dict[str, Any] | None:
        """The last job of a run, as FLARE describes it."""
        jobs = self._call(lambda session: session.list_jobs(detailed=True, name_prefix=name))
        mine = [job for job in jobs if job.get("job_name", job.get("name")) == name]
        return max(mine, key=lambda job: str(job.get("submit_time")), default=None)

    def ask(self, job: str, what: str, **values: Any) -> dict[str, Any] | None:
        """What a job answers; None while it is not running yet, or no longer."""
        from nvflare.fuel.flare_api.api_spec import InternalError, JobNotRunning, NoReply

        try:
            return dict(self._call(lambda session: session.do_app_command(job, TOPIC, {"what": what, **values})))
        except (JobNotRunning, NoReply, InternalError):
            return None

    def signs_of_life(self) -> dict[str, float]:
        """When each connected site was last heard of, in seconds since the epoch."""
        sites = self._call(lambda session: session.get_connected_client_list())
        return {site.name: float(site.last_connect_time or 0) for site in sites}

    def end(self, job: str) -> None:
        self._call(lambda session: session.abort_job(job))

    def _call(self, command: Callable[[Any], Found]) -> Found:
        try:
            from nvflare.apis.fl_exception import FLCommunicationError
            from nvflare.fuel.flare_api import api_spec
            from nvflare.fuel.flare_api.flare_api import new_secure_session
        except ImportError:
            raise missing_flare() from None
        lost = (api_spec.NoConnection, api_spec.SessionClosed, api_spec.AuthenticationError)
        broken = (*lost, FLCommunicationError, OSError)
        try:
            if self._session is None:
                logging.getLogger().addHandler(logging.NullHandler())  # else FLARE's warnings go to the terminal
                with contextlib.redirect_stdout(io.StringIO()):  # FLARE says that it connects
                    self._session = new_secure_session(self.user, str(self.kit), timeout=PATIENCE)
            return command(self._session)
        except broken as error:
            self.close()
            raise Unreachable(f"the server of {self.kit} does not answer ({type(error).__name__}); is it up?") from None
        except api_spec.AuthorizationError as error:
            raise InputError(f"the server refuses: {error}") from None
        except api_spec.InvalidJobDefinition as error:
            raise InputError(f"the server refuses the job: {error}") from None


def write_job(work: Path, name: str, settings: dict[str, Any], least_sites: int) -> Path:
    """A job as FLARE wants it: which class at the server, which at the sites, and our settings; no code."""
    folder = work / name
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    controller = {"id": "coordinator", "path": policies.CONTROLLER, "args": {}}
    executor = {"tasks": ["*"], "executor": {"path": policies.EXECUTOR, "args": {}}}
    files = {
        folder / "meta.json": {
            "name": name,
            "deploy_map": {"app": ["@ALL"]},
            "min_clients": least_sites,
            "resource_spec": {},
        },
        config / "config_fed_server.json": {"format_version": 2, "workflows": [controller]},
        config / "config_fed_client.json": {"format_version": 2, "executors": [executor]},
        config / SETTINGS: settings,
    }
    for path, content in files.items():
        path.write_text(json.dumps(content, indent=2))
    return folder
