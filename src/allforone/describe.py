"""What an object is, as plain values: for config files, and to tell whether a run is gone on with as it began."""

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

#: How deep attributes of attributes are looked into.
DEPTH = 6
#: Of the names of its file that a function uses, those of such values count.
USED_BY_NAME = (
    *(bool, int, float, str, tuple, list, dict, np.ndarray, np.generic),
    *(Tensor, nn.Module, partial, FunctionType, MethodType),
)


def described(value: Any, depth: int = DEPTH) -> Any:
    """Two objects that would compute different numbers are described differently, as far as their code can tell."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): described(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [described(item, depth - 1) for item in value]
    if isinstance(value, np.generic):
        return described(value.item(), depth)
    if isinstance(value, np.ndarray):
        return {"name": "array", "digest": digest(f"{value.dtype} {value.shape}".encode() + value.tobytes())}
    if isinstance(value, Tensor):
        numbers = value.detach().cpu().contiguous().flatten().view(torch.uint8)
        return {
            "name": "tensor",
            "digest": digest(f"{value.dtype} {list(value.shape)}".encode() + numbers.numpy().tobytes()),
        }
    if isinstance(value, partial):
        arguments = {str(place): item for place, item in enumerate(value.args)}
        what = described(value.func, depth)
        called = what if isinstance(what, dict) else {"name": what}
        return {**called, **described({**arguments, **value.keywords}, depth)}
    if isinstance(value, MethodType):
        return described(partial(value.__func__, value.__self__), depth)
    if isinstance(value, nn.Module):
        tensors = described(dict(value.state_dict()), depth)
        return {"name": type(value).__name__, "digest": digest(f"{_layers(value)} {tensors}".encode())}
    if is_dataclass(value) and not isinstance(value, type):
        return {"name": getattr(value, "name", type(value).__name__), **options(value, depth), **_methods(type(value))}
    if isinstance(value, FunctionType):
        return _function(value, depth)
    if isinstance(value, type) or not hasattr(value, "__dict__") or depth <= 0:
        return _name(value)
    return {"name": type(value).__name__, **described(vars(value), depth), **_methods(type(value))}


def options(value: Any, depth: int = DEPTH) -> dict[str, Any]:
    """The fields of a dataclass; those of a field that is one of our own dataclasses stand beside the others."""
    found: dict[str, Any] = {}
    for field in fields(value):
        item = getattr(value, field.name)
        ours = is_dataclass(item) and _is_library(type(item))
        found |= options(item, depth) if ours else {field.name: described(item, depth - 1)}
    return found


def architecture(module: nn.Module) -> dict[str, str]:
    """A model but for the values of its parameters."""
    shapes = {name: list(tensor.shape) for name, tensor in module.state_dict().items()}
    return {"name": type(module).__name__, "digest": digest(f"{_layers(module)} {shapes}".encode())}


def _layers(module: nn.Module) -> str:
    """What a module prints, and of its layers the settings and the user's own code, which it does not print."""
    layers = [
        {
            **{key: described(item, 2) for key, item in vars(layer).items() if key[0] != "_" and _is_setting(item)},
            "training": None,
            **_methods(type(layer)),
        }
        for layer in module.modules()
    ]
    return f"{module!r} {layers}"


def _is_setting(value: Any) -> bool:
    """A number, a text or a function, as layers have them beside their parameters."""
    return isinstance(value, int | float | str) or (callable(value) and not isinstance(value, nn.Module))


def digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=6).hexdigest()


def _function(function: FunctionType, depth: int) -> Any:
    """A library's function is known by its name, the user's own by its code and the values that it uses."""
    if _is_library(function):
        return _name(function)
    values: Any = None
    if depth > 0:
        used = inspect.getclosurevars(function)
        plain = {name: item for name, item in used.globals.items() if isinstance(item, USED_BY_NAME)}
        defaults = {"defaults": function.__defaults__, "keywords": function.__kwdefaults__}
        values = described({**plain, **used.nonlocals, **defaults}, depth - 1)
    return {"name": function.__name__, "code": digest(f"{_code(function.__code__)} {values}".encode())}


def _code(code: Any) -> str:
    """What a function does, wherever it is written; the source of a lambda would be all of its line."""
    if isinstance(code, CodeType):
        return f"{code.co_code!r} {code.co_names} {[_code(constant) for constant in code.co_consts]}"
    return repr(sorted(code, key=repr) if isinstance(code, frozenset) else code)


def _methods(kind: type) -> dict[str, str]:
    """The code of a class of the user's own."""
    methods = {
        name: _function(method, 3)
        for base in reversed(kind.__mro__)
        for name, method in ((name, getattr(item, "__func__", item)) for name, item in vars(base).items())
        if isinstance(method, FunctionType) and not _is_library(base) and (name == "__call__" or name[:2] != "__")
    }
    return {"code": digest(repr(methods).encode())} if methods else {}


def _is_library(value: Any) -> bool:
    return str(value.__module__).partition(".")[0] in ("torch", "allforone")


def _name(value: Any) -> str:
    if isinstance(value, type):
        return value.__name__
    return f"{value.__module__}.{value.__qualname__}" if hasattr(value, "__qualname__") else type(value).__name__
