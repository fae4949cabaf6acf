"""Many runs of one problem, algorithms × seeds, each in its own folder, in parallel processes where that is faster."""

import multiprocessing
import os
import queue
import signal
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..catalogue import folder_name, label, split_options
from ..errors import Diverged, InputError
from ..fleet import Roster
from ..problems import hold_out
from .config import PAPER_SEEDS, RunConfig, pairs, parse
from .folder import Folder, differences, refuse_used
from .history import Record
from .parts import load_problem
from .run import HELD_OUT, Given, execute, prepare

#: Seconds of work left above which starting Python anew on every core pays.
WORTH_PROCESSES = 20.0


class Job(NamedTuple):
    config: RunConfig
    path: Path

    @property
    def name(self) -> str:
        return f"{self.config.shown}, seed {self.config.seed}"


class Progress(NamedTuple):
    """A round of one of the runs, for whoever watches."""

    job: int
    round: int
    loss: float


Watch = Callable[[Progress], None]


def parse_seeds(text: str) -> list[int]:
    """'127,496' are these seeds; a lone number up to 20 is how many: '3' is the paper's three."""
    try:
        found = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InputError(f"seeds '{text}': expected whole numbers such as 127,496,1729, or how many: 3") from None
    if len(found) == 1 and "," not in text and 1 <= found[0] <= 20:
        more = torch.randint(2000, 10**6, (20,), generator=torch.Generator().manual_seed(0)).tolist()
        return [*PAPER_SEEDS, *more][: found[0]]
    if not found or len(set(found)) != len(found):
        raise InputError(f"seeds '{text}': give different whole numbers, such as 127,496,1729")
    return found


def plan(
    base: dict[str, Any], algorithms: list[str], seed_list: list[int], out: Path, *, skip_impossible: bool = False
) -> list[Job]:
    """The runs of a comparison. `base` is a config without algorithm and seed; nothing is run or written yet.

    An algorithm may carry options of its own: `ditto:penalty=1`.

    With `skip_impossible`, the oracle is left out where the true clusters are not known.
    """
    if len({label(spoken) for spoken in algorithms}) != len(algorithms) or not algorithms:
        raise InputError(f"algorithms '{','.join(algorithms)}': give at least one, each once")
    given = base.get("algorithm") or {}
    common = {k: v for k, v in given.items() if k != "name"} if isinstance(given, dict) else {}
    if common and len(algorithms) > 1:
        raise InputError(
            f"algorithm options {', '.join(common)} fit a single algorithm; "
            f"to tell them apart write name:{next(iter(common))}=value in --algorithms"
        )
    configs = []
    for spoken in algorithms:
        name, options = split_options(spoken)
        choice = {**common, **pairs(options, "--algorithms"), "name": name}
        shown = label(spoken) if options else None
        configs.append(parse({**base, "algorithm": choice, "seed": seed_list[0], "label": shown}))
    problem = load_problem(configs[0].problem, seed_list[0])
    runs = [prepare(config, Given(problem=problem)) for config in configs]
    if skip_impossible and problem.clusters is None:
        runs = [run for run in runs if not run.algorithm.needs_clusters]
    for run in runs:
        run.check()  # a mistake shows before the first hour of computing, not after
    schedule = configs[0].schedule
    configs = [run.config for run in runs]

    def of_seed(config: RunConfig, seed: int) -> RunConfig:
        """The constants of a schedule and a loss may depend on the seed, so every run finds its own."""
        return config.model_copy(update={"seed": seed, "schedule": schedule, "identity": None})

    return [
        Job(of_seed(config, seed), out / "runs" / folder_name(config.shown) / str(seed))
        for config in configs
        for seed in seed_list
    ]


def compare(
    jobs: list[Job], out: Path, *, resumed: bool = False, workers: int | None = None, watch: Watch | None = None
) -> dict[str, str]:
    """Run what is not done yet. Returns the reason for each run that diverged; the others are not held up by it."""
    if not resumed:
        refuse_used(out)
    _refuse_others(jobs)
    left = [number for number, job in enumerate(jobs) if not Folder(job.path).finished]
    failed: dict[str, str] = {}
    for number in {*range(len(jobs))} - {*left}:
        if watch:
            watch(Progress(number, jobs[number].config.rounds or 0, 0.0))

    def note(number: int, reason: str | None) -> None:
        if reason:
            failed[jobs[number].name] = reason

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # one run, one core: the runs share the machine, and results do not depend on how many
    try:
        begin = time.monotonic()
        if left:
            note(left[0], _run(jobs[left[0]], left[0], watch))
        cores = workers or os.cpu_count() or 1
        spent, rest = time.monotonic() - begin, left[1:]
        if cores > 1 and (workers or spent * len(rest) > WORTH_PROCESSES):
            _run_in_processes(jobs, rest, cores, watch, note)
        else:
            for number in rest:
                note(number, _run(jobs[number], number, watch))
    finally:
        torch.set_num_threads(threads)
    return failed


def _refuse_others(jobs: list[Job]) -> None:
    """A folder that holds another run than its job would be now, by settings, code or data, is an error."""
    begun = [job for job in jobs if (job.path / "config.yaml").exists()]
    for seed in dict.fromkeys(job.config.seed for job in begun):
        of_seed = [job for job in begun if job.config.seed == seed]
        config = of_seed[0].config
        problem = load_problem(config.problem, seed)
        seen = hold_out(problem, HELD_OUT, seed) if config.guard else problem
        roster = Roster.of(seen.clients)
        for job in of_seed:
            folder, wanted = Folder(job.path), prepare(job.config, Given(problem=problem)).config.plain()
            if different := differences(folder.config, wanted, rounds=True) + folder.other_clients(roster):
                raise InputError(f"{job.path} holds a run with another {', '.join(different)}: choose another --out")


def _run(job: Job, number: int, watch: Watch | None) -> str | None:
    def on_round(record: Record) -> None:
        if watch:
            watch(Progress(number, record.number, float(record.evaluation.loss.nanmean())))

    try:
        begun = (job.path / "config.yaml").exists()
        execute(prepare(job.config), job.path, resume=begun, on_round=on_round)
    except Diverged as error:
        return str(error)
    return None


class _Worker:
    """In a worker process: where its progress goes, and whether to stop."""

    progress: Any
    stop: Any


def _enter_worker(progress: Any, stop: Any) -> None:
    _Worker.progress, _Worker.stop = progress, stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which tells the workers to stop
    torch.set_num_threads(1)


def _work(job: Job, number: int) -> str | None:
    def watch(seen: Progress) -> None:
        if _Worker.stop.is_set():
            raise KeyboardInterrupt
        _Worker.progress.put(seen)

    return _run(job, number, watch)


def _run_in_processes(
    jobs: list[Job], numbers: Iterable[int], workers: int, watch: Watch | None, note: Callable[[int, str | None], None]
) -> None:
    context = multiprocessing.get_context("spawn")
    progress, stop = context.Queue(), context.Event()
    with ProcessPoolExecutor(workers, context, _enter_worker, (progress, stop)) as pool:
        futures: dict[int, Future[str | None]] = {j: pool.submit(_work, jobs[j], j) for j in numbers}
        try:
            while True:
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
        note(number, future.result())
