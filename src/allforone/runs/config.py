"""What a run is told: options and YAML, checked once, resolved against the problem's own settings."""

import importlib.util
import inspect
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_type_hints

import torch
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator

from ..algorithms import ALGORITHMS, Algorithm, default_weighting
from ..collaboration import Paper
from ..errors import InputError, blaming, suggest
from ..fleet import Optimizer
from ..problems import PROBLEMS, Problem
from ..theory import SCHEDULES, constants_of, known_constants
from ..theory import scheduler as theory_scheduler

PAPER_SEEDS = (127, 496, 1729)


class Choice(BaseModel):
    """A name and the options that go with it; in YAML `{name: SGD, lr: 0.1}`, or the name alone."""

    model_config = ConfigDict(extra="allow")
    name: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class RunConfig(BaseModel):
    """Everything that decides a run. What is None is taken from the problem's settings."""

    model_config = ConfigDict(extra="forbid")
    problem: Choice
    algorithm: Choice = Choice(name="all-for-one")
    rounds: int | None = Field(None, ge=1)
    inner: int | None = Field(None, ge=1)
    batch_size: int | None = Field(None, ge=1)
    optimizer: Choice | None = None
    scheduler: Choice | None = None
    schedule: Choice | None = None  #: a step size of the theory: constant, horizon or decreasing
    seed: int = PAPER_SEEDS[0]
    fleet: Literal["stacked", "compiled", "loop"] = "stacked"
    participation: float = Field(1.0, gt=0, le=1)
    attack: str | None = None  #: 'flip:4': four clients send the opposite of their gradient
    guard: bool = False  #: beside the algorithm every client trains alone, and is given the better model
    evaluate_every: int = Field(1, ge=1)
    label: str | None = None  #: what tables and figures call it, where the algorithm's name is not enough

    @property
    def shown(self) -> str:
        return self.label or str(self.algorithm.name)

    @field_validator("problem", "algorithm", "optimizer", "scheduler", "schedule", mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


def parse(given: dict[str, Any], source: str = "options") -> RunConfig:
    """Check a config; an error says which key, what was expected, and the nearest name."""
    if not isinstance(given, dict):
        raise InputError(f"{source}: expected keys and values such as 'rounds: 100', got {type(given).__name__}")
    try:
        return RunConfig(**given)
    except ValidationError as error:
        raise InputError(explain(error, source, list(RunConfig.model_fields))) from None


def pairs(given: list[str], flag: str) -> dict[str, Any]:
    """Options written as name=value, the value as in YAML."""
    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{flag} {text}: expected name=value, such as dimension=10")
        try:
            found[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise InputError(f"{flag} {text}: cannot read the value; quote it as in YAML") from None
    return found


def read_yaml(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; give the path of a YAML config") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected keys and values such as 'rounds: 100'")
    return content


def explain(error: ValidationError, source: str, known: list[str]) -> str:
    """Pydantic's findings as one line."""
    said = []
    for finding in error.errors():
        key = ".".join(str(part) for part in finding["loc"])
        if finding["type"] == "extra_forbidden":
            said.append(f"unknown key '{key}'; {suggest(key, known)}")
        elif finding["type"] == "missing":
            said.append(f"'{key}' is missing")
        else:
            expected = finding["msg"].removeprefix("Input should be ").removeprefix("a valid ")
            said.append(f"{key}: expected {expected}, got {finding['input']!r}")
    return f"{source}: " + "; ".join(said)


def checked_options(function: Callable[..., Any], options: dict[str, Any], where: str) -> dict[str, Any]:
    """Options for a function, checked against its signature."""
    try:
        hints = get_type_hints(function if inspect.isfunction(function) else function.__init__)
    except (NameError, TypeError):
        hints = {}  # a type that cannot be looked up is not checked
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    fields: dict[str, Any] = {
        name: (hints.get(name, Any), ... if parameter.default is parameter.empty else parameter.default)
        for name, parameter in parameters.items()
        if name != "seed"
    }
    model = create_model("Options", __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=True), **fields)
    try:
        built = model(**options)
        return {name: getattr(built, name) for name in options}
    except ValidationError as error:
        raise InputError(explain(error, where, list(fields) or ["(it takes no options)"])) from None


def load_problem(choice: Choice, seed: int) -> Problem:
    """A problem by its name, or from the user's file: `my_file.py:problem`."""
    name = choice.name or ""
    path, colon, attribute = name.rpartition(":")
    if not colon:
        if name not in PROBLEMS:
            raise InputError(f"unknown problem '{name}'; {suggest(name, PROBLEMS)}, or your own as my_file.py:problem")
        make = PROBLEMS[name]
    else:
        found = _from_file(Path(path), attribute)
        if isinstance(found, Problem):
            if choice.options:
                raise InputError(f"{name} is a Problem, so it takes no options; make it a function to give it some")
            return found
        make = found
    if not callable(make):
        raise InputError(f"{name} is a {type(make).__name__}: it must be an allforone.Problem or make one")
    given = checked_options(make, choice.options, f"problem {name}")
    if "seed" in inspect.signature(make).parameters:
        given["seed"] = seed
    with blaming(f"problem {name} failed"):
        problem = make(**given)
    if not isinstance(problem, Problem):
        raise InputError(f"{name} gave {type(problem).__name__}: it must return an allforone.Problem")
    return problem


def _from_file(path: Path, attribute: str) -> Any:
    if not path.is_file():
        raise InputError(f"{path}: no such file; a problem of your own is given as path/to/file.py:name")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # so that it can import its neighbours, as when it is run
    with blaming(f"{path}: could not be loaded"):
        spec.loader.exec_module(module)
    if not hasattr(module, attribute):
        raise InputError(f"{path} has no '{attribute}'; {suggest(attribute, [n for n in vars(module) if n[0] != '_'])}")
    return getattr(module, attribute)


def resolve(config: RunConfig, problem: Problem) -> RunConfig:
    """The same config with every default filled in from the problem."""
    settings = problem.settings
    optimizer = config.optimizer or Choice()
    if optimizer.name in (None, settings.optimizer["name"]):
        optimizer = Choice(**{**settings.optimizer, **optimizer.options})
    own = Choice(**settings.scheduler) if settings.scheduler and not config.schedule else None
    scheduler = config.scheduler or own
    if config.scheduler and config.schedule:
        raise InputError("both a scheduler and a schedule are given: each sets the step size; leave one out")
    make = known(ALGORITHMS, config.algorithm.name, "algorithm")
    options = config.algorithm.options
    takes = inspect.signature(make).parameters
    if "samples" in takes:
        options.setdefault("samples", settings.estimation)
    if "weighting" in takes and options.get("weighting") is None:
        options["weighting"] = default_weighting(Paper(), problem.smoothness)
    return config.model_copy(
        update={
            "algorithm": Choice(name=config.algorithm.name, **options),
            "rounds": config.rounds or settings.rounds,
            "inner": config.inner or settings.inner,
            "batch_size": config.batch_size or settings.batch_size,
            "optimizer": optimizer,
            "scheduler": scheduler,
            "schedule": config.schedule and resolve_schedule(config.schedule, problem, config.seed, config.batch_size),
        }
    )


def resolve_schedule(choice: Choice, problem: Problem, seed: int, batch_size: int | None) -> Choice:
    """The same schedule with all constants that it needs: those given, else those known of the problem."""
    known(SCHEDULES, choice.name, "schedule")
    takes, given = constants_of(str(choice.name)), choice.options
    for name, value in given.items():
        if name not in takes:
            raise InputError(f"schedule {choice.name}: unknown key '{name}'; {suggest(name, takes)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise InputError(f"schedule {choice.name}: {name} is {value!r}: must be a number above 0")
    exact = known_constants(problem, seed, batch_size)
    found = exact.for_schedule() if exact else {}
    if problem.smoothness:
        found["smoothness"] = problem.smoothness
    missing = [name for name, optional in takes.items() if not optional and name not in {*given, *found}]
    if missing:
        raise InputError(
            f"schedule {choice.name}: {', '.join(missing)} of {problem.name} not known; give numbers, as in "
            f"{choice.name}:{missing[0]}=0.1; `allforone theory plan` has estimates"
        )
    return Choice(name=choice.name, **{name: found[name] for name in takes if name in found} | given)


def known(table: dict[str, Any], name: str | None, what: str) -> Any:
    if name not in table:
        raise InputError(f"unknown {what} '{name}'; {suggest(name or '', table)}")
    return table[name]


def build_algorithm(choice: Choice) -> Algorithm:
    make = known(ALGORITHMS, choice.name, "algorithm")
    algorithm: Algorithm = make(**checked_options(make, choice.options, f"algorithm {choice.name}"))
    return algorithm


def build_optimizer(
    optimizer: Choice, scheduler: Choice | None, schedule: Choice | None = None, rounds: int = 1, inner: int = 1
) -> Optimizer:
    """Any optimizer of torch.optim and any scheduler of torch.optim.lr_scheduler, by name; or a schedule, resolved."""
    make = _torch_class(torch.optim, torch.optim.Optimizer, optimizer, "optimizer")
    if schedule is not None:
        return Optimizer(make, theory_scheduler(str(schedule.name), schedule.options, rounds * inner, inner))
    if scheduler is None:
        return Optimizer(make)
    lr_scheduler = torch.optim.lr_scheduler
    return Optimizer(make, _torch_class(lr_scheduler, lr_scheduler.LRScheduler, scheduler, "scheduler"))


def _torch_class(module: Any, kind: type, choice: Choice, what: str) -> Callable[..., Any]:
    classes = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, kind) and value is not kind and name[0] != "_"
    }
    made = known(classes, choice.name, what)
    takes = [name for name in inspect.signature(made).parameters if name not in ("params", "optimizer")]
    for name, value in choice.options.items():
        if name not in takes:
            raise InputError(f"{what} {choice.name}: unknown key '{name}'; {suggest(name, takes)}")
        if name == "lr" and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
            raise InputError(f"{what} {choice.name}: lr is {value!r}: the step size must be a number above 0")
    return partial(made, **choice.options)
