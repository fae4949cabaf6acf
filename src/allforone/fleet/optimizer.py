"""N stacked models under one torch optimizer, kept as a value.

Every element-wise optimizer (SGD with momentum, Adam, …) treats the N rows of a stacked tensor as N optimizers would.
The function that makes it sees the parameters of one model, so that it can group them by their shapes and names.
"""

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from ..describe import described
from ..errors import InputError, blaming, is_memory
from .models import Models, where_rows

#: E.g. functools.partial(torch.optim.SGD, lr=0.1), of the parameters of one model; if its argument is called
#: `named_parameters`, of their names and themselves.
Make = Callable[..., torch.optim.Optimizer]
Schedule = Callable[[torch.optim.Optimizer], LRScheduler]  #: e.g. functools.partial(StepLR, step_size=80)


@dataclass(frozen=True, eq=False, repr=False)
class Optimizer:
    """A torch optimizer and its scheduler, which takes one step per round; a new value after every round.

    Example:
        >>> from functools import partial
        >>> Optimizer(partial(torch.optim.SGD, lr=0.1))
        Optimizer({'name': 'SGD', 'lr': 0.1})
        >>> Optimizer(partial(torch.optim.SGD, lr=0.1)) == Optimizer(partial(torch.optim.SGD, lr=0.1))
        True
    """

    make: Make
    schedule: Schedule | None = None
    state: dict[str, Any] | None = None  #: of both, as torch gives it; None before the first round
    #: of the parameters of one model, where they are known: what is tried is tried on such
    shapes: Mapping[str, Sequence[int]] = field(default_factory=lambda: {"probe": (2, 3)})

    def __post_init__(self) -> None:
        if self.state is None:
            check_elementwise(self.make, self.shapes)
            if self.schedule:
                with blaming("the scheduler cannot be used", "It must take one step() per round, without a metric"):
                    running = self.start(self._probe(), list(self.shapes))
                    running.apply(self._probe())
                    running.finish()

    def _probe(self) -> Models:
        """A stack of one model."""
        return {name: torch.zeros(1, *shape) for name, shape in self.shapes.items()}

    def __repr__(self) -> str:
        made = [described(self.make), *([described(self.schedule)] if self.schedule else [])]
        return f"Optimizer({', '.join(map(str, made))})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Optimizer) and all(
            described(getattr(self, name)) == described(getattr(other, name)) for name in ("make", "schedule", "state")
        )

    def __hash__(self) -> int:
        return hash(repr(self))

    @property
    def lr(self) -> float:
        """The step size of the coming round."""
        if self.state is None:
            return self.start(self._probe(), list(self.shapes)).lr
        return float(self.state["optimizer"]["param_groups"][0]["lr"])

    @property
    def step_size(self) -> float | None:
        """By how much updates follow a gradient in the long run: of SGD η, or η/(1 − momentum); None of others, whose
        step does not grow with the gradient."""
        probe = make_stacked(self.make, self._probe())
        settings = probe.param_groups[0]
        return self.lr / (1 - settings["momentum"]) if isinstance(probe, torch.optim.SGD) else None

    def forgotten(self, steps: int) -> float:
        """The momentum between walks of so many steps that makes up for their starting anew: m(1 − mᵏ)/((1 − m)k) of
        SGD with momentum m after k steps; 0 of others. With it walks keep the pace, and of one step are plain SGD."""
        probe = make_stacked(self.make, self._probe())
        momentum = float(probe.param_groups[0]["momentum"]) if isinstance(probe, torch.optim.SGD) else 0.0
        return momentum * (1 - momentum**steps) / ((1 - momentum) * steps)

    def only_rows(self, rows: Tensor, before: "Optimizer") -> "Optimizer":
        """This state for `rows`, and that of `before` for the others; counters of steps are common to all."""
        if self.state is None:
            return self
        state = copy.deepcopy(self.state)
        past = before.state["optimizer"]["state"] if before.state else {}
        for number, entries in state["optimizer"]["state"].items():
            for name, value in entries.items():
                if isinstance(value, Tensor) and value.dim():  # stacked as the models are
                    old = past.get(number, {}).get(name)
                    entries[name] = where_rows(rows, value, torch.zeros_like(value) if old is None else old)
        return replace(self, state=state)

    def fresh(self) -> "Optimizer":
        """With the step size of the coming round and nothing else of the past: no momentum, no counters."""
        if self.state is None:
            return self
        return replace(self, state={**self.state, "optimizer": {**self.state["optimizer"], "state": {}}})

    def anew(self, models: Models, names: Sequence[str]) -> "Optimizer":
        """A fresh one of these tensors, which may be more or fewer than those that it has trained so far."""
        if self.state is None:
            return self
        made = make_stacked(self.make, {name: models[name] for name in names}).state_dict()["param_groups"]
        past = self.state["optimizer"]
        groups = [{**was, "params": now["params"]} for was, now in zip(past["param_groups"], made, strict=True)]
        return replace(self, state={**self.state, "optimizer": {**past, "state": {}, "param_groups": groups}})

    def check_fresh(self) -> None:
        """Refuse an optimizer that cannot be started anew: one that keeps its past among its settings."""
        ways = []
        for optimizer in (self, self.after_walks({"probe": torch.ones(1, 2)}, ["probe"])):
            running = replace(optimizer, schedule=None).start({"probe": torch.ones(1, 2)}, ["probe"])
            for group in running.torch.param_groups:
                group["lr"] = self.lr
            running.apply({"probe": torch.tensor([[1.0, -2.0]])})
            ways.append(running.models["probe"])
        if not torch.allclose(ways[0], ways[1]):
            raise InputError(
                "the optimizer cannot be started anew, as every walk of exchange='round' must: it keeps its past among "
                "its settings. Use SGD, Adam or AdamW, or exchange='update'"
            )

    def after_walks(self, models: Models, names: Sequence[str]) -> "Optimizer":
        """The optimizer of the next round, whose scheduler has gone on, after a round of walks that each started one
        anew."""
        running = self.start(models, names)
        running.apply({name: torch.zeros_like(models[name]) for name in names})
        return running.finish()[1].fresh()

    def start(self, models: Models, names: Sequence[str]) -> "Running":
        """Begin a round on a copy of `models`, training the tensors in `names`."""
        return Running(self, models, names)


