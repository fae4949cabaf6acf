"""What packed files give, up to a limit: a few bytes can be packed so that they unpack to more than a machine holds."""

import io
from typing import Protocol


class Packed(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Bounded(io.BufferedIOBase):
    """A stream of bytes that fails once more than `most` have come out of it."""

    def __init__(self, packed: Packed, most: int) -> None:
        self.packed, self.most, self.left = packed, most, most

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = self.left + 1 if size is None or size < 0 else min(size, self.left + 1)
        content = self.packed.read(wanted)
        self.left -= len(content)
        if self.left < 0:
            raise ValueError(f"more than {self.most} bytes when unpacked")
        return content
