"""What draws the clients' batches, and counts them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from ..errors import within
from ..problems import Client
from ..problems.data import Batch, Finite, draw, draw_many
from ..problems.tree import joined, length, numbers, rows, stacked
from .devices import CPU, on

#: Numbers in the inputs that are drawn ahead for small models.
DRAWN_NUMBERS = 2**20

Name = tuple[int, int, str, int]  #: client, step, purpose, size
Parted = list[list[Batch]]  #: for each step of a round, a batch or its halves


class Counting(Protocol):
    """Whoever is told what is drawn."""

    def count(self, client: int, steps: range, purpose: str, size: int) -> None: ...


class Tally:
    """How many samples each client has drawn; a batch that serves several times counts once."""

    def __init__(self, clients: int) -> None:
        self.samples = torch.zeros(clients, dtype=torch.long)
        self._counted: dict[tuple[int, str], int] = {}  # the first step whose batch is not counted yet

    def count(self, client: int, steps: range, purpose: str, size: int) -> None:
        fresh = steps.stop - max(steps.start, self._counted.get((client, purpose), 0))
        if fresh > 0:
            self._counted[client, purpose] = steps.stop
            self.samples[client] += fresh * size

    def copy(self) -> "Tally":
        """As it is now, to go back to."""
        same = Tally(len(self.samples))
        same.samples, same._counted = self.samples.clone(), dict(self._counted)
        return same


class Batches:
    """The clients' batches by their names. Those of the current update are kept: asked for again, they are not drawn
    again. They are drawn on the CPU, so that they are the same on every device, then moved."""

    def __init__(
        self,
        clients: Sequence[Client] | Mapping[int, Client],
        seed: int,
        size: int,
        tally: Counting | None = None,
        device: torch.device = CPU,
    ) -> None:
        self.clients, self.seed, self.size, self.device = clients, seed, size, device
        self.tally = Tally(len(clients)) if tally is None else tally
        self._kept: dict[Name, Batch] = {}

    def forget_before(self, step: int) -> None:
        """Let go of the batches of earlier updates."""
        self._kept = {name: batch for name, batch in self._kept.items() if name[1] >= step}

    def of(self, asked: Tensor, step: int, *, purpose: str = "update", size: int | None = None) -> dict[int, Batch]:
        """A batch of every client that is asked."""
        self.forget_before(step)
        found = {}
        for k in asked.nonzero().flatten().tolist():
            name = (k, step, purpose, size or self.size)
            found[k] = self._kept[name] if name in self._kept else self._draw(*name)
            self.tally.count(k, range(step, step + 1), purpose, length(found[k]))
            if purpose == "update":
                self._kept[name] = found[k]
        return found

    def uncounted(self, client: int, step: int) -> Batch:
        """A batch of another update, which is counted when it is trained on."""
        return self._draw(client, step, "update", self.size)

    def draw_ahead(self, asked: Tensor, step: int) -> None:
        """Make the batches of a coming update while the cores are busy, where that takes time."""
        for k in asked.nonzero().flatten().tolist():
            name = (k, step, "update", self.size)
            if self.clients[k].is_transformed and name not in self._kept:
                self._kept[name] = self._draw(*name)

    def to_look_at(self, asked: Tensor, steps: range, samples: int, least: int) -> dict[int, list[Batch]]:
        """Two halves of about `samples` samples of each client: of finite data a sample drawn for it, of a stream the
        first batches of the round, or that of the step before too, where a round has too few for halves of `least`."""
        found = {}
        for k in asked.nonzero().flatten().tolist():
            only = torch.zeros_like(asked)
            only[k] = True
            if self.clients[k].is_stream:
                count = max(1, min(len(steps), -(-samples // self.size)))
                parts = [self.of(only, step)[k] for step in range(steps.start, steps.start + count)][::-1]
                if count * self.size < 2 * least:
                    parts.append(self.uncounted(k, steps.start - 1 if steps.start else 1))
                batch = joined(parts)
            else:
                batch = self.of(only, steps.start, purpose="look", size=max(samples, 2 * least))[k]
            half = max(1, length(batch) // 2)  # who has a single sample shows it twice
            found[k] = [rows(batch, slice(half)), rows(batch, slice(-half, None))]
        return found

    def in_parts(self, asked: Tensor, steps: range, parts: int, least: int) -> dict[int, Parted]:
        """The batches of a round, whole or in halves. Of an odd batch both have the middle sample; a batch too small
        for halves of `least` is one half's twice, and the next the other's."""
        found: dict[int, Parted] = {}
        for k in asked.nonzero().flatten().tolist():
            batches = self._each(k, steps)
            size = length(batches[0])
            self.tally.count(k, steps, "update", size)
            half = -(-size // 2)
            if parts == 2 and size < 2 * least:
                places = [n - n % 2 for n in range(len(batches))]
                found[k] = [[batches[n], batches[min(n + 1, len(batches) - 1)]] for n in places]
            elif parts == 2:
                found[k] = [[rows(batch, slice(half)), rows(batch, slice(size - half, None))] for batch in batches]
            else:
                found[k] = [[batch] for batch in batches]
        return found

    def equally_large(self, asked: Tensor, size: int | None = None) -> bool:
        """Whether there are clients asked, and their batches have one size and shape."""
        clients = [self.clients[k] for k in asked.nonzero().flatten().tolist()]
        ragged = any(isinstance(client.train, Finite) and client.train.ragged for client in clients)
        return not ragged and len({client.batch(size or self.size) for client in clients}) == 1

    def stacked(self, asked: list[int], steps: range) -> Iterator[Batch]:
        """[asked, b, …] for each update; the first alone, to see how large it is, then many at a time."""
        ahead, start = 1, steps.start
        while start < steps.stop:
            some = range(start, min(start + ahead, steps.stop))
            batches: Batch = stacked([self._several(k, some) for k in asked], 1)
            first = rows(batches, 0)
            for k in asked:
                self.tally.count(k, some, "update", length(rows(first, 0)))
            yield from (rows(batches, place) for place in range(len(some)))
            ahead, start = max(1, DRAWN_NUMBERS // numbers(first[0])), some.stop

    def _several(self, client: int, steps: range) -> Batch:
        kept = self._kept.get((client, steps.start, "update", self.size)) if len(steps) == 1 else None
        if kept is not None:
            return rows(kept, None)  # type: ignore[no-any-return]
        data = self.clients[client].train
        with within(f"client {client}, train data"):
            drawn = draw_many(data, self.size, seed=self.seed, client=client, steps=steps, purpose="update")
        return on(self.device, drawn)  # type: ignore[no-any-return]

    def _each(self, client: int, steps: range) -> list[Batch]:
        data = self.clients[client].train
        if isinstance(data, Finite) and data.ragged:
            return [self._draw(client, step, "update", self.size) for step in steps]
        several = self._several(client, steps)
        return [rows(several, place) for place in range(len(steps))]

    def _draw(self, client: int, step: int, purpose: str, size: int) -> Batch:
        with within(f"client {client}, train data"):
            drawn = draw(self.clients[client].train, size, seed=self.seed, client=client, step=step, purpose=purpose)
        return on(self.device, drawn)  # type: ignore[no-any-return]