class Running:
    """One round of an optimizer, in place on its own copy of the models."""

    def __init__(self, origin: Optimizer, models: Models, names: Sequence[str]) -> None:
        self.origin, self.names = origin, names
        self.models = {name: tensor.clone() for name, tensor in models.items()}
        self.torch = make_stacked(origin.make, {name: self.models[name] for name in names})
        self.scheduler = origin.schedule(self.torch) if origin.schedule else None
        if origin.state is not None:
            state = copy.deepcopy(origin.state)
            past = state["optimizer"]["state"] or self.torch.state_dict()["state"]  # a fresh one is as it was made
            self.torch.load_state_dict({**state["optimizer"], "state": past})
            if self.scheduler:
                self.scheduler.load_state_dict(state["scheduler"])

    @property
    def lr(self) -> float:
        return float(self.torch.param_groups[0]["lr"])

    def apply(self, gradients: Models) -> None:
        """One update; tensors that are not trained (buffers) take the value given."""
        for name, tensor in self.models.items():
            if name in self.names:
                tensor.grad = gradients[name]
            elif name in gradients:
                tensor.copy_(gradients[name])
        self.torch.step()

    def finish(self) -> tuple[Models, Optimizer]:
        """End the round: the models, and the optimizer for the next one."""
        if self.scheduler:
            self.scheduler.step()
        for tensor in self.models.values():
            tensor.grad = None
        state = {
            "optimizer": self.torch.state_dict(),
            "scheduler": self.scheduler.state_dict() if self.scheduler else None,
        }
        return self.models, replace(self.origin, state=state)


