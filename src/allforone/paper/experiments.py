"""What is run for the paper's figures and tables: each problem at the paper's settings, or small and quick."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..algorithms import PAPER_ALGORITHMS
from ..errors import InputError
from ..problems import Problem
from ..runs import Comparison, Job, Watch, compare, load_problem, parse, plan, read_comparison
from . import printed

BASELINES = ("ditto", "cobo", "wga-bc", "apfl")
#: An algorithm → what the paper's authors ran under its name, which was something else; see docs/algorithms.md.
AS_PUBLISHED = {
    name: f"{name}-as-published" for name in ("all-for-one-binary", "all-for-one-continuous", "fedavg", *BASELINES)
}

ShowProgress = Callable[[list[Job]], AbstractContextManager[Watch]]


@dataclass(frozen=True)
class Experiment:
    title: str
    problem: dict[str, Any]
    quick_problem: dict[str, Any] = field(default_factory=dict)  #: what is smaller about the problem when quick
    quick: dict[str, Any] = field(default_factory=dict)  #: and about the run
    variants: tuple[str, ...] = ()  #: the algorithms that also run as the paper's authors ran them

    def base(self, quick: bool) -> dict[str, Any]:
        problem = {**self.problem, **(self.quick_problem if quick else {})}
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
        BASELINES,
    ),
    "heart-disease": Experiment(
        "Heart disease", {"name": "heart-disease"}, quick={"rounds": 5, "inner": 20}, variants=tuple(AS_PUBLISHED)
    ),
    "ixi": Experiment(
        "Ixi", {"name": "ixi"}, {"volumes_per_client": 4}, {"rounds": 1, "inner": 1, "batch_size": 2}, BASELINES
    ),
}
REAL = [name for name, experiment in EXPERIMENTS.items() if experiment.variants]


def compute(
    name: str, seeds: list[int], out: Path, quick: bool, progress: ShowProgress
) -> tuple[Comparison, dict[str, str]]:
    """Run what is not there yet; the comparison, and why a run failed."""
    experiment = EXPERIMENTS[name]
    algorithms = [*PAPER_ALGORITHMS, *(AS_PUBLISHED[name] for name in experiment.variants)]
    jobs = plan(experiment.base(quick), algorithms, seeds, out / name, skip_impossible=True)
    with progress(jobs) as watch:
        failed = compare(jobs, out / name, resumed=True, watch=watch)
    found = read_comparison(out / name)
    asked = [run for run in found.runs if run.seed in seeds and run.algorithm in algorithms]
    return found._replace(runs=asked), failed


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
