"""The contract with the clients: whoever and wherever they are, they answer with gradients."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from ..errors import Gone, Inexact, within
from ..problems import Client
from .models import Models
from .optimizer import Optimizer

Answer = TypeVar("Answer")

#: (models, gradients) → the direction to descend in, row by row: where an algorithm adds its own term.
Direction = Callable[[Models, Models], Models]


class Round(NamedTuple):
    """One round, decided once at its beginning: who is there is not asked again inside it."""

    number: int  #: from 1 on; 0 is before the training
    steps: range  #: the numbers of its updates
    present: Tensor  #: [N], who takes part


class Member(NamedTuple):
    """What is known of a client without asking it anything."""

    name: str | None
    size: int  #: samples to train on; 1 for a stream
    cluster: int | None  #: its true cluster, where that is known
    stream: bool = False  #: whether its data never end
    fingerprint: str | None = None  #: of its data


class Roster(tuple[Member, ...]):
    """The clients, in the order of their numbers."""

    @classmethod
    def of(cls, clients: Iterable[Client]) -> "Roster":
        members = []
        for k, c in enumerate(clients):
            with within(f"client {k}"):
                members.append(Member(c.name, c.size, c.cluster, c.is_stream, c.fingerprint))
        return cls(members)

    @property
    def numbers(self) -> Tensor:
        return torch.arange(len(self))

    @property
    def sizes(self) -> Tensor:
        return torch.tensor([float(member.size) for member in self], dtype=torch.float64)

    @property
    def clusters(self) -> list[int] | None:
        """Each client's true cluster; None where that of any is not known."""
        found = [member.cluster for member in self if member.cluster is not None]
        return found if len(found) == len(self) else None


class Ledger(NamedTuple):
    """What a run has cost so far; nothing depends on it."""

    samples: Tensor  #: [N], drawn by each client
    refused: Tensor  #: [N], gradients of each client that were not finite or of the wrong size
    bytes: int | None = 0  #: sent by all, had every client been a machine of its own; None: not known
    messages: int | None = 0  #: that they were in
    epsilon: Tensor | None = None  #: [N], spent by each client of its privacy; None: nothing is private
    answered: list[Tensor] | None = None  #: by client and sample, the questions that it had a part in

    def sent(self, messages: int | None, bytes: int | None) -> "Ledger":
        """The same after a round in which so much was sent; once that is not known, it is never known again."""
        return self._replace(messages=_sum(self.messages, messages), bytes=_sum(self.bytes, bytes))


class Contact(NamedTuple):
    """What it took to ask a machine in a round."""

    site: str
    why: str | None  #: it was absent; None: it was there, or not needed
    seconds: float  #: for which it was waited
    sent: int  #: bytes to it
    received: int  #: bytes from it


class PairStatistics(NamedTuple):
    """What the clients' gradients look like at each model; row i is about the model of client i. NaN: not asked."""

    distance: Tensor  #: [N, N], ‖g_k(θ_i) − g_i(θ_i)‖²
    norm: Tensor  #: [N, N], ‖g_k(θ_i)‖²


class Look(NamedTuple):
    """What clients say at each other's models, in halves; a row is about the model of its owner. NaN: not asked."""

    ids: Tensor  #: [R, c], which clients each row has asked, its owner among them; -1: nobody
    distance: Tensor  #: [R, c], ‖ḡ_k(θ_i) − ḡ_i(θ_i)‖², ḡ the mean over all samples
    norm: Tensor  #: [R, c], ‖ḡ_k(θ_i)‖²
    noise: Tensor  #: [R, c], ‖a − b‖²/4 for the halves, the variance of ḡ_k(θ_i)
    halves: Tensor  #: [R, c, 2, s], a and b, sketched
    read: Tensor  #: [R, c], how many samples each has looked at
    added: Tensor  #: [R, c], what of the noise was added for privacy, E‖ξ‖²


class Walks(NamedTuple):
    """How far clients came from some models, each on its own data. NaN: not asked, or nowhere."""

    rows: Tensor  #: [R], whose models
    ways: Tensor  #: [R, c, parts, P], the parameters after the walks less those before
    buffers: Models  #: of the owner's own walk, after it: the mean over its parts
    read: Tensor  #: [R, c], how many samples each has walked on
    added: Tensor  #: [R, c], E‖ξ‖² of the noise that was added to the mean gradient of an update
    first: Tensor  #: [R, c], ‖a − b‖²/(4⟨a, b⟩) for the ways of the halves after one update: both were at one model


class Evaluation(NamedTuple):
    """Each client's own model on its own test data; NaN of those who were not asked."""

    known: Tensor  #: [N], who answered
    loss: Tensor  #: [N]
    metrics: dict[str, Tensor]  #: name → [N]
    excess: Tensor | None  #: [N], loss above the least possible, where that is known


