"""One description of a run, under `afo.train`, `allforone run`, `compare` and `resume` alike."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ..algorithms import ALGORITHMS, Algorithm, BySimilarity, Guarded, Local
from ..describe import architecture, described, options
from ..errors import InputError, notice
from ..fleet import FLEETS, Attack, Attacked, Fleet, Make, Optimizer, Participation, Schedule
from ..problems import Problem, check, hold_out, unheld
from .config import PYTHON, Choice, RunConfig, checked_options, parse
from .folder import Folder
from .parts import build_optimizer, known, load_algorithm, load_problem, resolve_schedule
from .training import OnRound, Result, train

#: The share of every client's training data that is held out where a guard watches.
HELD_OUT = 0.2


@dataclass(frozen=True)
class Given:
    """Parts of a run that exist already, as from Python; the others are loaded by their names."""

    problem: Problem | None = None
    algorithm: Algorithm | None = None
    optimizer: Make | None = None
    scheduler: Schedule | None = None
    participation: Participation | None = None


@dataclass(frozen=True)
class Run:
    """All parts of a run, ready to start."""

    config: RunConfig  #: with nothing left open: what config.yaml holds
    problem: Problem
    algorithm: Algorithm
    optimizer: Optimizer
    participation: Participation

    def check(self) -> None:
        """Find what would stop it at its start, without making a fleet."""
        check(self.problem, copy.deepcopy(self.problem.initial_model(self.config.seed)))
        if self.config.guard:
            hold_out(self.problem, HELD_OUT, self.config.seed)
        if self.config.attack:
            Attack.parse(self.config.attack).choose(len(self.problem.clients), self.config.seed)
        self._fleet_options()

    def _fleet_options(self) -> dict[str, Any]:
        name, make = self.config.fleet.name, known(FLEETS, self.config.fleet.name, "fleet")
        others = ("problem", "seed", "batch_size", "participation")  # which every fleet is given
        return checked_options(make, self.config.fleet.options, f"fleet {name}", others)

    def assemble(self) -> tuple[Fleet, Algorithm]:
        """The fleet, and the algorithm with its guard."""
        config, problem, algorithm = self.config, self.problem, self.algorithm
        if config.guard:
            problem = hold_out(problem, HELD_OUT, config.seed)
            if exempt := unheld(problem.clients):
                who = ", ".join(map(str, exempt))
                notice(f"the guard does not watch client {who}: too few training samples to hold some out for it")
            algorithm = algorithm if isinstance(algorithm, Local) else Guarded(algorithm)
        fleet = known(FLEETS, config.fleet.name, "fleet")(
            problem,
            seed=config.seed,
            batch_size=config.batch_size,
            participation=self.participation,
            **self._fleet_options(),
        )
        if config.attack:
            return Attacked(fleet, Attack.parse(config.attack)), algorithm
        return fleet, algorithm


def prepare(config: RunConfig, given: Given | None = None) -> Run:
    """The parts that a config names or that are given, and the config with nothing left open."""
    given = given or Given()
    problem = given.problem or load_problem(config.problem, config.seed)
    algorithm = given.algorithm or load_algorithm(_with_defaults(config.algorithm, problem))
    if isinstance(algorithm, Guarded):
        raise InputError("a guard needs data held out: give the algorithm without it, and guard=True")
    config = _filled(config, problem)
    model = problem.initial_model(config.seed)
    optimizer, config = _optimizer(config, given, model)
    identity = {"model": architecture(model), "loss": described(problem.loss)}
    if problem.smoothness is not None:
        identity["smoothness"] = problem.smoothness
    if problem.metrics:
        identity["metrics"] = {name: described(metric.function) for name, metric in problem.metrics.items()}
    if callable(given.participation):
        identity["participation"] = described(given.participation)
    if ":" in str(config.algorithm.name):  # the user's own file: its name and options stay, to be loaded again
        identity["algorithm"] = described(algorithm)
    else:
        config = config.model_copy(update={"algorithm": Choice(**described(algorithm))})
    metrics = {name: _reading(metric) for name, metric in problem.metrics.items()}
    config = config.model_copy(update={"metrics": metrics, "identity": identity})
    config = config.model_copy(update={"title": config.title or problem.name})
    participation = config.participation if given.participation is None else given.participation
    return Run(config, problem, algorithm, optimizer, participation)


def _reading(metric: Any) -> dict[str, Any]:
    return {key: value for key, value in options(metric).items() if key != "function"}


def _with_defaults(choice: Choice, problem: Problem) -> Choice:
    """The paper's estimator looks at as many samples as the problem says."""
    made = ALGORITHMS[str(choice.name)]() if choice.name in ALGORITHMS else None
    if isinstance(made, BySimilarity) and "samples" not in choice.options:
        return Choice(name=choice.name, **choice.options, samples=problem.settings.estimation)
    return choice