def make_stacked(make: Make, models: Models) -> torch.optim.Optimizer:
    """The optimizer that `make` gives to one model, with the stacked tensors in the place of that model's."""
    alone = {name: nn.Parameter(tensor[0].detach()) for name, tensor in models.items()}
    optimizer = make(list(alone.items()) if _takes_names(make) else list(alone.values()))
    stacked: dict[Tensor, Tensor] = {parameter: models[name] for name, parameter in alone.items()}
    count = len(next(iter(models.values())))
    for group in optimizer.param_groups:
        if not stacked.keys() >= set(group["params"]):
            raise InputError("the optimizer has other parameters than it was given: make it of its argument alone")
        group["params"][:] = [stacked[parameter] for parameter in group["params"]]
        group.pop("param_names", None)
    for parameter in list(optimizer.state):  # Adagrad has one from the beginning
        entries = optimizer.state.pop(parameter)
        optimizer.state[stacked[parameter]] = {
            name: value
            if name == "step" or not isinstance(value, Tensor)
            else value.expand(count, *value.shape).clone()
            for name, value in entries.items()
        }
    return optimizer


@dataclass(frozen=True)
class OfAnyPart:
    """A function that groups the parameters of one model sees all of them, also where only some are trained by what it
    makes: else the first of some would be taken for the first of all."""

    make: Make
    shapes: Mapping[str, Sequence[int]]  #: of the parameters of one model

    def __call__(self, named_parameters: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
        given = dict(named_parameters)
        others = {name: nn.Parameter(torch.zeros(*shape)) for name, shape in self.shapes.items() if name not in given}
        whole = {name: others.get(name, given.get(name)) for name in {**self.shapes, **given}}
        optimizer = self.make(list(whole.items()) if _takes_names(self.make) else list(whole.values()))
        away = {id(parameter) for parameter in others.values()}
        for group in optimizer.param_groups:
            group["params"][:] = [parameter for parameter in group["params"] if id(parameter) not in away]
        for parameter in others.values():
            optimizer.state.pop(parameter, None)
        return optimizer


def _takes_names(make: Make) -> bool:
    try:
        return next(iter(inspect.signature(make).parameters), "") == "named_parameters"
    except (TypeError, ValueError):  # some callables do not say
        return False


def check_elementwise(make: Make, shapes: Mapping[str, Sequence[int]]) -> None:
    """Refuse an optimizer under which stacked models would not be independent: tried on two models."""
    sizes = {name: torch.Size((2, *shape)) for name, shape in shapes.items()}
    start = {name: torch.linspace(-1, 1, size.numel()).reshape(size) for name, size in sizes.items()}

    def end(rows: slice) -> Models:
        models = {name: tensor[rows].clone() for name, tensor in start.items()}
        optimizer = make_stacked(make, models)
        for slope in (
            lambda t: t.flip(0) + 0.3,
            lambda t: 7 * t - 0.2,
        ):  # rows of very different size: any mixing shows
            for name, tensor in models.items():
                tensor.grad = slope(start[name])[rows].clone()
            optimizer.step()
        return models

    try:
        both, one, other = end(slice(0, 2)), end(slice(0, 1)), end(slice(1, 2))
    except (TypeError, RuntimeError, ValueError) as error:
        if is_memory(error):
            raise
        raise InputError(f"the optimizer cannot be used: {error}") from error
    alone = {name: torch.cat([one[name], other[name]]) for name in start}
    if not all(torch.allclose(both[name], alone[name], rtol=1e-4, atol=1e-6) for name in start):
        raise InputError(
            "the optimizer mixes the entries of a tensor, so one site's model would change another's: "
            "use an element-wise one such as SGD, Adam or AdamW"
        )
