"""What all must agree on before the first round: the task, the initial model, kinds of data and versions."""

import copy
import json
import platform
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from .. import __version__
from ..describe import architecture, described
from ..errors import InputError, short
from ..fleet import Member
from ..fleet.passes import Passes
from ..problems import Client, Task
from ..problems.data import Finite, Population, draw
from ..problems.tree import kind
from .checking import is_count
from .wire import Message

#: What is compared, and how it is called where it differs.
COMPARED = {
    "task": "task (its {})",
    "initial": "initial model",
    "settings": "settings of the run ({})",
    "versions": "versions ({})",
    "kinds": "kind of data ({})",
}


def model_of(task: Task, seed: int) -> torch.nn.Module:
    """A copy of the initial model, which coordinator and sites must be able to make without each other's data."""
    module = copy.deepcopy(task.initial_model(seed))
    if any(is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
        raise InputError(
            "the model has lazy layers, which read their shapes off somebody's data: give them their sizes"
        )
    return module


def common(task: Task, module: torch.nn.Module, seed: int, batch_size: int) -> Message:
    """What is the same at every site, if all is well."""
    return {
        "task": {
            "model": architecture(module),
            "loss": described(task.loss),
            "smoothness": task.smoothness,
            "metrics": {name: described(metric.function) for name, metric in task.metrics.items()},
        },
        "initial": described(module),
        "settings": {
            "seed": seed,
            "batch_size": batch_size,
            "clip": task.settings.clip,
            "precision": task.settings.precision,
        },
        "versions": {
            "allforone": __version__,
            "torch": torch.__version__,
            "python": ".".join(platform.python_version_tuple()[:2]),
        },
    }


def describe(task: Task, passes: Passes, client: Client, number: int, seed: int, batch_size: int) -> Message:
    """What a site says of itself before anything is trained; of its data sizes and kinds, and a fingerprint."""
    data = client.train
    ragged = isinstance(data, Finite) and data.ragged
    inputs, targets = draw(client.train, 2, seed=0, client=number, step=0, purpose="check")
    member = Member(client.name, client.size, client.cluster, client.is_stream, client.fingerprint)
    return {
        **common(task, passes.module, seed, batch_size),
        "kinds": {"inputs": kind(inputs, not ragged), "targets": kind(targets, not ragged)},
        "number": number,
        "member": member._asdict(),
        "held": client.held is not None,
        "tested": not isinstance(client.test, Population),
    }


def is_description(told: Message) -> bool:
    """Whether this can be what a site says of itself: plain values, and all that is read of them later."""
    try:
        json.dumps(told)
        member = Member(**told["member"])
    except (KeyError, TypeError, ValueError, RecursionError):
        return False
    texts = all(text is None or type(text) is str for text in (member.name, member.fingerprint))
    cluster = member.cluster is None or (type(member.cluster) is int and is_count(abs(member.cluster)))
    known = type(member.stream) is bool and {type(told.get(key)) for key in ("held", "tested")} == {bool}
    return texts and cluster and known and is_count(member.size)


def check_agreement(ours: Message, names: Sequence[str], told: Sequence[Message]) -> None:
    """Refuse sites that would train something else, and name them; kinds of data are compared with the first's."""
    unreadable = [name for name, description in zip(names, told, strict=True) if not is_description(description)]
    if unreadable:
        raise InputError(
            f"what {', '.join(unreadable)} says of itself cannot be read. See there that it runs allforone "
            f"{__version__}, then start again"
        )
    wrong = []
    for number, (name, description) in enumerate(zip(names, told, strict=True)):
        expected = {**ours, "kinds": told[0].get("kinds")}
        wrong += [
            f"{name} has another {how.format(_where(expected[key], description.get(key)))}"
            for key, how in COMPARED.items()
            if _plain(expected[key]) != description.get(key)
        ]
        if description.get("number") != number:
            wrong.append(f"{name} takes itself for number {short(description.get('number'))}, not {number}")
    if wrong:
        raise InputError("the sites do not agree: " + "; ".join(wrong) + ". Mend it there, then start again")


def _plain(value: Any) -> Any:
    """As JSON gives it back."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _where(expected: Any, found: Any) -> str:
    """Which entries differ, and how."""
    if not isinstance(expected, dict) or not isinstance(found, dict):
        return "unreadable"
    different = [key for key in expected if _plain(expected[key]) != found.get(key)]
    return ", ".join(
        f"{key} {short(found.get(key))} for {expected[key]}" if isinstance(expected[key], int | str) else key
        for key in different
    )
