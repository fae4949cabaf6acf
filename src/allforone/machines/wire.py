"""Questions and answers as bytes: safetensors with everything that is no tensor as JSON in its header."""

import json
import struct
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from ..errors import AllForOneError

#: Under which a message stands in the header.
KEY = "allforone"
#: In the place of a tensor stands {TENSOR: its name}; no other dictionary has this key.
TENSOR = ""

Message = dict[str, Any]  #: plain values and tensors, in dictionaries and lists; keys are texts


class Unreadable(AllForOneError):  # noqa: N818  (a state of what arrived)
    """Bytes that are no message."""


def encode(message: Message) -> bytes:
    tensors: dict[str, Tensor] = {}
    plain = json.dumps(_apart(message, tensors))
    return safetensors.torch.save(tensors, {KEY: plain})


def decode(content: bytes) -> Message:
    """The message in these bytes. Its tensors are copies: where they lie in the bytes, they are aligned otherwise than
    tensors are, and products of them have other last bits."""
    try:
        (length,) = struct.unpack("<Q", content[:8])
        plain = json.loads(json.loads(content[8 : 8 + length])["__metadata__"][KEY])
        tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load(content).items()}
        message = _together(plain, tensors)
    except (safetensors.SafetensorError, struct.error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unreadable(f"{len(content)} bytes are no message ({type(error).__name__})") from error
    if not isinstance(message, dict):
        raise Unreadable(f"{len(content)} bytes are no message (it has no keys)")
    return message


def _apart(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {TENSOR: name}
    if isinstance(value, dict):
        return {key: _apart(item, tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_apart(item, tensors) for item in value]
    return value


def _together(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if TENSOR in value:
            return tensors[value[TENSOR]]
        return {key: _together(item, tensors) for key, item in value.items()}
    if isinstance(value, list):
        return [_together(item, tensors) for item in value]
    return value
