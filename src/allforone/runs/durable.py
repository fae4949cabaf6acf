"""Files that outlive a crash: whole or not there, on the disk before they count, and known again when read back."""

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError

from ..errors import InputError
from ..opening import to_read

#: Bytes that are read at once.
BLOCK = 2**20


@contextmanager
def replacing(path: Path, keep: Path | None = None) -> Iterator[Path]:
    """A place to write to, which takes the name `path` once it is whole and on the disk; what had it becomes `keep`."""
    unfinished = path.with_name(path.name + ".unfinished")
    with writing(path):
        unfinished.unlink(missing_ok=True)  # whatever a crash, or somebody else, has left there
        try:
            yield unfinished
            with unfinished.open("rb") as file:
                os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                unfinished.unlink()  # a full disk needs the room
            raise
        if keep and path.exists():
            os.replace(path, keep)
        os.replace(unfinished, path)
        flush_folder(path.parent)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the disk refuses is told with the file's name."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{path}: cannot be written ({reason}); what was written before is kept: make room or see to the folder's "
            "rights, then go on"
        ) from error


def write_text(path: Path, text: str) -> None:
    """All or nothing: a reader never sees half a file."""
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def flush_folder(path: Path) -> None:
    """Names are on the disk only after this; where a system cannot do it, a file's own flush has to be enough."""
    try:
        folder = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(folder)
    except OSError:
        pass
    finally:
        os.close(folder)


class Mark(NamedTuple):
    """How far a file that only grows was written at some time."""

    size: int = 0  #: bytes
    check: int = 0  #: their CRC-32

    def after(self, more: bytes) -> "Mark":
        return Mark(self.size + len(more), zlib.crc32(more, self.check))

    def verify(self, path: Path) -> None:
        """The file may have grown since; what was there then must be there still."""
        left, check = self.size, 0
        if self.size:
            try:
                with to_read(path) as file:
                    while left and (block := file.read(min(left, BLOCK))):
                        left, check = left - len(block), zlib.crc32(block, check)
            except OSError as error:
                raise InputError(f"{path}: missing or cannot be read ({error.strerror})") from error
        if left:
            raise InputError(f"{path}: cut off, {self.size - left} bytes of at least {self.size}")
        if check != self.check:
            raise InputError(f"{path}: damaged, or of another run (its checksum is not the one recorded)")


class Appended:
    """A file that only grows, with the mark of its end."""

    def __init__(self, path: Path, mark: Mark | None = None) -> None:
        """Go on after `mark`; what was written after it is cut off. Without one nothing is touched."""
        self.path, self.mark = path, mark or Mark()
        if mark is not None and path.exists():
            with writing(path):
                os.truncate(path, mark.size)

    def append(self, content: bytes) -> None:
        """In order, so that a kill leaves its beginning."""
        with writing(self.path), self.path.open("ab") as file:
            file.write(content)
        self.mark = self.mark.after(content)

    def flush(self) -> None:
        if self.mark.size:
            with self.path.open("rb") as file:
                os.fsync(file.fileno())
