"""What is run for the paper's figures and tables: each problem at the paper's settings, or small and quick."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..algorithms import PAPER_ALGORITHMS
from ..catalogue import folder_name
from ..errors import InputError
from ..problems import Problem
from ..runs import Job, Watch, compare, load_problem, parse, plan, read_comparison
from . import printed
from .scores import Summary
from .summary import summarise

BASELINES = ("ditto", "cobo", "wga-bc", "apfl")
#: The algorithms under whose names the paper's authors ran something else; see docs/algorithms.md.
OTHERWISE = ("all-for-one-binary", "all-for-one-continuous", "fedavg", *BASELINES)
#: An algorithm → what stands in the tables for what the paper's authors ran under its name.
AS_PUBLISHED = {name: f"{name}-as-published" for name in (*OTHERWISE, "local")}

ShowProgress = Callable[[list[Job]], AbstractContextManager[Watch]]


@dataclass(frozen=True)
class Experiment:
    title: str
    problem: dict[str, Any]
    quick_problem: dict[str, Any] = field(default_factory=dict)  #: what is smaller about the problem when quick
    quick: dict[str, Any] = field(default_factory=dict)  #: and about the run
    variants: tuple[str, ...] = OTHERWISE  #: the algorithms that also run as the paper's authors ran them
    published: dict[str, Any] = field(default_factory=dict)  #: what the authors had otherwise about the problem

    def base(self, quick: bool, as_published: bool = False) -> dict[str, Any]:
        problem = {**self.problem, **(self.quick_problem if quick else {}), **(self.published if as_published else {})}
        return {"problem": problem, **(self.quick if quick else {})}

    def make(self, quick: bool = False, seed: int = 127) -> Problem:
        return load_problem(parse(self.base(quick)).problem, seed)


EXPERIMENTS = {
    "synthetic-2": Experiment("Synth. d = 2", {"name": "synthetic", "dimension": 2}, quick={"rounds": 20}),
    "synthetic-10": Experiment("Synth. d = 10", {"name": "synthetic", "dimension": 10}, quick={"rounds": 50}),
    "mnist": Experiment(
        "Mnist", {"name": "mnist"}, {"clients": 4, "samples_per_client": 200}, {"rounds": 5, "inner": 10}, BASELINES
    ),
    "cifar10": Experiment(
        "Cifar10",
        {"name": "cifar10"},
        {"clients": 4, "samples_per_client": 200},
        {"rounds": 5, "inner": 10, "optimizer": {"lr": 0.01}},
        published={"as_published": True},
    ),
    "heart-disease": Experiment("Heart disease", {"name": "heart-disease"}, quick={"rounds": 5, "inner": 20}),
    "ixi": Experiment(
        "Ixi",
        {"name": "ixi"},
        {"volumes_per_client": 4},
        {"rounds": 1, "inner": 1, "batch_size": 2},
        published={"as_published": True},
    ),
}
REAL = [name for name, experiment in EXPERIMENTS.items() if experiment.problem["name"] != "synthetic"]


#: Ours, on real data besides: there asking at every update may be too much.
ONCE_A_ROUND = "all-for-one-round"


class Contender(NamedTuple):
    """Who stands in the tables under a name."""

    algorithm: str
    folder: str  #: of its runs
    as_published: bool  #: whether it is given the problem as the paper's authors had it


def contenders(name: str) -> dict[str, Contender]:
    """By what each is called, in the order of the tables."""
    experiment = EXPERIMENTS[name]
    every = [*PAPER_ALGORITHMS]
    if name in REAL:
        every.insert(1, ONCE_A_ROUND)
    found = {ours: Contender(ours, name, False) for ours in every}
    apart = bool(experiment.published)
    folder = f"{name}-as-published" if apart else name
    if apart:  # Local is Local, on another problem
        found[AS_PUBLISHED["local"]] = Contender("local", folder, apart)
    variants = [AS_PUBLISHED[name] for name in experiment.variants]
    return found | {theirs: Contender(theirs, folder, apart) for theirs in variants}


class Way(NamedTuple):
    """How runs are made."""

    seeds: list[int]
    quick: bool = False
    only: Sequence[str] | None = None  #: names of contenders, where not all are wanted
    workers: int | None = None


def compute(name: str, way: Way, out: Path, progress: ShowProgress) -> tuple[list[Summary], dict[str, str]]:
    """Run what is not there yet; all that is there then, and why a run failed."""
    chosen = {shown: who for shown, who in contenders(name).items() if way.only is None or shown in way.only}
    found: list[Summary] = []
    failed: dict[str, str] = {}
    for as_published in (False, True):
        shown = {who.algorithm: shown for shown, who in chosen.items() if who.as_published == as_published}
        if not shown:
            continue
        place = out / next(chosen[each].folder for each in shown.values())
        base = EXPERIMENTS[name].base(way.quick, as_published)
        jobs = plan(base, [*shown], way.seeds, place, skip_impossible=True)
        with progress(jobs) as watch:
            failed |= compare(jobs, place, resumed=True, workers=way.workers, watch=watch)
        for run in read_comparison(place).runs:
            if run.seed in way.seeds and run.algorithm in shown:
                path = place / "runs" / folder_name(run.algorithm) / str(run.seed)
                found.append(summarise(shown[run.algorithm], run, path, trained=name in REAL))
    return found, failed


def settings_table(quick: bool) -> list[list[str]]:
    """The settings that are used, from the problems themselves; a problem without its data has none to show."""
    titles = ["", *(experiment.title for experiment in EXPERIMENTS.values())]
    columns = [_beside_print(name, _settings(experiment, quick)) for name, experiment in EXPERIMENTS.items()]
    keys = list(next(column for column in columns if column))
    return [titles, *([key, *(column.get(key, "no data") for column in columns)] for key in keys)]


def _beside_print(name: str, settings: dict[str, str]) -> dict[str, str]:
    """Where the paper prints another value than is used, that too."""
    others = {key: f"{value:g}" for key, value in printed.SETTINGS.get(name, {}).items()}
    return {
        key: f"{value} (printed {others[key]})" if others.get(key, value) != value else value
        for key, value in settings.items()
    }


def _settings(experiment: Experiment, quick: bool) -> dict[str, str]:
    try:
        problem = experiment.make(quick)
    except InputError:
        return {}
    run, given = problem.settings, parse(experiment.base(quick))
    optimizer = {**run.optimizer, **(given.optimizer.options if given.optimizer else {})}
    scheduler = run.scheduler
    model = problem.initial_model(0)
    streams = all(client.size == 1 for client in problem.clients)
    return {
        "clients": str(len(problem.clients)),
        "samples": "a stream" if streams else str(sum(client.size for client in problem.clients)),
        "parameters": str(sum(p.numel() for p in model.parameters() if p.requires_grad)),
        "rounds": str(given.rounds or run.rounds),
        "inner": str(given.inner or run.inner),
        "b": str(given.batch_size or run.batch_size),
        "b_α": str(run.estimation),
        "step size": f"{optimizer['lr']:g}",
        "momentum": f"{optimizer.get('momentum', 0):g}",
        "decay": f"{optimizer.get('weight_decay', 0):g}",
        "scheduler": f"{scheduler['name']}({scheduler['step_size']}, {scheduler['gamma']})" if scheduler else "none",
    }
