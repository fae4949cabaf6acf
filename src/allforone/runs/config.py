"""What decides a run, as plain values: options and YAML, checked once."""

import inspect
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator

from ..catalogue import label
from ..errors import InputError, suggest

#: The seeds of the paper.
PAPER_SEEDS = (127, 496, 1729)
#: The problem of a run that was started from Python, where alone it can be made again.
PYTHON = "python"


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
    fleet: Choice = Choice(name="stacked")
    participation: float = Field(1.0, gt=0, le=1)
    attack: str | None = None  #: 'flip:4': four clients send the opposite of their gradient
    guard: bool = False  #: beside the algorithm every client trains alone, and is given the better model
    evaluate_every: int = Field(1, ge=1)
    label: str | None = None  #: what tables and figures call it, where the algorithm's name is not enough
    title: str | None = None  #: filled in: what tables and pages call the problem
    metrics: dict[str, dict[str, Any]] | None = None  #: filled in: how each metric is read
    identity: dict[str, Any] | None = None  #: filled in: what code decides beside these values; compared at `resume`

    @property
    def shown(self) -> str:
        return self.label or label(str(self.algorithm.name))

    @field_validator("problem", "algorithm", "optimizer", "scheduler", "schedule", "fleet", mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    def plain(self) -> dict[str, Any]:
        """As config.yaml has it."""
        return self.model_dump(exclude_none=True)


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
