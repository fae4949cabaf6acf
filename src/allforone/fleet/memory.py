"""Keep freed memory in the process.

The C library of Linux gives large blocks back to the system as soon as they are free. A training pass takes the same
blocks again and again, and meeting every page anew costs up to half of the time.
"""

import ctypes
import sys
from functools import cache

#: The numbers by which malloc.h calls its settings.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
#: Bytes of a block, and of free memory, up to which the process keeps it.
KEPT = 2**30


@cache
def keep_freed_memory() -> None:
    if libc := _gnu_library():
        libc.mallopt(M_MMAP_THRESHOLD, KEPT)
        libc.mallopt(M_TRIM_THRESHOLD, KEPT)


def give_freed_memory_back() -> None:
    """For large models, where what is kept in pieces too small to be used again would come on top of the next copy."""
    if libc := _gnu_library():
        libc.malloc_trim(0)


@cache
def _gnu_library() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") else None
