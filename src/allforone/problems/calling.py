"""How a model is called with the inputs of a batch."""

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call

from .tree import Tree


def called(module: nn.Module, inputs: Tree, holding: dict[str, Tensor] | None = None) -> Any:
    """module(inputs), if asked with other tensors in the place of its own. The parts of a tuple or a dict are given as
    arguments, model(image, age) or model(image=…, age=…), where its `forward` takes them so; else the whole is."""
    given, named = arguments(module, inputs)
    return module(*given, **named) if holding is None else functional_call(module, holding, given, named)


def arguments(module: nn.Module, inputs: Tree) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """By place, and by name."""
    if isinstance(inputs, Mapping):
        given, named = (), dict(inputs)
    elif isinstance(inputs, tuple):
        given, named = inputs, {}
    else:
        return (inputs,), {}
    try:
        inspect.signature(module.forward).bind(*given, **named)
    except (TypeError, ValueError):
        return (inputs,), {}
    return given, named
