"""How often each sample had a part in a question: what a client has spent of its privacy."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from ..errors import InputError
from ..problems import Client
from ..problems.data import Batch, Finite, places
from ..problems.tree import stacked
from .base import Ledger
from .batches import Batches
from .privacy import Privacy

#: What is said where an answer would be no gradient.
UNPROTECTED = (
    "the losses of a client's own training data would leave it as they are: choose an algorithm that does not ask for "
    "them, without guard and early stopping"
)


class Numbers(Batches):
    """The same batches as the numbers of their samples, cut in the same way."""

    def _draw(self, client: int, step: int, purpose: str, size: int) -> Batch:
        found = places(self.clients[client].size, size, range(step, step + 1), self.seed, client, purpose)
        return found, found

    def _several(self, client: int, steps: range) -> Batch:
        return stacked([self._draw(client, step, "update", self.size) for step in steps])  # type: ignore[no-any-return]


class Nobody:
    """Who counts samples is told by the batches themselves, not by their numbers."""

    def count(self, client: int, steps: range, purpose: str, size: int) -> None: ...


class Spending:
    """By client. `questions` [N] says how many each is asked, at however many models. A sample that is in a batch c
    times moves its answer c times as far, which spends as c² questions."""

    def __init__(
        self, clients: Sequence[Client] | Mapping[int, Client], seed: int, batch_size: int, privacy: Privacy
    ) -> None:
        everyone = clients.items() if isinstance(clients, Mapping) else enumerate(clients)
        if streams := [str(k) for k, client in everyone if not isinstance(client.train, Finite)]:
            raise InputError(
                f"privacy: the data of client {', '.join(streams)} never end, and what is spent is counted by sample; "
                "give finite data"
            )
        self.privacy, self.numbers = privacy, Numbers(clients, seed, batch_size, Nobody())
        everyone = clients.items() if isinstance(clients, Mapping) else enumerate(clients)
        self.counts = {k: torch.zeros(client.size, dtype=torch.long) for k, client in everyone}

    def update(self, questions: Tensor, step: int) -> None:
        for k, batch in self.numbers.of(questions > 0, step).items():
            self._add(k, [batch], int(questions[k]))

    def compare(self, questions: Tensor, step: int, samples: int) -> None:
        for k, batch in self.numbers.of(questions > 0, step, purpose="compare", size=samples).items():
            self._add(k, [batch], int(questions[k]))

    def look(self, questions: Tensor, steps: range, samples: int) -> None:
        for k, halves in self.numbers.to_look_at(questions > 0, steps, samples, 1).items():
            self._add(k, halves, int(questions[k]))

    def walk(self, questions: Tensor, steps: range, parts: int) -> None:
        """Every update is a question, about all walks; how far they came follows from the answers."""
        for k, parted in self.numbers.in_parts(questions > 0, steps, parts, 1).items():
            self._add(k, [part for several in parted for part in several], int(questions[k]))

    def most(self, client: int) -> int:
        """Questions that the most asked sample of a client had a part in."""
        return int(self.counts[client].max())

    def epsilon(self, client: int) -> float:
        return self.privacy.epsilon(self.most(client))

    def entered(self, ledger: Ledger) -> Ledger:
        """The ledger, with what is spent so far."""
        spent = torch.tensor([self.epsilon(k) for k in self.counts], dtype=torch.float64)
        return ledger._replace(epsilon=spent, answered=[counts.clone() for counts in self.counts.values()])

    def restore(self, counts: Iterable[Tensor]) -> None:
        for k, earlier in zip(self.counts, counts, strict=True):
            self.counts[k] = earlier.clone()

    def _add(self, client: int, batches: Sequence[Batch], questions: int) -> None:
        for numbers, _ in batches:
            times = torch.bincount(numbers, minlength=len(self.counts[client]))
            self.counts[client] += questions * times.square()
