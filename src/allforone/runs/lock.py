"""One writer for each run folder: the kernel's lock, which ends with the process, and a note that says who holds it."""

import errno
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from ..errors import InputError, notice
from ..opening import content_of

try:
    import fcntl
except ImportError:  # Windows, where nobody else can open what is being written
    fcntl = None  # type: ignore[assignment]

#: The note; without the lock it says nothing.
HOLDER = "running.json"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Be the only one who writes into this folder, which is made if it is not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InputError(f"{path} is a file, not a folder: nothing was overwritten; choose another --out") from None
    if fcntl is None:
        yield
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        _take(folder, path)
        with suppress(OSError):  # the lock is what counts
            (path / HOLDER).unlink(missing_ok=True)
            (path / HOLDER).write_text(json.dumps(_ourselves()), encoding="utf-8")
        try:
            yield
        finally:
            with suppress(OSError):
                (path / HOLDER).unlink()
    finally:
        os.close(folder)


def _take(folder: int, path: Path) -> None:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise InputError(
                f"{path} is being written by {_holder(path)}: nothing was changed; wait for it or end it first"
            ) from None
        notice(
            f"{path}: this file system has no locks ({error.strerror}): see to it that no other process writes there"
        )


def _ourselves() -> dict[str, object]:
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now().isoformat(" ", "seconds")}


def _holder(path: Path) -> str:
    try:
        who = json.loads(content_of(path / HOLDER))
        return f"process {who['pid']} on {who['host']} since {who['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
