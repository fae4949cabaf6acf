"""A run's state as one safetensors file: tensors by name, everything else as JSON in its header, all with checksums."""

import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, uint8

from ..algorithms import State
from ..errors import InputError
from ..fleet import Ledger, Models, Optimizer
from ..fleet.devices import CPU
from ..opening import to_read
from .durable import Mark, replacing

#: All texts of a file stand under one key: several would stand in any order, and the same run would have other bytes.
KEY = "allforone"


class About(NamedTuple):
    """Of the run, what its state goes with."""

    config: dict[str, Any]  #: as config.yaml had it
    clients: int  #: the CRC-32 of clients.json
    threads: int  #: that computed it: sums over several are rounded otherwise


class Checkpoint(NamedTuple):
    state: State
    round: int  #: rounds done
    ledger: Ledger
    seconds: float  #: of training so far
    left: tuple[str, ...] = ()  #: fast ways that the fleet had found wanting
    marks: Mapping[str, Mark] = MappingProxyType({})  #: by name, how far the files that only grow were written then
    kept: Models | None = None  #: those of the best round so far, where a callback wants them


class Label(NamedTuple):
    """What a checkpoint's header says: enough to tell whether the files beside it are those that it goes with."""

    round: int
    marks: Mapping[str, Mark]
    about: About


def save(path: Path, checkpoint: Checkpoint, about: About | None = None, keep: Path | None = None) -> None:
    """Write a checkpoint; the one that was there becomes `keep`."""
    tensors: dict[str, Tensor] = {}
    plain = {"state": checkpoint.state._asdict(), "ledger": checkpoint.ledger._asdict(), "seconds": checkpoint.seconds}
    plain |= {"left": list(checkpoint.left), "kept": checkpoint.kept}
    content = _encode(plain, "", tensors)
    about = about or About({}, 0, 0)
    header = {"content": content, "round": checkpoint.round, "marks": dict(checkpoint.marks), "about": about._asdict()}
    write_tensors(path, tensors, json.dumps(header), keep)


def load(path: Path, optimizer: Optimizer, device: str = "cpu") -> Checkpoint:
    """Read a checkpoint; `optimizer` says how torch's is made, the file what state it was in. What was on a device goes
    to this one."""
    label, tensors = read_label(path), read_tensors(path)
    with _made_by_us(path):
        content = _decode(json.loads(_texts(path)["header"])["content"], tensors, optimizer, device)
        state, ledger = State(**content["state"]), Ledger(**content["ledger"])
        left = tuple(content.get("left", ()))
        return Checkpoint(state, label.round, ledger, float(content["seconds"]), left, label.marks, content.get("kept"))


def read_label(path: Path) -> Label:
    """What the header says, without reading the tensors."""
    with _made_by_us(path):
        header = json.loads(_texts(path)["header"])
        marks = {name: Mark(*mark) for name, mark in header["marks"].items()}
        return Label(header["round"], MappingProxyType(marks), About(**header["about"]))


def write_tensors(path: Path, tensors: dict[str, Tensor], header: str = "", keep: Path | None = None) -> None:
    """Write all or nothing: a reader never sees half a file."""
    tensors = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    checks = {name: _check(tensor) for name, tensor in tensors.items()}
    texts = {"header": header, "tensors": json.dumps(checks, sort_keys=True)}
    with replacing(path, keep) as unfinished:
        save_file(tensors, unfinished, {KEY: json.dumps({**texts, "check": _check_of(texts)}, sort_keys=True)})


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, each as it was written."""
    with _made_by_us(path):
        checks = json.loads(_texts(path)["tensors"])
        with to_read(path), safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        for name in {*checks, *tensors}:
            if name not in tensors or checks.get(name) != _check(tensors[name]):
                raise InputError(f"{path}: missing or damaged (the checksum of '{name}' is another than was recorded)")
        return tensors


def _texts(path: Path) -> dict[str, str]:
    with to_read(path), safe_open(path, framework="pt") as file:
        texts: dict[str, str] = json.loads((file.metadata() or {})[KEY])
    if "check" not in texts:
        raise KeyError("check")
    if texts.pop("check") != _check_of(texts):
        raise InputError(f"{path}: missing or damaged (the checksum of its header is another than was recorded)")
    return texts


def _check_of(texts: dict[str, str]) -> str:
    return str(zlib.crc32(json.dumps(texts, sort_keys=True).encode()))


def _check(tensor: Tensor) -> int:
    """The CRC-32 of a tensor, with its type and shape."""
    content = tensor.detach().contiguous().reshape(-1).view(uint8).numpy()
    return zlib.crc32(content.data, zlib.crc32(f"{tensor.dtype} {list(tensor.shape)}".encode()))


@contextmanager
def _made_by_us(path: Path) -> Iterator[None]:
    """Whatever else the file is, is told in one line."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: missing or damaged ({error})") from error
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: not a file of a run of this version") from error
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not a file of a run of this version") from error


def _encode(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Optimizer):
        return {"optimizer": _encode(value.state, name, tensors)}
    if isinstance(value, Tensor):
        name = f"{name} {len(tensors)}" if name in tensors else name  # as that of {"a/b": …} and of {"a": {"b": …}}
        tensors[name] = value.detach().cpu().clone()
        return {"tensor" if value.device == CPU else "on a device": name}
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


def _decode(value: Any, tensors: dict[str, Tensor], optimizer: Optimizer, device: str) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "on a device":
        return tensors[content].to(device)
    if kind == "optimizer":
        return replace(optimizer, state=_decode(content, tensors, optimizer, device))
    if kind in ("dict", "counter"):
        pairs = {key: _decode(item, tensors, optimizer, device) for key, item in content}
        return Counter(pairs) if kind == "counter" else pairs
    items = [_decode(item, tensors, optimizer, device) for item in content]
    return tuple(items) if kind == "tuple" else items
