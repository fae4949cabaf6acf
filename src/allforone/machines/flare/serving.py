"""What the server needs in its kit before FLARE can start it."""

import json
from contextlib import suppress
from pathlib import Path

from . import policies
from .link import Link
from .own import OwnFiles
from .provision import KEEPER, Kit, user_name


def prepare_server(kit: Kit, own: OwnFiles) -> None:
    """Write down its own files, and where FLARE keeps its jobs: in the kit, by its path of today."""
    own.write(kit.path)
    resources = policies.server_resources(_storage(kit))
    (kit.path / "local" / "resources.json").write_text(json.dumps(resources, indent=2))


def end_lost_jobs(kit: Kit) -> None:
    """Before FLARE is started: whatever it takes to be running is not. FLARE itself would believe so for ever, and the
    run of such a job would never be started again."""
    from nvflare.apis.job_def import JobMetaKey, RunStatus
    from nvflare.app_common.storages.filesystem_storage import FilesystemStorage

    store, jobs = FilesystemStorage(), policies.jobs_in(_storage(kit))
    key, running = JobMetaKey.STATUS.value, (RunStatus.RUNNING.value, RunStatus.DISPATCHED.value)
    for job in store.list_objects(jobs) if Path(jobs).is_dir() else ():
        with suppress(Exception):  # a job that cannot be read is none that could be running
            if store.get_meta(job).get(key) in running:
                store.update_meta(job, {key: RunStatus.FINISHED_ABNORMAL.value}, replace=False)


def _storage(kit: Kit) -> str:
    return str(kit.path / "storage")


def keeper_link(kit: Kit) -> Link:
    """The line over which the server starts its own runs again."""
    return Link(kit.path / KEEPER, user_name(KEEPER))
