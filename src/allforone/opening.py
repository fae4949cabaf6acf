"""Files of bytes alone: a pipe, a device or a folder in the place of one is refused at once, not waited for."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

#: With it a pipe that nobody writes into can be opened; where a system has no such pipes, it has no such flag.
WITHOUT_WAITING: int = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def to_read(path: Path) -> BinaryIO:
    """The file, opened; an OSError says why it cannot be."""
    place = os.open(path, os.O_RDONLY | WITHOUT_WAITING)
    if not stat.S_ISREG(os.fstat(place).st_mode):
        os.close(place)
        raise _no_file(path)
    return os.fdopen(place, "rb")


def content_of(path: Path) -> bytes:
    """All that is in it."""
    with to_read(path) as file:
        return file.read()


def to_write(path: Path) -> Path:
    """The same path, if nothing but a file would be overwritten there."""
    if path.exists() and not path.is_file():
        raise _no_file(path)
    return path


def _no_file(path: Path) -> OSError:
    return OSError(errno.EINVAL, "not a file", str(path))
