"""weights.rounds: the tables of a run on disk, appended round by round and never rewritten.

After the line TITLE comes a frame for each round, all numbers little-endian:

    round    uint64
    clients  uint32   N
    pairs    uint32   P, of which something is kept; 0 if AS_BEFORE
    tables   uint32   bit t: table t of TABLES is there; AS_BEFORE: pairs and tables are those of the round before
    check    uint32   CRC-32 of the four numbers above and of all that follows
    present  N bytes  1 if the client took part
    i·N + k  P int32  rising
    values   P float32 or float16 for each table, in the order of TABLES

A process that is killed leaves at most its last frame unfinished, which is recognised and not read.
"""

import struct
import zlib
from pathlib import Path
from typing import BinaryIO, NamedTuple

import torch
from torch import Tensor

from ..errors import InputError
from ..opening import to_read
from .durable import Appended, Mark
from .tables import TABLES, Snapshot, Tables

TITLE = b"allforone rounds 1\n"
HEADER = struct.Struct("<QIII")
CHECK = struct.Struct("<I")
AS_BEFORE = 1 << 31


class Frame(NamedTuple):
    """Where a round stands in the file."""

    number: int
    clients: int
    pairs: int
    tables: int
    start: int

    @property
    def names(self) -> list[str]:
        return [name for bit, name in enumerate(TABLES) if self.tables & 1 << bit]

    @property
    def end(self) -> int:
        each = 4 + sum(TABLES[name].itemsize for name in self.names)
        return self.start + HEADER.size + CHECK.size + self.clients + self.pairs * each


class Content(NamedTuple):
    """What a frame holds; nothing but `present` if the rest is as before."""

    present: Tensor
    pairs: Tensor
    values: dict[str, Tensor]


class TablesFile(Tables):
    """What is whole in the file now; a file that is not there is one without rounds.

    With a `mark` the file is gone on with after it, and what follows it is cut off.
    """

    def __init__(self, path: Path, mark: Mark | None = None) -> None:
        self.path, self.file = path, Appended(path, mark)
        self._frames: list[tuple[Frame, Frame]] = []  # of each round: its own, and the one that has its pairs
        self._known: tuple[Frame, Content] | None = None  # the pairs that were last read or written
        if path.exists():
            try:
                with to_read(path) as file:
                    self._scan(file, path.stat().st_size)
            except OSError as error:
                raise InputError(f"{path}: cannot be read ({error.strerror})") from error

    @property
    def rounds(self) -> list[int]:
        return [frame.number for frame, _ in self._frames]

    @property
    def names(self) -> list[str]:
        seen = {name for frame, _ in self._frames for name in frame.names}
        return [name for name in TABLES if name in seen]

    def append(self, snapshot: Snapshot) -> None:
        start, same = len(TITLE), False
        if self._frames:
            start, same = self._frames[-1][0].end, snapshot.tells_the_same(self[-1])
        frame = _frame(snapshot, start, same)
        self.file.append((b"" if self._frames else TITLE) + _written(frame, snapshot))
        self._add(frame)
        if not same:
            self._known = frame, Content(*snapshot[1:])

    def __getitem__(self, place: int) -> Snapshot:
        frame, telling = self._frames[place]
        if self._known is None or self._known[0] != telling:
            self._known = telling, self._content(telling)
        present, pairs, values = self._known[1]
        if frame != telling:
            present = self._content(frame).present
        return Snapshot(frame.number, present, pairs, values)

    def _add(self, frame: Frame) -> None:
        self._frames.append((frame, self._frames[-1][1] if frame.tables & AS_BEFORE else frame))

    def _scan(self, file: BinaryIO, size: int) -> None:
        if not TITLE.startswith(file.read(len(TITLE))):
            raise InputError(f"{self.path}: not the weights of a run, or of another version; make the run anew")
        start, last = len(TITLE), 0
        while len(header := file.read(HEADER.size)) == HEADER.size:
            number, clients, pairs, tables = HEADER.unpack(header)
            frame = Frame(number, clients, pairs, tables, start)
            if frame.end > size or (tables & AS_BEFORE and not self._frames):
                break
            if number <= last:
                if _body(file, frame) is None:
                    break
                raise InputError(
                    f"{self.path}: round {number} stands there after round {last}, as if two processes "
                    "had written; make the run anew"
                )
            self._add(frame)
            start, last = file.seek(frame.end), number
        while self._frames and _body(file, self._frames[-1][0]) is None:  # long enough, but not what was to be written
            self._frames.pop()

    def _content(self, frame: Frame) -> Content:
        with self.path.open("rb") as file:
            body = _body(file, frame)
        if body is None:
            raise InputError(f"{self.path}: damaged in round {frame.number}; put back a copy, or make the run anew")
        kinds = [] if frame.tables & AS_BEFORE else [torch.int32, *(TABLES[name] for name in frame.names)]
        present, start, found = torch.frombuffer(body[: frame.clients], dtype=torch.bool), frame.clients, []
        for kind in kinds:
            end = start + frame.pairs * kind.itemsize
            found.append(torch.frombuffer(body[start:end], dtype=kind))  # a copy, so that it is aligned
            start = end
        pairs, *values = found or [torch.empty(0, dtype=torch.int32)]
        return Content(present, pairs, dict(zip(frame.names, values, strict=True)))


def _frame(snapshot: Snapshot, start: int, same: bool) -> Frame:
    bits = sum(1 << bit for bit, name in enumerate(TABLES) if name in snapshot.values)
    pairs, tables = (0, AS_BEFORE) if same else (len(snapshot.pairs), bits)
    return Frame(snapshot.number, len(snapshot.present), pairs, tables, start)


def _written(frame: Frame, snapshot: Snapshot) -> bytes:
    parts = [snapshot.present]
    if not frame.tables & AS_BEFORE:
        parts += [snapshot.pairs, *(snapshot.values[name] for name in frame.names)]
    header, body = HEADER.pack(*frame[:4]), b"".join(part.numpy().tobytes() for part in parts)
    return header + CHECK.pack(_check(header, body)) + body


def _body(file: BinaryIO, frame: Frame) -> bytearray | None:
    """What follows the check; None if it is not what was written."""
    file.seek(frame.start)
    header, check = file.read(HEADER.size), file.read(CHECK.size)
    body = bytearray(frame.end - frame.start - HEADER.size - CHECK.size)
    whole = file.readinto(body) == len(body)  # type: ignore[attr-defined]
    return body if whole and check == CHECK.pack(_check(header, body)) else None


def _check(header: bytes, body: bytes | bytearray) -> int:
    return zlib.crc32(body, zlib.crc32(header))
