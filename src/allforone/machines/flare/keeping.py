"""A child process that answers questions, started anew whenever it dies or is too late."""

import queue
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from . import frames

#: Seconds before a child that died is started again: they double from one to the other while it gives no answer.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0


class Unanswered(Exception):  # noqa: N818  (what happened, said to the coordinator)
    """Why there is no answer: a sentence of ours."""


class Kept:
    """A child that is sent questions and gives answers, one at a time, on its standard input and output.

    Its first message, numbered 0, says that it is ready. What it writes to standard error goes to the file `log`.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.command, self.log = list(command), log
        self._turn, self._ended, self._ready = threading.Lock(), threading.Event(), threading.Event()
        self._answers: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._number, self._pause = 0, FIRST_PAUSE
        self._keeper = threading.Thread(target=self._keep, name="keeps the child alive", daemon=True)

    def start(self) -> None:
        self._keeper.start()

    def stop(self) -> None:
        self._ended.set()
        if self._process is not None:
            self._process.kill()
        self._keeper.join(timeout=5)

    def ask(self, question: bytes, seconds: float) -> bytes:
        """Its answer. Who is late is killed, and is there again once it has started anew."""
        until = time.monotonic() + seconds
        if not self._turn.acquire(timeout=seconds):
            raise Unanswered(f"busy with another question for {seconds:g} s")
        try:
            process = self._process
            if process is None or not self._ready.is_set():
                raise Unanswered("its process is starting")
            late = threading.Timer(until - time.monotonic(), process.kill)
            late.daemon = True
            late.start()
            try:
                return self._exchange(process, question)
            except (OSError, Unanswered):
                self._ready.clear()
                late_by = time.monotonic() >= until
                raise Unanswered(f"no answer within {seconds:g} s" if late_by else "its process died") from None
            finally:
                late.cancel()
        finally:
            self._turn.release()

    def _exchange(self, process: subprocess.Popen[bytes], question: bytes) -> bytes:
        assert process.stdin is not None
        self._number += 1
        frames.send(process.stdin, self._number, question)
        while (answer := self._answers.get()) is not None:
            if answer[0] == self._number:  # else of a question before, which was given up
                self._pause = FIRST_PAUSE
                return answer[1]
        raise Unanswered("its process died")

    def _keep(self) -> None:
        while not self._ended.is_set():
            with self.log.open("ab") as log:
                process = subprocess.Popen(
                    self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, bufsize=1 << 20
                )
            self._answers, self._process = queue.SimpleQueue(), process
            if self._ended.is_set():  # stopped while it was being started
                process.kill()
            self._read(process, self._answers)
            self._ready.clear()
            process.kill()
            process.wait()
            self._answers.put(None)
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):  # what it no longer read is lost with it
                    pipe.close()  # type: ignore[union-attr]
            self._ended.wait(self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _read(self, process: subprocess.Popen[bytes], answers: "queue.SimpleQueue[tuple[int, bytes] | None]") -> None:
        assert process.stdout is not None
        while (message := frames.receive(process.stdout)) is not None:
            if message[0] == 0:
                self._ready.set()
            else:
                answers.put(message)
