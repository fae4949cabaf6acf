"""What a party of the federation lets others do, as the files that FLARE reads it from."""

from typing import Any

#: The one class that a job may name at a site, and the one at the server.
EXECUTOR = "allforone.machines.flare.relay.Relay"
CONTROLLER = "allforone.machines.flare.controller.Coordinator"

#: Sites of a federation.
MOST_SITES = 10_000

#: Seconds without a sign of life after which the server takes a site to be gone.
SITE_SILENCE = 30

#: Rights that nobody has anywhere: a job never brings code, and nobody looks into another's machine.
NOBODY = {"byoc": "none", "shell_commands": "none", "server-predeployed-flwr": "none", "clone_job": "none"}


def site_rights() -> dict[str, Any]:
    """At a site: the coordinator may send it jobs and end them; nobody restarts it, reads its files or its logs."""
    coordinator = {"submit_job": "any", "manage_job": "any", "view": "any", "operate": "none", "download_job": "none"}
    return _rights(coordinator)


def server_rights() -> dict[str, Any]:
    """At the server: the coordinator may start runs, follow them and end them."""
    return _rights(dict.fromkeys(("submit_job", "manage_job", "view", "operate", "download_job", "app_command"), "any"))


def _rights(coordinator: dict[str, str]) -> dict[str, Any]:
    nothing = dict.fromkeys(coordinator, "none")
    roles = {"project_admin": coordinator, "lead": coordinator, "org_admin": nothing, "member": nothing}
    return {"format_version": "1.0", "permissions": {role: {**rights, **NOBODY} for role, rights in roles.items()}}


def site_resources() -> dict[str, Any]:
    """FLARE's parts at a site; that which sends its logs to the server is left out, and forbidden as well."""
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [EXECUTOR],
        "allow_log_streaming": False,
        "client": {"retry_timeout": 30, "compression": "Gzip"},
        "components": [
            _part("resource_manager", "resource_managers.gpu_resource_manager.GPUResourceManager", **_NO_GPUS),
            _part("resource_consumer", "resource_consumers.gpu_resource_consumer.GPUResourceConsumer"),
            _part("process_launcher", "job_launcher.client_process_launcher.ClientProcessJobLauncher"),
        ],
    }


_NO_GPUS = {"num_of_gpus": 0, "mem_per_gpu_in_GiB": 0, "expiration_period": 300}


def server_resources(storage: str) -> dict[str, Any]:
    """FLARE's parts at the server, with its jobs and snapshots in the folder `storage`, from the root."""
    kept = {"root_dir": f"{storage}/snapshots", "uri_root": "/"}
    store = {"path": "nvflare.app_common.storages.filesystem_storage.FilesystemStorage"}
    persistor = "nvflare.app_common.state_persistors.storage_state_persistor.StorageStatePersistor"
    limits = {"max_num_clients": MOST_SITES, "heart_beat_timeout": SITE_SILENCE, "admin_timeout": 10.0}
    manager = {"uri_root": jobs_in(storage), "job_store_id": "job_store"}
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [CONTROLLER],
        "allow_log_streaming": False,
        "servers": [{"admin_storage": "transfer", "download_job_url": "http://not.used/", **limits}],
        "snapshot_persistor": {"path": persistor, "args": {"uri_root": "/", "storage": {**store, "args": kept}}},
        "components": [
            _part("job_scheduler", "job_schedulers.job_scheduler.DefaultJobScheduler", **_SCHEDULE),
            {"id": "job_manager", "path": "nvflare.apis.impl.job_def_manager.SimpleJobDefManager", "args": manager},
            {"id": "job_store", **store},
            _part("process_launcher", "job_launcher.server_process_launcher.ServerProcessJobLauncher"),
        ],
    }


def jobs_in(storage: str) -> str:
    return f"{storage}/jobs"


#: A job that finds too few sites is tried again every few seconds, for as long as it takes.
_SCHEDULE = {
    "max_jobs": 4,
    "max_schedule_count": 1_000_000,
    "min_schedule_interval": 2.0,
    "max_schedule_interval": 10.0,
}


def _part(name: str, path: str, **arguments: Any) -> dict[str, Any]:
    return {"id": name, "path": f"nvflare.app_common.{path}", "args": arguments}
