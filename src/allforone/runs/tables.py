"""Who listened to whom and why, round by round: of all pairs of clients only those that say something."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..algorithms import Info
from ..errors import InputError

#: What is kept of pairs of clients: name → its type, in memory as on disk.
TABLES = {
    "weights": torch.float32,
    "similarity": torch.float32,
    "bias": torch.float32,
    "noise": torch.float32,
    "trust": torch.float16,
}
#: More clients than these are a crowd: only pairs with a weight are kept, and reports show clusters instead of pairs.
CROWD = 150
#: Numbers of a table with every pair of every round written out, above which it is refused: in double precision, 2 GB.
MOST_DENSE = 2**28


class Snapshot(NamedTuple):
    """What one round tells of pairs of clients.

    A pair is kept if it has a weight or anything else is known of it; in a crowd only if it has a weight. Each client's
    pair with itself is always there.
    """

    number: int  #: of the round
    present: Tensor  #: [N], who took part
    pairs: Tensor  #: [P], i·N + k of each pair that is kept, rising
    values: dict[str, Tensor]  #: by the name of the table, [P]; only of tables that the round tells

    @classmethod
    def of(cls, number: int, info: Info, present: Tensor) -> "Snapshot":
        told = {name: table for name in TABLES if (table := getattr(info, name)) is not None}
        kept = (info.weights != 0).fill_diagonal_(True)
        if len(present) <= CROWD:
            for name in told.keys() - {"weights"}:
                kept |= ~told[name].isnan()
        pairs = kept.flatten().nonzero().flatten()
        values = {name: _stored(table.flatten()[pairs], TABLES[name]) for name, table in told.items()}
        return cls(number, present.clone(), pairs.to(torch.int32), values)

    def dense(self, name: str = "weights") -> Tensor:
        """[N, N]; of a pair that is not kept the weight is 0, and all else NaN."""
        n = len(self.present)
        table = torch.full((n * n,), 0 if name == "weights" else torch.nan, dtype=TABLES[name])
        if name in self.values:
            table[self.pairs.long()] = self.values[name]
        return table.reshape(n, n)

    def of_client(self, client: int) -> dict[str, Tensor]:
        """What is kept of one client: `partners` [p], itself among them, and its row of each table, [p]."""
        n = len(self.present)
        first, last = torch.searchsorted(self.pairs, torch.tensor([client * n, client * n + n], dtype=torch.int32))
        row = {name: values[first:last] for name, values in self.values.items()}
        return {"partners": self.pairs[first:last].long() - client * n, **row}

    def tells_the_same(self, other: "Snapshot") -> bool:
        """Whether it has the same pairs with the same numbers, whoever took part."""
        if self.values is other.values:
            return True
        return (
            self.pairs.equal(other.pairs)
            and self.values.keys() == other.values.keys()
            and all(_bits(values).equal(_bits(other.values[name])) for name, values in self.values.items())
        )


def _stored(values: Tensor, kind: torch.dtype) -> Tensor:
    return values.clamp(max=torch.finfo(kind).max).to(kind)


def _bits(values: Tensor) -> Tensor:
    """To compare, since NaN is not equal to itself."""
    return values.view(torch.int16 if values.dtype == torch.float16 else torch.int32)


class Tables(ABC):
    """The snapshots of a run, one for each round that is done, wherever they are kept.

    Example:
        >>> import allforone as afo
        >>> tables = afo.train(afo.synthetic(clients=4), algorithm=afo.Oracle(), rounds=2).tables
        >>> len(tables), tables[-1].of_client(3)["partners"]
        (2, tensor([1, 3]))
    """

    @property
    @abstractmethod
    def rounds(self) -> list[int]:
        """The number of each round, by place."""

    @abstractmethod
    def append(self, snapshot: Snapshot) -> None: ...

    @abstractmethod
    def __getitem__(self, place: int) -> Snapshot: ...

    def __len__(self) -> int:
        return len(self.rounds)

    def __iter__(self) -> Iterator[Snapshot]:
        return (self[place] for place in range(len(self)))

    @property
    def names(self) -> list[str]:
        """The tables of which any round tells something."""
        return [name for name in TABLES if any(name in snapshot.values for snapshot in self)]

    @property
    def constant(self) -> bool:
        """Whether all rounds tell the same."""
        return all(snapshot.tells_the_same(self[0]) for snapshot in self)

    def dense(self, name: str = "weights") -> Tensor:
        """[rounds, N, N], as `Snapshot.dense`; refused where it would be too large for memory."""
        if not len(self):
            return torch.empty(0)
        n = len(self[0].present)
        if len(self) * n * n > MOST_DENSE:
            raise InputError(
                f"{name} of {len(self)} rounds and every pair of {n} clients would take "
                f"{8 * len(self) * n * n / 1e9:.0f} GB: take single rounds, as result.tables[-1].dense(), or the "
                "partners of a client, as result.tables[-1].of_client(3)"
            )
        return torch.stack([snapshot.dense(name) for snapshot in self])

    def tensors(self) -> dict[str, Tensor]:
        """rounds [R], present [R, N] and each table that is known, [R, N, N]; nothing before the first round."""
        if not len(self):
            return {}
        present = torch.stack([snapshot.present for snapshot in self])
        return {
            "rounds": torch.tensor(self.rounds),
            "present": present,
            **{name: self.dense(name) for name in self.names},
        }


class InMemory(Tables):
    """Of a run without a folder."""

    def __init__(self) -> None:
        self._snapshots: list[Snapshot] = []

    @property
    def rounds(self) -> list[int]:
        return [snapshot.number for snapshot in self._snapshots]

    def append(self, snapshot: Snapshot) -> None:
        if self._snapshots and snapshot.tells_the_same(last := self._snapshots[-1]):
            snapshot = snapshot._replace(pairs=last.pairs, values=last.values)  # nothing is held twice
        self._snapshots.append(snapshot)

    def __getitem__(self, place: int) -> Snapshot:
        return self._snapshots[place]
