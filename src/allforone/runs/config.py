"""What decides a run, as plain values: options and YAML, checked once."""

import inspect
from collections.abc import Callable, Collection
from dataclasses import asdict
from typing import Any, get_type_hints

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator, model_validator

from ..catalogue import LARGEST_SEED, MOST_ROUNDS, MOST_UPDATES, label
from ..errors import InputError, short, suggest
from ..fleet import Privacy
from ..problems import Precision
from . import plain_yaml

#: The seeds of the paper.
PAPER_SEEDS = (127, 496, 1729)
#: The problem of a run that was started from Python, where alone it can be made again.
PYTHON = "python"


#: The share of every client's training data that is held out where a guard watches.
HELD_OUT = 0.2
#: Options of a run that may be given with the name of any algorithm: `fedavg:private=head.*`.
OF_EVERY_ALGORITHM = {"private", "alternate"}
#: Mistakes in a config that one line names; more are counted.
MOST_NAMED = 5


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
    rounds: int | None = Field(None, ge=1, le=MOST_ROUNDS)
    inner: int | None = Field(None, ge=1, le=MOST_UPDATES)
    batch_size: int | None = Field(None, ge=1, le=MOST_UPDATES)
    optimizer: Choice | None = None
    scheduler: Choice | None = None
    schedule: Choice | None = None  #: a step size of the theory: constant, horizon or decreasing
    clip: float | None = Field(None, gt=0, allow_inf_nan=False)  #: the norm of each client's gradients, at most
    precision: Precision | None = None  #: of passes in training: float32 or bf16
    device: str | None = None  #: where models are computed: cuda, cuda:1, mps or auto; None: the CPU
    privacy: dict[str, Any] | None = None  #: clip, noise and delta of all that clients answer
    private: list[str] | None = None  #: names or patterns of the parameters that never leave their owner
    alternate: int | None = Field(None, ge=1, le=MOST_UPDATES)  #: of private parts by themselves, before a round's own
    seed: int = Field(PAPER_SEEDS[0], ge=-LARGEST_SEED, le=LARGEST_SEED)
    fleet: Choice = Choice(name="stacked")
    participation: float = Field(1.0, gt=0, le=1)
    attack: str | None = None  #: 'flip:4': four clients send the opposite of their gradient
    guard: bool = False  #: beside the algorithm every client trains alone, and is given the better model
    hold_out: float | None = Field(None, gt=0, lt=1)  #: of every client's training data, to watch the run by
    evaluate_every: int = Field(1, ge=1, le=MOST_ROUNDS)
    least_sites: int | None = Field(None, ge=1)  #: of clients on machines, without which a run waits, then stops
    sketch: int | None = Field(None, ge=16, le=MOST_UPDATES)  #: numbers by which machines tell mean gradients
    label: str | None = None  #: what tables and figures call it, where the algorithm's name is not enough
    title: str | None = None  #: filled in: what tables and pages call the problem
    metrics: dict[str, dict[str, Any]] | None = None  #: filled in: how each metric is read
    identity: dict[str, Any] | None = None  #: filled in: what code decides beside these values; compared at `resume`

    @property
    def held_out(self) -> float | None:
        """The share of every client's training data that is not trained on."""
        return HELD_OUT if self.guard else self.hold_out

    @property
    def shown(self) -> str:
        return self.label or label(str(self.algorithm.name))

    @model_validator(mode="before")
    @classmethod
    def _of_every_algorithm(cls, given: Any) -> Any:
        """Options that every algorithm has may stand among those of the one that is named."""
        algorithm = given.get("algorithm")
        if not isinstance(algorithm, dict) or not algorithm.keys() & OF_EVERY_ALGORITHM:
            return given
        own = {key: value for key, value in algorithm.items() if key not in OF_EVERY_ALGORITHM}
        return {**given, **{key: algorithm[key] for key in algorithm.keys() - own.keys()}, "algorithm": own}

    @field_validator("private", mode="before")
    @classmethod
    def _patterns(cls, value: Any) -> Any:
        """One may stand by itself; none are none."""
        return ([value] if isinstance(value, str) else value) if value else None

    @field_validator(
        "rounds", "inner", "batch_size", "seed", "evaluate_every", "participation", "clip", "alternate", mode="before"
    )
    @classmethod
    def _number(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("a number, not yes or no")
        return value

    @field_validator("privacy")
    @classmethod
    def _private(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is None:
            return None
        if odd := [key for key in value if key not in ("clip", "noise", "delta")]:
            raise ValueError(f"clip, noise and delta, no {short(odd[0])}")
        return asdict(Privacy.of(value))

    @field_validator("metrics")
    @classmethod
    def _readings(cls, value: dict[str, dict[str, Any]] | None) -> dict[str, dict[str, Any]] | None:
        for reading in (value or {}).values():
            known = reading.keys() <= {"lower_is_better", "percent", "digits"}
            if not known or not all(isinstance(item, int) for item in reading.values()):
                raise ValueError("lower_is_better, percent and digits of each")
        return value

    @field_validator("problem", "algorithm", "optimizer", "scheduler", "schedule", "fleet", mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    def plain(self) -> dict[str, Any]:
        """As config.yaml has it."""
        return dict(_plain(self.model_dump(exclude_none=True)))


def _plain(value: Any) -> Any:
    """The same of Python's own numbers and lists alone, as YAML gives it back."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def parse(given: dict[str, Any], source: str = "options") -> RunConfig:
    """Check a config; an error says which key, what was expected, and the nearest name."""
    if not isinstance(given, dict):
        raise InputError(f"{source}: expected keys and values such as 'rounds: 100', got {type(given).__name__}")
    if odd := [key for key in given if not isinstance(key, str)]:
        raise InputError(f"{source}: the key {short(odd[0])} is not a text; known: {', '.join(RunConfig.model_fields)}")
    try:
        return RunConfig(**_plain(given))
    except ValidationError as error:
        raise InputError(explain(error, source, list(RunConfig.model_fields))) from None


def refuse_two_step_sizes(lr: Any, schedule: Any) -> None:
    """Of what the user gave: an lr beside a schedule that would overrule it. The constant one takes it."""
    name = schedule.get("name") if isinstance(schedule, dict) else schedule
    if lr is not None and name in ("horizon", "decreasing"):
        raise InputError(
            f"lr is {short(lr)} beside the schedule {name}, which sets every step size by itself: leave one out"
        )


def pairs(given: list[str], flag: str) -> dict[str, Any]:
    """Options written as name=value, the value as in YAML."""
    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{flag} {short(text)}: expected name=value, such as dimension=10")
        if key == "name":
            raise InputError(f"{flag} {short(text)}: the name itself is no option; it is given before its options")
        try:
            found[key] = plain_yaml.load(value)
        except ValueError as error:
            raise InputError(f"{flag} {short(text)}: cannot read the value, {error}; quote it as in YAML") from None
    return found


def explain(error: ValidationError, source: str, known: list[str]) -> str:
    """Pydantic's findings as one line."""
    said = []
    findings = error.errors()
    for finding in findings[:MOST_NAMED]:
        key = ".".join(str(part) for part in finding["loc"])
        if finding["type"] == "extra_forbidden":
            said.append(f"unknown key '{short(key)}'; {suggest(key, known)}")
        elif finding["type"] == "missing":
            said.append(f"'{key}' is missing")
        else:
            expected = finding["msg"].removeprefix("Input should be ").removeprefix("a valid ")
            given = finding["input"]
            said.append(f"{key}: expected {expected}, got {short(repr(given) if isinstance(given, str) else given)}")
    if len(findings) > MOST_NAMED:
        said.append(f"and {len(findings) - MOST_NAMED} more")
    return f"{source}: " + "; ".join(said)


def checked_options(
    function: Callable[..., Any], options: dict[str, Any], where: str, without: Collection[str] = ("seed",)
) -> dict[str, Any]:
    """Options for a function, checked against its signature, `without` what is not the user's to give."""
    try:
        hints = get_type_hints(function if inspect.isfunction(function) else function.__init__)
    except (NameError, TypeError):
        hints = {}  # a type that cannot be looked up is not checked
    fields: dict[str, Any] = {
        name: (hints.get(name, Any), ... if parameter.default is parameter.empty else parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) and name not in without
    }
    model = create_model("Options", __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=True), **fields)
    try:
        built = model(**options)
        return {name: getattr(built, name) for name in options}
    except ValidationError as error:
        raise InputError(explain(error, where, list(fields) or ["(it takes no options)"])) from None