class NewLosses(NamedTuple):
    """Each client's own model on data that it was not trained on, part by part."""

    losses: Tensor  #: [N, parts], NaN where a client has fewer or was not asked
    held: Tensor  #: [N], whether they are all that it has held out, the same at every time


class Fleet(Protocol):
    """The clients, as a gradient oracle. Nobody who is absent in a round is asked anything in it."""

    roster: Roster
    ledger: Ledger  #: may be set, to go on from an earlier one
    smoothness: float | None  #: β, where known
    batch_size: int  #: samples of an update, where a client has as many
    left: tuple[str, ...]  #: fast ways that were found wanting; may be set, to go on without them
    trained: list[str]  #: the names of the parameters; what else a model holds are buffers and frozen parameters

    def initial(self) -> Models:
        """The initial model, once for each client."""
        ...

    def begin(self, number: int, steps: range) -> Round:
        """Decide who takes part. Absence is an answer, not an exception."""
        ...

    def gradients(self, models: Models, mix: Tensor, round: Round, step: int, owners: Tensor | None) -> Models:
        """Row m: Σ_k mix[m, k] · g_k(θ_m), on a fresh batch of every client k with mix[m, k] ≠ 0, never of the others.

        Of the absent nobody hears: a row keeps its sum among those present, and is 0 where its owner is absent.
        `owners` [M] says whose model each row is; None are models that are nobody's. A buffer has no gradient: in its
        place stands its value after the pass over the batch of the model's owner, unchanged if that was not asked.
        """
        ...

    def descend(
        self, models: Models, mix: Tensor, optimizer: Optimizer, round: Round, direction: Direction | None = None
    ) -> tuple[Models, Optimizer]:
        """All updates of a round with fixed weights; row i is client i's model. The arguments stay as they were."""
        ...

    def compare(self, models: Models, round: Round, samples: int) -> PairStatistics:
        """Statistics of gradients of those present at each other's models; row i is client i's model.

        On `samples` samples per client, drawn apart from those of the updates.
        """
        ...

    def look(self, models: Models, round: Round, ids: Tensor, samples: int, sketch: int, apart: bool = False) -> Look:
        """What those present say at each other's models, from about `samples` samples each, as vectors of `sketch`
        numbers: of finite data a sample of their own, of a stream the first batches of the round.

        Row i is client i's model; ids [N, c] are whom it asks, itself among them. `apart` are the samples of `compare`,
        in one part in the place of halves.
        """
        ...

    def walks(self, models: Models, ids: Tensor, optimizer: Optimizer, round: Round, parts: int) -> Iterator[Walks]:
        """How far those present come from each other's models in the updates of the round, some rows at a time.

        Row i is client i's model; ids [N, c] are whom it asks, itself among them. Each of `parts` walks, 1 or 2, takes
        its share of every batch and starts the optimizer anew.
        """
        ...

    def losses(self, models: Models, round: Round) -> Tensor:
        """[M, N], the mean loss of each model, nobody's, on each present client's batches of the round; else NaN."""
        ...

    def new_losses(self, models: Models, round: Round) -> NewLosses:
        """Row i is client i's model. New are the data that a client has held out; of a stream, the batches of the
        round to come, not yet trained on, which the ledger counts when they are."""
        ...

    def evaluate(self, models: Models, round: Round) -> Evaluation:
        """Row i is client i's model."""
        ...

    def contacts(self) -> list[Contact]:
        """Of the latest round, what each machine took; nothing where all clients are in this process."""
        ...

    def close(self) -> None:
        """Let go of whoever answers: nothing is asked any more."""
        ...


def _sum(before: int | None, more: int | None) -> int | None:
    return None if before is None or more is None else before + more


def surely(ask: Callable[[], Answer]) -> Answer:
    """ask(); once more, from its start, where the fleet left a fast way meanwhile."""
    try:
        return ask()
    except Inexact:
        return surely(ask)


def in_round(fleet: Fleet, number: int, steps: range, work: Callable[[Round], Answer]) -> Answer:
    """work(round); once more, from the round's beginning, without those who did not answer meanwhile."""
    while True:
        try:
            return work(fleet.begin(number, steps))
        except Gone:  # whoever is gone is absent from the same round begun again, so this ends
            continue


def everybody(clients: int) -> Tensor:
    """[N, N], whom the rows ask if all ask all: client k in place k."""
    return torch.arange(clients).expand(clients, -1)


def among_present(mix: Tensor, present: Tensor, owners: Tensor | None) -> Tensor:
    """The weights among those present: a row keeps its sum, and the model of who is absent asks nobody."""
    if present.all():
        return mix
    among = torch.where(present, mix, 0)
    share = mix.sum(1, keepdim=True) / among.sum(1, keepdim=True)
    among = torch.where(among.sum(1, keepdim=True) != 0, among * share, among)
    return among if owners is None else torch.where(present[owners][:, None], among, 0)