def _filled(config: RunConfig, problem: Problem) -> RunConfig:
    """The same config with every number filled in from the problem's settings."""
    settings = problem.settings
    if config.scheduler and config.schedule:
        raise InputError("both a scheduler and a schedule are given: each sets the step size; leave one out")
    optimizer = config.optimizer or Choice()
    if optimizer.name in (None, settings.optimizer["name"]):
        optimizer = Choice(**{**settings.optimizer, **optimizer.options})
    own = Choice(**settings.scheduler) if settings.scheduler and not config.schedule else None
    return config.model_copy(
        update={
            "rounds": config.rounds or settings.rounds,
            "inner": config.inner or settings.inner,
            "batch_size": config.batch_size or settings.batch_size,
            "optimizer": optimizer,
            "scheduler": config.scheduler or own,
            "schedule": config.schedule
            and resolve_schedule(config.schedule, problem, config.seed, config.batch_size or settings.batch_size),
        }
    )


def _optimizer(config: RunConfig, given: Given, model: nn.Module) -> tuple[Optimizer, RunConfig]:
    assert config.optimizer and config.rounds and config.inner
    if given.optimizer is None and given.scheduler is None:
        chosen = config.optimizer, config.scheduler, config.schedule
        return build_optimizer(*chosen, config.rounds, config.inner), config
    if given.scheduler and config.schedule:
        raise InputError("both a scheduler and a schedule are given: each sets the step size; leave one out")
    named = build_optimizer(config.optimizer, config.scheduler, config.schedule, config.rounds, config.inner)
    shapes = {name: parameter.shape for name, parameter in model.named_parameters() if parameter.requires_grad}
    schedule = given.scheduler or named.schedule
    made = Optimizer(given.optimizer or named.make, schedule, **({"shapes": shapes} if shapes else {}))
    scheduler = _choice(given.scheduler) if given.scheduler else config.scheduler
    return made, config.model_copy(update={"optimizer": _choice(made.make), "scheduler": scheduler})


def _choice(made: Any) -> Choice:
    what = described(made)
    return Choice(**what) if isinstance(what, dict) else Choice(name=str(what))


def execute(run: Run, out: Path | None = None, *, resume: bool = False, on_round: OnRound | None = None) -> Result:
    """Do a run, into a new folder if one is given; with `resume`, go on with the one that is there."""
    fleet, algorithm = run.assemble()
    folder = None
    if out is not None:
        folder = (Folder.reopen if resume else Folder.create)(Path(out), run.config.plain(), fleet.roster)
    return train(run.config, run.problem, fleet, algorithm, run.optimizer, folder, on_round)


def resume(path: Path, on_round: OnRound | None = None) -> Result:
    """Go on with a run where its folder left off; the result is that of a run never interrupted."""
    folder = Folder.open(path)
    if folder.config["problem"]["name"] == PYTHON:
        raise InputError(f"{path}: started from Python; go on there with train(..., out='{path}', resume=True)")
    run = prepare(parse(folder.config, str(folder.path / "config.yaml")))
    return execute(run, path, resume=True, on_round=on_round)
