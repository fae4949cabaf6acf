"""N stacked models under one torch optimizer, kept as a value.

Every element-wise optimizer (SGD with momentum, Adam, …) treats the N rows of a stacked tensor as N optimizers would.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler

from ..describe import described
from ..errors import InputError, blaming
from .models import Models, where_rows

Make = Callable[[list[Tensor]], torch.optim.Optimizer]  #: e.g. functools.partial(torch.optim.SGD, lr=0.1)
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

    def __post_init__(self) -> None:
        if self.state is None:
            check_elementwise(self.make)
            if self.schedule:
                with blaming("the scheduler cannot be used", "It must take one step() per round, without a metric"):
                    probe = self.start({"probe": torch.zeros(1, 1)}, ["probe"])
                    probe.apply({"probe": torch.zeros(1, 1)})
                    probe.finish()

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
            return self.start({"probe": torch.zeros(1, 1)}, ["probe"]).lr
        return float(self.state["optimizer"]["param_groups"][0]["lr"])

    @property
    def step_size(self) -> float | None:
        """By how much updates follow a gradient in the long run: of SGD η, or η/(1 − momentum); None of others, whose
        step does not grow with the gradient."""
        probe = self.make([torch.zeros(1)])
        settings = probe.param_groups[0]
        return self.lr / (1 - settings["momentum"]) if isinstance(probe, torch.optim.SGD) else None

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
        self.torch = origin.make([self.models[name] for name in names])
        self.scheduler = origin.schedule(self.torch) if origin.schedule else None
        if origin.state is not None:
            state = copy.deepcopy(origin.state)
            self.torch.load_state_dict(state["optimizer"])
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


def check_elementwise(make: Make) -> None:
    """Refuse an optimizer under which stacked models would not be independent: tried on two tiny models."""
    start = torch.linspace(-1, 1, 12).reshape(2, 2, 3)
    slopes = [start.flip(0) + 0.3, 7 * start - 0.2]  # rows of very different size: any mixing shows

    def end(rows: slice) -> Tensor:
        tensor = start[rows].clone()
        optimizer = make([tensor])
        for slope in slopes:
            tensor.grad = slope[rows].clone()
            optimizer.step()
        return tensor

    try:
        stacked, alone = end(slice(0, 2)), torch.cat([end(slice(0, 1)), end(slice(1, 2))])
    except (TypeError, RuntimeError, ValueError) as error:
        raise InputError(f"the optimizer cannot be used: {error}") from error
    if not torch.allclose(stacked, alone, rtol=1e-4, atol=1e-6):
        raise InputError(
            "the optimizer mixes the entries of a tensor, so one site's model would change another's: "
            "use an element-wise one such as SGD, Adam or AdamW"
        )
