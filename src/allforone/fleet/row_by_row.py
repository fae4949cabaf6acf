"""A round of an optimizer in which every row is updated as soon as its gradient is known.

In memory are then as many gradients as cores, and not one for each model; and what an optimizer needs in between, as
the roots of Adam, is that of one row. Large models are trained so; of small ones, all rows at once are faster.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .models import Models
from .optimizer import Optimizer, Running, make_stacked

#: Numbers in the parameters of all models from which on rows are updated one by one.
MANY_NUMBERS = 2**24


class ByRow:
    """In place on a copy of the models and of the optimizer's state, made once a round. Rows may be updated by several
    threads, each row by one."""

    def __init__(self, origin: Optimizer, models: Models, names: Sequence[str]) -> None:
        self.whole = Running(origin, models, names)
        self.models = self.whole.models
        self.rows = [Row(self.whole, m) for m in range(len(models[names[0]]))]

    def apply(self, m: int, gradient: Models) -> None:
        """One update of row m; what is not trained takes the value given. A row that asked nobody has no gradient."""
        self.rows[m].apply(gradient)

    def finish(self) -> tuple[Models, Optimizer]:
        """End the round: the models, and the optimizer for the next one."""
        for name in self.whole.names:
            before = self.whole.torch.state.get(self.models[name])
            if state := _together([row.ended(name) for row in self.rows], before):
                self.whole.torch.state[self.models[name]] = state
        self.whole.torch._opt_called = True  # type: ignore[attr-defined]  # schedulers look for it
        return self.whole.finish()


class Row:
    """The optimizer of one row, on the very numbers of the whole."""

    def __init__(self, whole: Running, m: int) -> None:
        self.names = whole.names
        # by `data` each has a version of its own: else autograd takes another row's update for one of what it has saved
        self.views = {name: tensor.data[m : m + 1] for name, tensor in whole.models.items()}
        self.torch = make_stacked(whole.origin.make, {name: self.views[name] for name in whole.names})
        for group, own in zip(whole.torch.param_groups, self.torch.param_groups, strict=True):
            own.update({key: value for key, value in group.items() if key != "params"})
        self.given: dict[str, dict[str, Any]] = {}  # what of its state are rows of the whole's
        for name in self.names:
            if entries := whole.torch.state.get(whole.models[name]):
                self.given[name] = {key: _part(value, m) for key, value in entries.items()}
                self.torch.state[self.views[name]] = dict(self.given[name])

    def apply(self, gradient: Models) -> None:
        for name, view in self.views.items():
            if name in self.names:
                view.grad = gradient[name][None] if name in gradient else torch.zeros_like(view)
            elif name in gradient:
                view.copy_(gradient[name][None])
        self.torch.step()
        for view in self.views.values():
            view.grad = None

    def ended(self, name: str) -> dict[str, tuple[Any, bool]]:
        """What it keeps of a parameter, and whether that still is the whole's, changed in place; then it lets go."""
        given, state = self.given.get(name, {}), self.torch.state.pop(self.views[name], {})
        return {key: (value, value is given.get(key)) for key, value in state.items()}


def _part(value: Any, m: int) -> Any:
    """Row m of what is stacked as the models are; of a counter, which is common, one of its own."""
    if not isinstance(value, Tensor):
        return value
    return value[m : m + 1] if value.dim() else value.clone()


def _together(rows: list[dict[str, tuple[Any, bool]]], before: dict[str, Any] | None) -> dict[str, Any]:
    """The state of all rows, stacked."""
    found: dict[str, Any] = {}
    for key in list(rows[0]):
        parts = [row.pop(key) for row in rows]
        first, _ = parts[0]
        if not isinstance(first, Tensor) or not first.dim():
            found[key] = first
        else:
            in_place = before is not None and all(same for _, same in parts)
            found[key] = before[key] if before and in_place else torch.cat([part for part, _ in parts])
    return found
