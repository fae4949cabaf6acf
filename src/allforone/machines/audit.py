"""What has left a house: a log at each site of every question that it answered, only ever appended to.

One line of JSON for each, so that whoever must answer for the data can read it without us.
"""

import errno
import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError, short

#: Bytes of a line, many times what a question about thousands of models leaves behind.
LONGEST = 2**20
#: Models of a question whose owners are written down: more than a federation has sites, and they fit on a line.
MOST_OWNERS = 2**16


class Entry(NamedTuple):
    """One question and what was answered."""

    time: str  #: when, in universal time
    question: str  #: its kind: gradients, look, walk, …
    round: int | None  #: of the training; None before and between rounds
    models_of: list[int | None] | None  #: whose models it was about, by client; None: nobody's
    sent: dict[str, int]  #: how many numbers left, by what they are
    bytes_in: int
    bytes_out: int
    samples: int  #: of the site's own data, by which the answer was made
    failed: str | None = None  #: the type of the error that was answered in the place of anything
    epsilon: float | None = None  #: spent of the site's privacy by then, where its answers are private


class Audit:
    """The log of a site."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, asked: dict[str, Any], told: dict[str, Any], bytes_in: int, bytes_out: int) -> None:
        """Append what was asked and told, in one piece, before the answer leaves."""
        drawn = sum((stop - start) * size for _, start, stop, size in told.get("drawn", ()))
        entry = Entry(
            datetime.now(UTC).isoformat(timespec="milliseconds"),
            short(str(asked.get("ask", "unreadable"))),
            _number(asked.get("round")),
            _owners(asked.get("owners")),
            {key: count for key, value in told.items() if (count := numbers(value))},
            bytes_in,
            bytes_out,
            drawn + told.get("judged", 0),
            told.get("error"),
            told.get("epsilon"),
        )
        line = f"{json.dumps(entry._asdict())}\n".encode()
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            whole = _without_half_a_line(file)
            if os.write(file, line) < len(line):  # the disk is full
                os.ftruncate(file, whole)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        finally:
            os.close(file)


def _without_half_a_line(file: int) -> int:
    """Cut off what a machine that died in the middle of a line has left, whose answer never went out; the size then."""
    size = os.lseek(file, 0, os.SEEK_END)
    if not size or os.pread(file, 1, size - 1) == b"\n":
        return size
    tail = os.pread(file, LONGEST, max(0, size - LONGEST))
    whole = size - len(tail) + tail.rfind(b"\n") + 1
    os.ftruncate(file, whole)
    return whole


def _number(said: Any) -> int | None:
    """A client or a round as the question has it: whoever asks cannot make the log unreadable."""
    return said if type(said) is int and 0 <= said < 2**31 else None


def _owners(said: Any) -> list[int | None] | None:
    return [_number(owner) for owner in said[:MOST_OWNERS]] if isinstance(said, list) else None


def numbers(value: Any) -> int:
    """How many numbers of tensors are in a part of an answer."""
    if isinstance(value, dict):
        return sum(numbers(item) for item in value.values())
    return int(value.numel()) if hasattr(value, "numel") else 0


def read(path: Path) -> list[Entry]:
    """All entries that are whole; the last may be in the middle of being written."""
    if not path.is_file():
        raise InputError(f"{path}: no audit log there; give the file that a site writes")
    entries = []
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST), b""), 1):
            if not line.endswith(b"\n") and len(line) < LONGEST:
                break
            try:
                entries.append(_entry(json.loads(line)))
            except (ValueError, TypeError, AttributeError, RecursionError):
                raise InputError(
                    f"{path}, line {number}: not as a site writes it; the log was changed or damaged"
                ) from None
    return entries


def _entry(written: Any) -> Entry:
    """What a line holds, if it is as `Audit.write` left it."""
    entry = Entry(**written)
    texts = [entry.time, entry.question, *entry.sent, *([] if entry.failed is None else [entry.failed])]
    counts = [entry.bytes_in, entry.bytes_out, entry.samples, *entry.sent.values()]
    whose = [number for number in (entry.round, *(entry.models_of or [])) if number is not None]
    if entry.epsilon is not None and type(entry.epsilon) is not float:
        raise TypeError
    if not all(type(text) is str for text in texts) or not all(type(count) is int for count in (*counts, *whose)):
        raise TypeError
    return entry


class Sum(NamedTuple):
    """All answers to one kind of question."""

    question: str
    answers: int
    failed: int
    rounds: int  #: in how many rounds
    models_of: list[int]  #: whose models they were about
    sent: dict[str, int]
    bytes_in: int
    bytes_out: int
    samples: int  #: drawn, those drawn several times counted each time


def summed(entries: Iterable[Entry]) -> list[Sum]:
    """By kind of question, in the order in which each was first asked."""
    kinds: dict[str, list[Entry]] = {}
    for entry in entries:
        kinds.setdefault(entry.question, []).append(entry)
    return [_sum(kind, some) for kind, some in kinds.items()]


def _sum(kind: str, entries: list[Entry]) -> Sum:
    sent: dict[str, int] = {}
    for entry in entries:
        for what, count in entry.sent.items():
            sent[what] = sent.get(what, 0) + count
    return Sum(
        kind,
        len(entries),
        sum(entry.failed is not None for entry in entries),
        len({entry.round for entry in entries if entry.round is not None}),
        sorted({owner for entry in entries for owner in entry.models_of or () if owner is not None}),
        sent,
        sum(entry.bytes_in for entry in entries),
        sum(entry.bytes_out for entry in entries),
        sum(entry.samples for entry in entries),
    )
