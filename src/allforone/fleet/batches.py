"""What draws the clients' batches, and counts them."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ..errors import within
from ..problems import Client
from ..problems.data import Batch, draw, draw_many

#: Numbers in the inputs that are drawn ahead for small models.
DRAWN_NUMBERS = 2**20

Name = tuple[int, int, str, int]  #: client, step, purpose, size


class Batches:
    """The clients' batches by their names. Those of the current update are kept: asked for again, they are not drawn
    again."""

    def __init__(self, clients: Sequence[Client], seed: int, size: int) -> None:
        self.clients, self.seed, self.size = clients, seed, size
        self.samples = torch.zeros(len(clients), dtype=torch.long)  #: drawn so far, by client
        self._kept: dict[Name, Batch] = {}
        self._counted: dict[tuple[int, str], int] = {}  # the first step whose batch is not counted yet

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
            self._count(k, range(step, step + 1), purpose, len(found[k][0]))
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
                inputs, targets = (torch.cat([part[side] for part in parts]) for side in (0, 1))
            else:
                inputs, targets = self.of(only, steps.start, purpose="look", size=max(samples, 2 * least))[k]
            half = max(1, len(inputs) // 2)  # who has a single sample shows it twice
            found[k] = [(inputs[:half], targets[:half]), (inputs[-half:], targets[-half:])]
        return found

    def in_parts(self, asked: Tensor, steps: range, parts: int, least: int) -> dict[int, Batch]:
        """[steps, parts, …], the batches of a round, whole or in halves. Of an odd batch both have the middle sample; a
        batch too small for halves of `least` is one half's twice, and the next the other's."""
        found = {}
        for k in asked.nonzero().flatten().tolist():
            inputs, targets = self._several(k, steps)
            size = inputs.shape[1]
            self._count(k, steps, "update", size)
            half, several = -(-size // 2), torch.arange(len(steps))
            if parts == 2 and size < 2 * least:
                pairs = torch.stack([several - several % 2, several - several % 2 + 1], 1).clamp(max=len(steps) - 1)
                found[k] = inputs[pairs], targets[pairs]
            elif parts == 2:
                found[k] = _both_halves(inputs, half), _both_halves(targets, half)
            else:
                found[k] = inputs[:, None], targets[:, None]
        return found

    def equally_large(self, asked: Tensor, size: int | None = None) -> bool:
        """Whether there are clients asked, and their batches have one size."""
        return len({self.clients[k].batch(size or self.size) for k in asked.nonzero().flatten().tolist()}) == 1

    def stacked(self, asked: list[int], steps: range) -> Iterator[Batch]:
        """[asked, b, …] for each update; the first alone, to see how large it is, then many at a time."""
        ahead, start = 1, steps.start
        while start < steps.stop:
            some = range(start, min(start + ahead, steps.stop))
            drawn = [self._several(k, some) for k in asked]
            inputs, targets = (torch.stack([batch[part] for batch in drawn], 1) for part in (0, 1))
            for k in asked:
                self._count(k, some, "update", inputs.shape[2])
            yield from zip(inputs, targets, strict=True)
            ahead, start = max(1, DRAWN_NUMBERS // inputs[0].numel()), some.stop

    def _several(self, client: int, steps: range) -> Batch:
        kept = self._kept.get((client, steps.start, "update", self.size)) if len(steps) == 1 else None
        if kept is not None:
            return kept[0][None], kept[1][None]
        data = self.clients[client].train
        with within(f"client {client}, train data"):
            return draw_many(data, self.size, seed=self.seed, client=client, steps=steps, purpose="update")

    def _draw(self, client: int, step: int, purpose: str, size: int) -> Batch:
        with within(f"client {client}, train data"):
            return draw(self.clients[client].train, size, seed=self.seed, client=client, step=step, purpose=purpose)

    def _count(self, client: int, steps: range, purpose: str, size: int) -> None:
        """Enter the batches of these steps in the ledger; one that serves several times in a round counts once."""
        fresh = steps.stop - max(steps.start, self._counted.get((client, purpose), 0))
        if fresh > 0:
            self._counted[client, purpose] = steps.stop
            self.samples[client] += fresh * size


def _both_halves(batches: Tensor, half: int) -> Tensor:
    """[steps, b, …] → [steps, 2, half, …]"""
    return torch.stack([batches[:, :half], batches[:, batches.shape[1] - half :]], 1)
