"""Numbered messages on a pipe between two processes of one machine."""

import struct
from typing import IO

_HEAD = struct.Struct(">QQ")  # its number, and how many bytes follow


def send(pipe: IO[bytes], number: int, content: bytes) -> None:
    pipe.write(_HEAD.pack(number, len(content)))
    pipe.write(content)
    pipe.flush()


def receive(pipe: IO[bytes]) -> tuple[int, bytes] | None:
    """The next message; None where the other side is gone, in the middle of one as well."""
    head = pipe.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    number, size = _HEAD.unpack(head)
    content = pipe.read(size)
    return (number, content) if len(content) == size else None
