"""How an optimizer travels: a class of torch.optim, its settings and the state of some rows, never code."""

import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..fleet import Make, Models, Optimizer
from ..fleet.optimizer import Running
from .wire import Message

#: Makes of optimizers that are no class of torch.optim, by a name for each: where sites share this process only.
Makes = dict[str, Make]


def pack(optimizer: Optimizer, models: Models, trained: list[str], makes: Makes | None) -> Message | None:
    """The optimizer of these stacked models, with all rows of its state; None where it is code that cannot travel."""
    running = optimizer.start(models, trained)
    names = {id(tensor): name for name, tensor in running.models.items()}
    groups = [
        {
            **{key: value for key, value in group.items() if key != "params"},
            "names": [names[id(p)] for p in group["params"]],
        }
        for group in running.torch.param_groups
    ]
    state = {names[id(parameter)]: dict(entries) for parameter, entries in running.torch.state.items()}
    if _is_plain(running.torch, groups):
        return {"class": type(running.torch).__name__, "groups": groups, "state": state}
    if makes is None:
        return None
    name = next((name for name, make in makes.items() if make is optimizer.make), f"make {len(makes)}")
    makes[name] = optimizer.make
    return {"make": name, "groups": groups, "state": state}


def _is_plain(optimizer: torch.optim.Optimizer, groups: list[dict[str, Any]]) -> bool:
    """Whether its class and settings say all about it."""
    hooks = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    try:
        json.dumps(groups)
    except TypeError:
        return False
    return getattr(torch.optim, type(optimizer).__name__, None) is type(optimizer) and not hooks


def of_row(packed: Message, row: int) -> Message:
    """The same for one model of the stack; counters of steps are common to all."""
    return {
        **packed,
        "state": {
            name: {key: _row(value, row) for key, value in entries.items()} for name, entries in packed["state"].items()
        },
    }


def _row(value: Any, row: int) -> Any:
    return value[row : row + 1] if isinstance(value, Tensor) and value.dim() else value


def unpack(packed: Message, makes: Makes | None) -> Optimizer:
    """The optimizer at the other end, for as many models as its state has rows."""
    groups = packed["groups"]
    names = [name for group in groups for name in group["names"]]
    settings = [{key: value for key, value in group.items() if key != "names"} for group in groups]
    if "make" in packed:
        if makes is None:
            raise InputError("an optimizer that is no class of torch.optim is code, which does not travel")
        make = makes[packed["make"]]
    else:
        make = _maker(packed["class"], groups, settings)
    places = {name: place for place, name in enumerate(names)}
    state = {
        "state": {places[name]: entries for name, entries in packed["state"].items()},
        "param_groups": [
            {**setting, "params": [places[name] for name in group["names"]]}
            for setting, group in zip(settings, groups, strict=True)
        ],
    }
    return Optimizer(make, state={"optimizer": state, "scheduler": None})


def _maker(kind: str, groups: list[dict[str, Any]], settings: list[dict[str, Any]]) -> Make:
    made: Any = getattr(torch.optim, str(kind), None)
    if not isinstance(made, type) or torch.optim.Optimizer not in made.__mro__:
        raise InputError(f"torch.optim has no optimizer {kind}")

    def make(named_parameters: list[tuple[str, Tensor]]) -> torch.optim.Optimizer:
        tensors = dict(named_parameters)
        found: torch.optim.Optimizer = made(
            [
                {**setting, "params": [tensors[name] for name in group["names"]]}
                for setting, group in zip(settings, groups, strict=True)
            ]
        )
        return found

    return make


def state_of(running: Running) -> Message:
    """What is stacked of a running optimizer's state, by parameter."""
    names = {id(tensor): name for name, tensor in running.models.items()}
    return {
        names[id(parameter)]: {
            key: value for key, value in entries.items() if isinstance(value, Tensor) and value.dim()
        }
        for parameter, entries in running.torch.state.items()
    }


def put_row(running: Running, row: int, state: Message, checked: Callable[[Any, Tensor], Tensor]) -> None:
    """Another's state of one row into a running optimizer, each part as `checked` against its place finds it."""
    for parameter, entries in state_of(running).items():
        for key, value in entries.items():
            value[row] = checked(state[parameter][key], value[row : row + 1])[0]
