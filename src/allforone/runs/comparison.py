"""Many runs of one problem, algorithms × seeds, each in its own folder, in parallel processes where that is faster."""

import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .. import stopping
from ..catalogue import folder_name, label, split_options
from ..errors import InputError, explained, short
from ..fleet import Roster
from .config import PAPER_SEEDS, RunConfig, pairs, parse
from .folder import Folder, differences, refuse_used
from .history import Record
from .parts import load_problem
from .processes import Progress, Watch, run_in_processes
from .run import Given, as_seen, computing_on, execute, prepare

#: Seconds of work left above which starting Python anew on every core pays.
WORTH_PROCESSES = 20.0


class Job(NamedTuple):
    config: RunConfig
    path: Path

    @property
    def name(self) -> str:
        return f"{self.config.shown}, seed {self.config.seed}"


class Entry(NamedTuple):
    """One algorithm of a comparison."""

    algorithm: dict[str, Any]  #: its name and options, as in YAML
    label: str | None = None  #: what tables call it, where its name is not enough
    more: dict[str, Any] | None = None  #: what else of the config is its own


def parse_seeds(text: str) -> list[int]:
    """'127,496' are these seeds; a lone number up to 20 is how many: '3' is the paper's three."""
    try:
        found = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InputError(f"seeds '{short(text)}': expected whole numbers as 127,496,1729, or how many: 3") from None
    if len(found) == 1 and "," not in text and 1 <= found[0] <= 20:
        more = torch.randint(2000, 10**6, (20,), generator=torch.Generator().manual_seed(0)).tolist()
        return [*PAPER_SEEDS, *more][: found[0]]
    if not found or len(set(found)) != len(found):
        raise InputError(f"seeds '{short(text)}': give different whole numbers, such as 127,496,1729")
    return found


def plan(
    base: dict[str, Any], algorithms: list[str], seed_list: list[int], out: Path, *, skip_impossible: bool = False
) -> list[Job]:
    """The runs of a comparison. `base` is a config without algorithm and seed; nothing is run or written yet.

    An algorithm may carry options of its own: `ditto:penalty=1`.

    With `skip_impossible`, the oracle is left out where the true clusters are not known.
    """
    if len({label(spoken) for spoken in algorithms}) != len(algorithms) or not algorithms:
        raise InputError(f"algorithms '{short(','.join(algorithms))}': give at least one, each once")
    given = base.get("algorithm") or {}
    common = {k: v for k, v in given.items() if k != "name"} if isinstance(given, dict) else {}
    if common and len(algorithms) > 1:
        raise InputError(
            f"algorithm options {', '.join(common)} fit a single algorithm; "
            f"to tell them apart write name:{next(iter(common))}=value in --algorithms"
        )
    entries = []
    for spoken in algorithms:
        name, options = split_options(spoken)
        choice = {**common, **pairs(options, "--algorithms"), "name": name}
        entries.append(Entry(choice, label(spoken) if options else None))
    return plan_entries(base, entries, seed_list, out, skip_impossible=skip_impossible)


def plan_entries(
    base: dict[str, Any], entries: Sequence[Entry], seed_list: list[int], out: Path, *, skip_impossible: bool = False
) -> list[Job]:
    """As `plan`, of algorithms that are not spoken."""
    configs = [
        parse({**base, **(entry.more or {}), "algorithm": entry.algorithm, "seed": seed_list[0], "label": entry.label})
        for entry in entries
    ]
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

    places = {folder_name(config.shown): config.shown for config in configs}
    if len(places) != len(configs):
        alike = next(config.shown for config in configs if config.shown not in places.values())
        raise InputError(f"algorithms: the folder of '{short(alike)}' would be that of another; write it otherwise")
    return [
        Job(of_seed(config, seed), out / "runs" / folder_name(config.shown) / str(seed))
        for config in configs
        for seed in seed_list
    ]


def compare(
    jobs: list[Job], out: Path, *, resumed: bool = False, workers: int | None = None, watch: Watch | None = None
) -> dict[str, str]:
    """Run what is not done yet. Returns the reason for each run that failed; the others are not held up by it."""
    if not resumed:
        refuse_used(out)
    out.mkdir(parents=True, exist_ok=True)  # where that fails, it is said once, not for every run
    broken = _refuse_others(jobs)
    failed = {jobs[number].name: reason for number, reason in broken.items()}
    left = [number for number, job in enumerate(jobs) if number not in broken and not Folder(job.path).finished]
    for number in {*range(len(jobs))} - {*left, *broken}:
        if watch:
            watch(Progress(number, jobs[number].config.rounds or 0, 0.0))

    def note(number: int, reason: str | None) -> None:
        if reason:
            failed[jobs[number].name] = reason

    with computing_on(1):  # one run, one core: the runs share the machine, and results do not depend on how many
        begin = time.monotonic()
        if left:
            note(left[0], _run(jobs[left[0]], left[0], watch))
        cores = workers or os.cpu_count() or 1
        spent, rest = time.monotonic() - begin, left[1:]
        if rest and cores > 1 and (workers or spent * len(rest) > WORTH_PROCESSES):
            run_in_processes(partial(_run_job, jobs), rest, min(cores, len(rest)), watch, note)
        else:
            for number in rest:
                note(number, _run(jobs[number], number, watch))
    return failed


def _refuse_others(jobs: list[Job]) -> dict[int, str]:
    """A folder that holds another run than its job would be now, by settings, code or data, is an error; one that
    cannot be read is named with the reason."""
    broken: dict[int, str] = {}
    begun = {number: job for number, job in enumerate(jobs) if Folder(job.path).checkpoints}
    for seed in dict.fromkeys(job.config.seed for job in begun.values()):
        of_seed = {number: job for number, job in begun.items() if job.config.seed == seed}
        config = next(iter(of_seed.values())).config
        problem = load_problem(config.problem, seed)
        roster = Roster.of(as_seen(problem, config).clients)
        for number, job in of_seed.items():
            folder, wanted = Folder(job.path), prepare(job.config, Given(problem=problem)).config.plain()
            try:
                different = differences(folder.began, wanted, rounds=True) + folder.other_clients(roster)
            except InputError as error:
                broken[number] = f"{error}; remove {job.path} to make this run anew"
                continue
            if different:
                raise InputError(f"{job.path} holds a run with another {', '.join(different)}: choose another --out")
    return broken


def _run(job: Job, number: int, watch: Watch | None) -> str | None:
    """Why it failed."""

    def on_round(record: Record) -> None:
        if watch:
            watch(Progress(number, record.number, float(record.evaluation.loss.nanmean())))

    stopping.check()
    try:
        execute(prepare(job.config), job.path, resume=bool(Folder(job.path).checkpoints), on_round=on_round)
    except Exception as error:  # the others are not held up
        return explained(error)
    return None


def _run_job(jobs: list[Job], number: int, watch: Watch) -> str | None:
    return _run(jobs[number], number, watch)
