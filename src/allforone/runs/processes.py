"""Runs in processes of their own, which say how far they are, stop when told, and end with their parent."""

import multiprocessing
import os
import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple

import torch

from .. import stopping


class Progress(NamedTuple):
    """A round of one of the runs, for whoever watches."""

    job: int
    round: int
    loss: float


Watch = Callable[[Progress], None]
Run = Callable[[int, Watch], str | None]  #: the number of a run, and whom it tells its progress → why it failed


class _Worker:
    """In a worker process: where its progress goes."""

    progress: Any


def _enter_worker(progress: Any, stop: Any) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    stopping.obey(stop.is_set)
    _Worker.progress = progress
    progress.cancel_join_thread()  # nobody may be left to read it
    torch.set_num_threads(1)


def _end_with_parent() -> None:
    """Killed, a parent tells nobody: its end is seen by the pipe that it held open, on every system."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(run: Run, number: int) -> str | None:
    return run(number, _Worker.progress.put)


def run_in_processes(
    run: Run, numbers: Iterable[int], workers: int, watch: Watch | None, note: Callable[[int, str | None], None]
) -> None:
    """run(number, …) for each number; `note` is told how each ended."""
    context = multiprocessing.get_context("spawn")
    progress, stop = context.Queue(), context.Event()
    with stopping.patiently(), ProcessPoolExecutor(workers, context, _enter_worker, (progress, stop)) as pool:
        stopping.keeps("every run up to its last checkpoint is kept")
        futures: dict[int, Future[str | None]] = {number: pool.submit(_work, run, number) for number in numbers}
        try:
            while True:
                stopping.check()
                over = all(future.done() for future in futures.values())
                try:
                    seen = progress.get(timeout=0.2)
                    if watch:
                        watch(seen)
                except queue.Empty:
                    if over:
                        break
        except BaseException:
            stop.set()
            for future in futures.values():
                future.cancel()
            raise
    for number, future in futures.items():
        try:
            note(number, future.result())
        except BrokenProcessPool:
            note(number, "its process was ended from outside, as where memory is short; try --workers 1")
        except stopping.Interrupted:
            note(number, "its process was asked to end")
