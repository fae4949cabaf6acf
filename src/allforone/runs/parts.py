"""From names and options to the parts of a run: problem, algorithm, optimizer."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from ..algorithms import ALGORITHMS, Algorithm, keeping
from ..errors import InputError, blaming, short, suggest
from ..files import load_file
from ..fleet import Optimizer, private_names
from ..fleet.models import trained_names
from ..problems import PROBLEMS, Client, Problem, Task
from ..problems.data import generator, seeded
from ..theory import SCHEDULES, constants_of, known_constants
from ..theory import scheduler as theory_scheduler
from .config import Choice, RunConfig, checked_options

Part = TypeVar("Part")


def load_problem(choice: Choice, seed: int) -> Problem:
    """A problem by its name, or from the user's file: `my_file.py:problem`."""
    return needs_data(load_task(choice, seed), "this")


def load_task(choice: Choice, seed: int) -> Task:
    """A task by its name, or from the user's file; a problem is one, with everybody's data."""
    return _load(choice, PROBLEMS, Task, "problem", {"seed": seed})


def needs_data(task: Task, what: str) -> Problem:
    """The task as a problem, where this process has everybody's data."""
    if isinstance(task, Problem):
        return task
    raise InputError(f"{what} needs everybody's data at once, and {task.name} is a task whose data are at its sites")


def load_algorithm(choice: Choice) -> Algorithm:
    """An algorithm by its name, or from the user's file: `my_file.py:algorithm`."""
    return _load(choice, ALGORITHMS, Algorithm, "algorithm", {})  # type: ignore[type-abstract]


def keep(algorithm: Algorithm, config: RunConfig, model: nn.Module) -> Algorithm | None:
    """The algorithm on what is not private; None where nothing is."""
    if not config.private:
        if config.alternate:
            raise InputError("alternate: it is for private parameters; name them by private, or leave it out")
        return None
    if config.attack:
        raise InputError("private: liars are tried where whole models are sent; leave attack out")
    names = private_names(model, config.private)
    return keeping(algorithm, names, trained_names(model), config.alternate or 0)


def load_client(name: str) -> Client:
    """One party's data from the user's file: `my_site.py:client`."""
    return _load(Choice(name=name), {}, Client, "client", {})


def _load(choice: Choice, table: Mapping[str, Any], kind: type[Part], what: str, more: dict[str, Any]) -> Part:
    name = choice.name or ""
    path, colon, attribute = name.rpartition(":")
    if not colon:
        make = known(table, name, what, f", or your own as my_file.py:{what}")
    else:
        with _drawing_alike(more):
            make = _from_file(Path(path), attribute, what)
        if isinstance(make, kind):
            if choice.options:
                raise InputError(f"{name} is made already, so it takes no options; make it a function to give it some")
            return make
    if not callable(make):
        raise InputError(f"{name} is a {type(make).__name__}: it must be an allforone.{what.capitalize()} or make one")
    given = checked_options(make, choice.options, f"{what} {name}")
    takes = inspect.signature(make).parameters
    with blaming(f"{what} {name} failed"), _drawing_alike(more):
        made = make(**given, **{key: value for key, value in more.items() if key in takes})
    if not isinstance(made, kind):
        raise InputError(f"{name} gave {type(made).__name__}: it must return an allforone.{what.capitalize()}")
    return made


def _drawing_alike(more: dict[str, Any]) -> AbstractContextManager[None]:
    """A module that the user's file makes draws its weights: those of a seed are the same in every run and process."""
    return seeded(generator(more.get("seed", 0), "made by the user"))


def _from_file(path: Path, attribute: str, what: str) -> Any:
    if not path.is_file():
        raise InputError(f"{path}: no such file; your own {what} is given as path/to/file.py:name")
    module = load_file(path)
    if not hasattr(module, attribute):
        raise InputError(f"{path} has no '{attribute}'; {suggest(attribute, [n for n in vars(module) if n[0] != '_'])}")
    return getattr(module, attribute)


def known(table: Mapping[str, Any], name: str | None, what: str, or_else: str = "") -> Any:
    if name not in table:
        raise InputError(f"unknown {what} '{short(name or '')}'; {suggest(name or '', table)}{or_else}")
    return table[str(name)]


def resolve_schedule(choice: Choice, problem: Task, seed: int, batch_size: int | None) -> Choice:
    """The same schedule with all constants that it needs: those given, else those known of the problem."""
    known(SCHEDULES, choice.name, "schedule")
    takes, given = constants_of(str(choice.name)), choice.options
    for name, value in given.items():
        if name not in takes:
            raise InputError(f"schedule {choice.name}: unknown key '{name}'; {suggest(name, takes)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise InputError(f"schedule {choice.name}: {name} is {value!r}: must be a number above 0")
    exact = known_constants(problem, seed, batch_size) if isinstance(problem, Problem) else None
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


def build_optimizer(
    optimizer: Choice, scheduler: Choice | None, schedule: Choice | None = None, rounds: int = 1, inner: int = 1
) -> Optimizer:
    """Any optimizer of torch.optim and any scheduler of torch.optim.lr_scheduler, by name; or a schedule, resolved."""
    make = _torch_class(torch.optim, torch.optim.Optimizer, optimizer, "optimizer")
    with blaming(f"the optimizer cannot be used: {optimizer.name} refuses its options"):
        tried = make([torch.nn.Parameter(torch.zeros(2, 2))])
    if schedule is not None:
        return Optimizer(make, theory_scheduler(str(schedule.name), schedule.options, rounds * inner, inner))
    if scheduler is None:
        return Optimizer(make)
    lr_scheduler = torch.optim.lr_scheduler
    chosen = _torch_class(lr_scheduler, lr_scheduler.LRScheduler, scheduler, "scheduler")
    with blaming(f"the scheduler cannot be used: {scheduler.name} refuses its options"):
        made = chosen(tried)
        tried.step()
        made.step()
    return Optimizer(make, chosen)


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
