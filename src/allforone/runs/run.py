"""One description of a run, under `afo.train`, `allforone run`, `compare` and `resume` alike."""

import copy
import inspect
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .. import stopping
from ..algorithms import ALGORITHMS, Algorithm, BySimilarity, Guarded, Joining, Local
from ..describe import architecture, described, digest, options
from ..errors import InputError, called, notice, short
from ..fleet import (
    FLEETS,
    Attack,
    Attacked,
    Fleet,
    InProcess,
    Make,
    Optimizer,
    Participation,
    Privacy,
    Schedule,
    find_device,
)
from ..fleet.devices import CPU
from ..fleet.optimizer import OfAnyPart
from ..fleet.spending import UNPROTECTED
from ..problems import Problem, Task, check, hold_out, unheld, with_settings
from .callbacks import Callback
from .config import HELD_OUT as HELD_OUT
from .config import PYTHON, Choice, RunConfig, checked_options, parse
from .folder import Folder
from .lock import locked
from .names import naming
from .parts import build_optimizer, keep, known, load_algorithm, load_task, needs_data, resolve_schedule
from .training import OnRound, Result, Start, train
from .writing import Writer

#: Fleets whose sums would depend on the number of threads; with one, the same run has the same bits on any machine.
ONE_THREAD = ("loop",)
#: Settings that not every fleet takes, and what is said of the others.
ONLY_FOR = {
    "least_sites": "clients on machines; those of fleet {} are all in this process",
    "sketch": "clients on machines; those of fleet {} are all in this process",
    "device": "clients in this process; those of fleet {} are not: leave it out",
    "privacy": "clients in this process; those of fleet {} are not: leave it out",
}


@dataclass(frozen=True)
class Given:
    """Parts of a run that exist already, as from Python; the others are loaded by their names."""

    problem: Task | None = None
    algorithm: Algorithm | None = None
    optimizer: Make | None = None
    scheduler: Schedule | None = None
    participation: Participation | None = None
    start: Start | None = None  #: what it begins from, where not all begin from one model
    learns: int | None = None  #: the one client that learns, where the others' models stay as they are
    privacy: Privacy | None = None  #: with its secret, which no config holds


@dataclass(frozen=True)
class Run:
    """All parts of a run, ready to start."""

    config: RunConfig  #: with nothing left open: what config.yaml holds
    problem: Task  #: a Problem where this process has everybody's data
    algorithm: Algorithm
    optimizer: Optimizer
    participation: Participation
    start: Start | None = None
    learns: int | None = None
    privacy: Privacy | None = None
    keeping: Algorithm | None = None  #: the algorithm on what is not private, where something is

    @property
    def clients(self) -> int:
        """How many there are, where that is known before they are met; else 0."""
        return len(self.problem.clients) if isinstance(self.problem, Problem) else 0

    @property
    def names(self) -> list[str | None]:
        """Of the clients, where they are known before they are met."""
        return [client.name for client in self.problem.clients] if isinstance(self.problem, Problem) else []

    def check(self) -> None:
        """Find what would stop it at its start, without making a fleet."""
        problem = needs_data(self.problem, "training in this process")
        check(problem, copy.deepcopy(problem.initial_model(self.config.seed)))
        as_seen(problem, self.config)
        if self.config.attack:
            Attack.parse(self.config.attack).choose(len(problem.clients), self.config.seed)
        self._fleet_options()

    def _fleet_options(self) -> dict[str, Any]:
        name, make = self.config.fleet.name, known(FLEETS, self.config.fleet.name, "fleet")
        given = {key: getattr(self.config, key) for key in ONLY_FOR if key != "privacy"} | {"privacy": self.privacy}
        others = ("problem", "seed", "batch_size", "participation", *given)  # which the config has for every fleet
        options = checked_options(make, self.config.fleet.options, f"fleet {name}", others)
        for key, value in given.items():
            if value is not None and key not in inspect.signature(make).parameters:
                raise InputError(f"{key} is for {ONLY_FOR[key].format(name)}")
        return options | {key: value for key, value in given.items() if value is not None}

    def guarded(self) -> Algorithm:
        """The algorithm, of what is not private, with its guard if one is wanted, and for one client only where that is
        wanted."""
        algorithm = self.keeping or self.algorithm
        if self.config.guard and not isinstance(algorithm, Local):
            algorithm = Guarded(algorithm)
        return algorithm if self.learns is None else Joining(algorithm, self.learns)

    def assemble(self) -> Fleet:
        """The fleet by its name, of everybody's data."""
        config, problem = self.config, needs_data(self.problem, f"fleet {self.config.fleet.name}")
        if unjudged := [called(k, client.name) for k, client in enumerate(problem.clients) if client.test is None]:
            notice(f"no test data of {', '.join(unjudged)}: not judged")
        problem = as_seen(problem, config)
        if config.held_out and (exempt := unheld(problem.clients)):
            who = ", ".join(called(k, problem.clients[k].name) for k in exempt)
            watcher = "the guard does not watch" if config.guard else "the held-out loss leaves out"
            notice(f"{watcher} {who}: too few training samples to hold some out for it")
        fleet: Fleet = known(FLEETS, config.fleet.name, "fleet")(
            problem,
            seed=config.seed,
            batch_size=config.batch_size,
            participation=self.participation,
            **self._fleet_options(),
        )
        if config.attack:
            if not isinstance(fleet, InProcess):
                raise InputError(
                    f"attack {config.attack}: liars are tried where one process has all gradients; use --fleet stacked"
                )
            if config.device:
                raise InputError(
                    f"attack {config.attack}: liars are tried on the CPU; leave out device {config.device}"
                )
            return Attacked(fleet, Attack.parse(config.attack))
        return fleet


