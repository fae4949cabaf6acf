"""What packed files give, up to a limit: a few bytes can be packed so that they unpack to more than a machine holds."""

from typing import IO


class Bounded:
    """A stream of bytes that fails once more than `most` have come out of it."""

    def __init__(self, packed: IO[bytes], most: int) -> None:
        self.packed, self.most, self.left = packed, most, most

    def read(self, size: int = -1) -> bytes:
        content = self.packed.read(self.left + 1 if size < 0 else min(size, self.left + 1))
        self.left -= len(content)
        if self.left < 0:
            raise ValueError(f"more than {self.most} bytes when unpacked")
        return content
