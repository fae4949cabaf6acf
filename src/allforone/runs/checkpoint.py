"""A run's state as one safetensors file: tensors by name, everything else as JSON in its header. Never pickle."""

import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..algorithms import State
from ..errors import InputError
from ..fleet import Ledger, Optimizer


class Checkpoint(NamedTuple):
    state: State
    round: int  #: rounds done
    ledger: Ledger
    seconds: float  #: of training so far


def save(path: Path, checkpoint: Checkpoint) -> None:
    tensors: dict[str, Tensor] = {}
    plain = {
        **checkpoint._asdict(),
        "state": checkpoint.state._asdict(),
        "ledger": checkpoint.ledger._asdict(),
    }
    header = json.dumps(_encode(plain, "", tensors))
    write_tensors(path, tensors, {"allforone": header})


def load(path: Path, optimizer: Optimizer) -> Checkpoint:
    """Read a checkpoint; `optimizer` says how torch's is made, the file what state it was in."""
    tensors, metadata = read_tensors(path)
    try:
        content = _decode(json.loads(metadata["allforone"]), tensors, optimizer)
        state, ledger = State(**content.pop("state")), Ledger(**content.pop("ledger"))
        return Checkpoint(state=state, ledger=ledger, **content)
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: not a checkpoint of a run of this version") from error


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write all or nothing: a reader never sees half a file."""
    unfinished = path.with_name(path.name + ".unfinished")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, unfinished, metadata)
    os.replace(unfinished, path)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (FileNotFoundError, SafetensorError) as error:
        raise InputError(f"{path}: missing or damaged ({error})") from error


def _encode(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Optimizer):
        return {"optimizer": _encode(value.state, name, tensors)}
    if isinstance(value, Tensor):
        name = f"{name} {len(tensors)}" if name in tensors else name  # as that of {"a/b": …} and of {"a": {"b": …}}
        tensors[name] = value.detach().clone()
        return {"tensor": name}
    if isinstance(value, dict) and all(isinstance(key, str | int) for key in value):
        kind = "counter" if isinstance(value, Counter) else "dict"
        return {kind: [[key, _encode(item, f"{name}/{key}", tensors)] for key, item in value.items()]}
    if type(value) in (list, tuple):  # a named tuple would come back without its names
        return {type(value).__name__: [_encode(item, f"{name}/{number}", tensors) for number, item in enumerate(value)]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(
        f"cannot save {name.strip('/')} ({type(value).__name__}): what an algorithm, optimizer or scheduler keeps must "
        "be made of tensors, numbers, texts, lists of them, and dictionaries whose keys are texts or whole numbers"
    )


def _decode(value: Any, tensors: dict[str, Tensor], optimizer: Optimizer) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "optimizer":
        return replace(optimizer, state=_decode(content, tensors, optimizer))
    if kind in ("dict", "counter"):
        pairs = {key: _decode(item, tensors, optimizer) for key, item in content}
        return Counter(pairs) if kind == "counter" else pairs
    items = [_decode(item, tensors, optimizer) for item in content]
    return tuple(items) if kind == "tuple" else items