def as_seen(problem: Problem, config: RunConfig) -> Problem:
    """What is trained on: without the share that is held out, where one is."""
    return hold_out(problem, config.held_out, config.seed) if config.held_out else problem


def prepare(config: RunConfig, given: Given | None = None) -> Run:
    """The parts that a config names or that are given, and the config with nothing left open."""
    given = given or Given()
    problem = given.problem or load_task(config.problem, config.seed)
    algorithm = given.algorithm or load_algorithm(_with_defaults(config.algorithm, problem))
    if isinstance(algorithm, Guarded):
        raise InputError("a guard needs data held out: give the algorithm without it, and guard=True")
    config = _filled(config, problem)
    privacy = _private(config, given)
    problem, config = _as_settled(problem, config)
    model = problem.initial_model(config.seed)
    keeping = keep(algorithm, config, model)
    optimizer, config = _optimizer(config, given, model)
    identity = {"model": architecture(model), "loss": described(problem.loss)}
    if problem.smoothness is not None:
        identity["smoothness"] = problem.smoothness
    if problem.metrics:
        identity["metrics"] = {name: described(metric.function) for name, metric in problem.metrics.items()}
    if callable(given.participation):
        identity["participation"] = described(given.participation)
    if given.start:
        models = digest(repr(described(given.start.models)).encode())
        identity["start"] = {"told": given.start.told, "step": given.start.step, "models": models}
    if given.learns is not None:
        identity["learns"] = given.learns
    if ":" in str(config.algorithm.name):  # the user's own file: its name and options stay, to be loaded again
        identity["algorithm"] = described(algorithm)
    else:
        config = config.model_copy(update={"algorithm": Choice(**described(algorithm))})
    metrics = {name: _reading(metric) for name, metric in problem.metrics.items()}
    config = config.model_copy(update={"metrics": metrics, "identity": identity})
    named = [problem.name, *(f"{key}={short(value)}" for key, value in config.problem.options.items())]
    config = config.model_copy(update={"title": config.title or ", ".join(named)})
    participation = config.participation if given.participation is None else given.participation
    return Run(config, problem, algorithm, optimizer, participation, given.start, given.learns, privacy, keeping)


def _reading(metric: Any) -> dict[str, Any]:
    return {key: value for key, value in options(metric).items() if key != "function"}


def _with_defaults(choice: Choice, problem: Task) -> Choice:
    """The paper's estimator looks at as many samples as the problem says."""
    made = ALGORITHMS[str(choice.name)]() if choice.name in ALGORITHMS else None
    if isinstance(made, BySimilarity) and "samples" not in choice.options:
        return Choice(name=choice.name, **choice.options, samples=problem.settings.estimation)
    return choice


