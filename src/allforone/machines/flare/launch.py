"""FLARE's own processes of a party, with the interpreter of this one, kept running until they are told to end."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ...errors import InputError
from .provision import Kit

#: Seconds before a process that died is started again: they double from one to the other.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
#: Seconds of life after which a process is taken to be well, and the next pause to be short again.
WELL = 60.0
#: Seconds between the signs of life that a site gives the server.
SIGN_OF_LIFE = 5.0

#: FLARE's settings that are read from the environment: a run that is over does not wait long for a site that is gone.
ENVIRONMENT = {"NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": "10"}

#: What FLARE writes to its log once a party is there.
STARTED = {"server": "Server started", "site": "Successfully registered client"}


def command(kit: Kit) -> list[str]:
    """What FLARE's start script would run, but with this interpreter."""
    kind = "server" if kit.role == "server" else "client"
    values = ["secure_train=true", "org=allforone", "config_folder=config"]
    if kind == "client":
        values += [f"uid={kit.name}", f"heart_beat_interval={SIGN_OF_LIFE}"]
    module = f"nvflare.private.fed.app.{kind}.{kind}_train"
    return [sys.executable, "-u", "-m", module, "-m", str(kit.path), "-s", f"fed_{kind}.json", "--set", *values]


class Launched:
    """The process of a party, in a session of its own, since FLARE kills its whole group when a parent is gone; `died`
    is told when it ended by itself, and `before` is done before it is started, each time."""

    def __init__(self, kit: Kit, died: Callable[[str], None], before: Callable[[], None] = lambda: None) -> None:
        self.kit, self.log = kit, kit.path / "flare.log"
        self._environment, self._died, self._before = {**os.environ, **ENVIRONMENT}, died, before
        self._ended, self.there = threading.Event(), threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper = threading.Thread(target=self._keep, name="keeps FLARE running", daemon=True)

    def __enter__(self) -> "Launched":
        self._lock = (self.kit.path / "lock").open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise InputError(f"{self.kit.path} is in use: another command runs with this kit; end that first") from None
        self._end_left_over()
        self._keeper.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        if self._process is not None:
            end_all(self._process.pid)
        self._keeper.join()
        self._lock.close()

    def forever(self) -> None:
        """Until Ctrl-C, or until the process that asks for it to end."""
        while True:
            time.sleep(3600)

    def _end_left_over(self) -> None:
        """What a command that was killed has left running: nobody else has the lock, so nobody else's."""
        import psutil

        for process in psutil.process_iter(["pid", "cmdline"]):
            if process.info["cmdline"] == command(self.kit):
                end_all(process.pid)

    def _keep(self) -> None:
        pause = FIRST_PAUSE
        while not self._ended.is_set():
            self._before()
            with self.log.open("ab") as log:
                at = log.tell()
                self._process = subprocess.Popen(
                    command(self.kit),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                    start_new_session=True,
                )
            if self._ended.is_set():  # told to end while it was being started
                end_all(self._process.pid)
            lived = self._watch(self._process, at)
            self.there.clear()
            if self._ended.is_set():
                return
            pause = FIRST_PAUSE if lived > WELL else pause
            self._died(f"FLARE's process ended by itself; started again in {pause:g} s (see {self.log})")
            self._ended.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _watch(self, process: subprocess.Popen[bytes], at: int) -> float:
        """Seconds that it lived; on the way, whether it has said that it is there."""
        lived = 0.0
        while process.poll() is None:
            if not self.there.is_set() and STARTED[self.kit.role] in _since(self.log, at):
                self.there.set()
            self._ended.wait(0.2)
            lived += 0.2
        return lived


def _since(log: Path, at: int) -> str:
    with log.open("rb") as file:
        file.seek(at)
        return file.read().decode(errors="replace")


def end_all(process: int) -> None:
    """End a process and all that it started, and wait until they are gone."""
    import psutil

    with suppress(psutil.NoSuchProcess):
        top = psutil.Process(process)
        all_of_it = [top, *top.children(recursive=True)]
        for one in all_of_it:
            with suppress(psutil.NoSuchProcess):
                one.send_signal(signal.SIGKILL)
        psutil.wait_procs(all_of_it, timeout=5)
