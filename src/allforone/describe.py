"""What an object is, as plain values: for config files, and to tell whether a run is gone on with as it began."""

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from types import FunctionType
from typing import Any

from torch import Tensor, nn

#: How deep attributes of attributes are looked into.
DEPTH = 6


def described(value: Any, depth: int = DEPTH) -> Any:
    """Two objects that would compute different numbers are described differently, as far as their source can tell."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): described(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [described(item, depth - 1) for item in value]
    if isinstance(value, Tensor):
        return {"name": "tensor", "digest": digest(value.detach().contiguous().flatten().numpy().tobytes())}
    if isinstance(value, partial):
        arguments = {str(place): item for place, item in enumerate(value.args)}
        return {"name": _name(value.func), **described({**arguments, **value.keywords}, depth)}
    if isinstance(value, nn.Module):
        tensors = described(dict(value.state_dict()), depth)
        return {"name": type(value).__name__, "digest": digest(f"{value!r} {tensors}".encode())}
    if is_dataclass(value) and not isinstance(value, type):
        return {"name": getattr(value, "name", type(value).__name__), **options(value, depth)}
    if isinstance(value, FunctionType):
        return _function(value, depth)
    if isinstance(value, type) or not hasattr(value, "__dict__") or depth <= 0:
        return _name(value)
    return {"name": type(value).__name__, **described(vars(value), depth)}


def options(value: Any, depth: int = DEPTH) -> dict[str, Any]:
    """The fields of a dataclass; those of a field that is a dataclass itself stand beside the others."""
    found: dict[str, Any] = {}
    for field in fields(value):
        item = getattr(value, field.name)
        found |= options(item, depth) if is_dataclass(item) else {field.name: described(item, depth - 1)}
    return found


def architecture(module: nn.Module) -> dict[str, str]:
    """A model but for the values of its parameters."""
    shapes = {name: list(tensor.shape) for name, tensor in module.state_dict().items()}
    return {"name": type(module).__name__, "digest": digest(f"{module!r} {shapes}".encode())}


def digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=6).hexdigest()


def _function(function: FunctionType, depth: int) -> Any:
    """A library's function is known by its name, the user's own by its source and what it encloses."""
    if function.__module__.partition(".")[0] in ("torch", "allforone"):
        return _name(function)
    try:
        source = "".join(inspect.getsource(function).split())
    except (OSError, TypeError):
        source = f"{function.__code__.co_code!r} {function.__code__.co_consts!r}"
    enclosed = described(inspect.getclosurevars(function).nonlocals, depth - 1) if depth > 0 else {}
    return {"name": function.__name__, "code": digest(f"{source} {enclosed}".encode())}


def _name(value: Any) -> str:
    if isinstance(value, type):
        return value.__name__
    return f"{value.__module__}.{value.__qualname__}" if hasattr(value, "__qualname__") else type(value).__name__