def _filled(config: RunConfig, problem: Task) -> RunConfig:
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
            "clip": config.clip or settings.clip,
            "precision": config.precision or settings.precision,
            "private": (list(settings.private) or None) if config.private is None else config.private,
            "device": _device(config.device),
            "scheduler": config.scheduler or own,
            "schedule": config.schedule
            and resolve_schedule(config.schedule, problem, config.seed, config.batch_size or settings.batch_size),
        }
    )


def _as_settled(problem: Task, config: RunConfig) -> tuple[Task, RunConfig]:
    """The problem with the config's clip and precision, which its fleet finds there. A precision that goes without
    saying is not said, as in the folders of runs before there was one."""
    plain = config.precision == problem.settings.precision == "float32"
    told = {"clip": config.clip, "precision": config.precision}
    if any(getattr(problem.settings, key) != value for key, value in told.items()):
        problem = with_settings(problem, **told)
    return problem, config.model_copy(update={"precision": None}) if plain else config


def _private(config: RunConfig, given: Given) -> Privacy | None:
    """How answers are made private, with the secret where one is given."""
    if config.privacy is None:
        return None
    for clash, why in (
        (config.fleet.name == "flare", "sites on machines have privacy of their own, in the policy of each"),
        (config.clip is not None, "it clips the gradient of every sample: leave clip out"),
        (config.held_out is not None, UNPROTECTED),
        (config.attack is not None, "liars are tried where gradients arrive as they are: leave attack out"),
    ):
        if clash:
            raise InputError(f"privacy: {why}")
    told = Privacy(**config.privacy)
    return given.privacy if given.privacy == told else told


def _device(wanted: str | None) -> str | None:
    """By its name, if it is there; None is the CPU, by whatever name it was asked for."""
    found = find_device(wanted or "cpu")
    return None if found == CPU else str(found)


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
    told = config.model_copy(update={"optimizer": _choice(made.make), "scheduler": scheduler})
    return (replace(made, make=OfAnyPart(made.make, shapes)) if config.private else made), told


def _choice(made: Any) -> Choice:
    what = described(made)
    return Choice(**what) if isinstance(what, dict) else Choice(name=str(what))


def execute(
    run: Run,
    out: Path | None = None,
    *,
    resume: bool = False,
    on_round: OnRound | None = None,
    fleet: Fleet | None = None,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Do a run, into a new folder if one is given; with `resume`, go on with the one that is there. A fleet may be
    given where its clients are met otherwise than by its name."""
    threads = 1 if run.config.fleet.name in ONE_THREAD else torch.get_num_threads()
    if resume and out is not None and (label := Folder(out).label):
        threads = label.about.threads or threads
    if resume and run.privacy and not run.privacy.repeatable:
        notice(
            "privacy: the secret of the noise is not known any more, so from here on the noise is another than that "
            "of a run never interrupted, and as good"
        )
    with naming(run.names), computing_on(threads), closing(fleet or run.assemble()) as fleet:
        parts = run.config, run.problem, fleet, run.guarded(), run.optimizer
        if out is None:
            return train(*parts, on_round=on_round, start=run.start, callbacks=callbacks)
        with locked(out := Path(out)), stopping.patiently():
            writer = (Writer.again if resume else Writer.new)(out, run.config.plain(), fleet.roster)
            return train(*parts, writer, on_round, run.start, callbacks)


@contextmanager
def computing_on(threads: int) -> Iterator[None]:
    """With so many threads; sums over several of them are rounded otherwise, so a run keeps its number."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def resume(path: Path, on_round: OnRound | None = None) -> Result:
    """Go on with a run where its folder left off; the result is that of a run never interrupted."""
    folder = Folder.open(path)
    config = parse(folder.config, str(folder.path / "config.yaml"))
    if config.rounds is None:  # which may be raised, so that nothing else would find it missing
        raise InputError(f"{folder.path / 'config.yaml'}: has no rounds, which every run writes there: it is damaged")
    if config.problem.name == PYTHON:
        raise InputError(f"{path}: started from Python; go on there with train(..., out='{path}', resume=True)")
    return execute(prepare(config), path, resume=True, on_round=on_round)
