"""A round of an optimizer in which every row is updated as soon as its gradient is known.

In memory are then as many gradients as cores, and not one for each model; and what an optimizer needs in between, as
the roots of Adam, is that of one row. Large models are trained so; of small ones, all rows at once are faster.
"""

import copy
from collections.abc import Sequence
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from .memory import give_freed_memory_back
from .models import Models
from .optimizer import Optimizer, Running, make_stacked

#: Numbers in the parameters of all models from which on rows are updated one by one.
MANY_NUMBERS = 2**24


class ByRow:
    """In place on a copy of the models and of the optimizer's state, made once a round. Rows may be updated by several
    threads, each row by one."""

    def __init__(self, origin: Optimizer, models: Models, names: Sequence[str]) -> None:
        give_freed_memory_back()
        self.whole, self.making = Running(origin, models, names), Lock()
        self.models = self.whole.models
        self.rows = [Row(self, m) for m in range(len(models[names[0]]))]

    def apply(self, m: int, gradient: Models) -> None:
        """One update of row m; what is not trained takes the value given. A row that asked nobody has no gradient."""
        self.rows[m].apply(gradient)

    def state(self, name: str) -> dict[str, Any]:
        """What the optimizer keeps of a parameter, of all rows."""
        return self.whole.torch.state[self.models[name]]  # type: ignore[no-any-return]

    def place(self, name: str, key: str, part: Tensor) -> Tensor:
        """Where all rows keep what one keeps as `part`."""
        with self.making:
            kept = self.state(name)
            if key not in kept:
                kept[key] = part.new_empty(len(self.rows), *part.shape[1:])
            return kept[key]  # type: ignore[no-any-return]

    def finish(self) -> tuple[Models, Optimizer]:
        """End the round: the models, and the optimizer for the next one."""
        for name in self.whole.names:
            if common := {key: value for key, value in self.rows[0].state(name).items() if not _is_stacked(value)}:
                self.state(name).update(common)
        self.rows = []  # they know it, as it knows them: else their memory would wait for the garbage collector
        self.whole.torch._opt_called = True  # type: ignore[attr-defined]  # schedulers look for it
        return self.whole.finish()


class Row:
    """The optimizer of one row, on the very numbers of the whole."""

    def __init__(self, of: ByRow, m: int) -> None:
        whole, self.of, self.m = of.whole, of, m
        # by `data` each has a version of its own: else autograd takes another row's update for one of what it has saved
        self.views = {name: tensor.data[m : m + 1] for name, tensor in whole.models.items()}
        self.torch = make_stacked(whole.origin.make, {name: self.views[name] for name in whole.names})
        for group, own in zip(whole.torch.param_groups, self.torch.param_groups, strict=True):
            own.update({key: value for key, value in group.items() if key != "params"})
        self.placed: dict[str, dict[str, Any]] = {name: {} for name in whole.names}  # what of its state is the whole's
        for name in whole.names:
            for key, value in whole.torch.state.get(whole.models[name], {}).items():
                part = value[m : m + 1] if _is_stacked(value) else copy.deepcopy(value)  # counters count by themselves
                self.placed[name][key] = self.torch.state[self.views[name]][key] = part

    def state(self, name: str) -> dict[str, Any]:
        return self.torch.state.get(self.views[name], {})  # type: ignore[no-any-return]

    def apply(self, gradient: Models) -> None:
        for name, view in self.views.items():
            if name in self.placed:
                view.grad = gradient[name][None] if name in gradient else torch.zeros_like(view)
            elif name in gradient:
                view.copy_(gradient[name][None])
        self.torch.step()
        for name in self.placed:
            self.views[name].grad = None
            self._put_in_place(name)

    def _put_in_place(self, name: str) -> None:
        """What the optimizer has made anew of its state, as all of it at its first update, into the whole's."""
        state, placed = self.state(name), self.placed[name]
        for key, value in state.items():
            if _is_stacked(value) and value is not placed.get(key):
                part = self.of.place(name, key, value)[self.m : self.m + 1]
                state[key] = placed[key] = part.copy_(value)


def _is_stacked(value: Any) -> bool:
    """Whether it has a row for each model, as all that is no counter."""
    return isinstance(value, Tensor) and value.dim() > 0
