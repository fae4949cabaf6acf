"""One party: what it trains on, what it is judged on; and what is taken for several of them."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from ..errors import InputError, blaming, short, within
from .data import Augment, Finite, Population, Stream, Transform, fingerprint, generator
from .reading import Collate, is_array

#: What is taken for clients: themselves, or by name themselves or (train, test).
Clients = Iterable["Client"] | Mapping[str, Any]

#: Samples below which nothing can be told from held-out data.
LEAST_HELD = 5
#: Of its training data, what a client is judged on that has no test data of its own.
TEST_SHARE = 0.2


class Client:
    """One party: what it trains on, what it is judged on, and, where it is known, the cluster it belongs to.

    Inputs and targets are tensors or numpy arrays, or tuples and dicts of them, nested.

    Args:
        train: a pair (inputs, targets), any torch Dataset with a length, a DataLoader (of which the data set, its
            samples and `collate_fn` are taken), or a stream. Items that are dicts have their targets under "labels".
        test: likewise, or a distribution whose expected loss is known; or a share of the training data, which is then
            held out for it; None: the client's model is not judged.
        cluster: its true cluster, where that is known; only the oracle uses it.
        name: what tables and pages call it, by default its number.
        transform: maps the inputs of every batch, after `augment`.
        augment: maps the inputs of training batches, by a generator that depends on the batch alone.
        collate: makes a batch of a list of items, as a DataLoader's `collate_fn`; it pads what differs in length.

    Example:
        >>> import torch, allforone as afo
        >>> inputs, targets = torch.randn(49, 3), torch.randn(49, 1)
        >>> client = afo.Client((inputs[:40], targets[:40]), (inputs[40:], targets[40:]), name="Geneva")
        >>> client.size, len(client.test)
        (40, 9)
    """

    def __init__(
        self,
        train: Any,
        test: Any = TEST_SHARE,
        *,
        cluster: int | None = None,
        name: str | None = None,
        transform: Transform | None = None,
        augment: Augment | None = None,
        collate: Collate | None = None,
    ) -> None:
        self.train: Finite | Stream = train if isinstance(train, Stream) else Finite(train, transform, augment, collate)
        self.test: Finite | Population | None = None
        if isinstance(test, int | float):
            self.train, self.test = _parted(self.train, test)
        elif test is not None:
            self.test = test if isinstance(test, Population) else Finite(test, transform, collate=collate)
        if cluster is not None and (isinstance(cluster, bool) or not isinstance(cluster, int)):
            raise InputError(f"the cluster of a client is {short(cluster)}: give a whole number")
        self.cluster, self.name = cluster, _checked_name(name)
        self.held: Finite | None = None  #: of its training data, what is kept to judge collaboration by: `hold_out`

    @property
    def size(self) -> int:
        """Samples to train on; a stream counts as one, so that streams weigh the same."""
        return len(self.train) if isinstance(self.train, Finite) else 1

    @property
    def is_stream(self) -> bool:
        return not isinstance(self.train, Finite)

    @property
    def is_transformed(self) -> bool:
        """Whether its training batches are made from tensors by functions."""
        data = self.train
        return isinstance(data, Finite) and data.tensors is not None and bool(data.transform or data.augment)

    def hold_out(self, share: float, generator: torch.Generator) -> "Client":
        """The same client with a share of its training data held out. A stream needs none: its next batch is new. Who
        has too little data for that stays as it is."""
        count = round(share * self.size)
        if not isinstance(self.train, Finite) or count < LEAST_HELD:
            return self
        order = torch.randperm(len(self.train), generator=generator)
        client = copy.copy(self)
        client.held, client.train = self.train.part(order[:count], augmented=False), self.train.part(order[count:])
        return client

    @property
    def fingerprint(self) -> str:
        """A short text that changes when its data do."""
        return fingerprint(self.train, self.test)

    def batch(self, size: int) -> int:
        """How large its batches are when `size` is asked for."""
        return min(size, len(self.train)) if isinstance(self.train, Finite) else size


def _checked_name(name: Any) -> str | None:
    if name is not None and not isinstance(name, str):
        raise InputError(f"the name of a client is {short(name)}: give a text")
    return name


def _parted(train: Finite | Stream, share: float) -> tuple[Finite, Finite]:
    """What is left to train on, and a share to be judged on, the same in every run."""
    if not isinstance(train, Finite):
        raise InputError("a stream has no test data of its own: give some, or None, by which it is not judged")
    if isinstance(share, bool) or not 0 < share < 1:
        raise InputError(f"the share of test data is {share}: must be between 0 and 1")
    count = round(share * len(train))
    if not 0 < count < len(train):
        raise InputError(f"{len(train)} samples are too few to hold out {share:.0%} of them as test data; give test=…")
    order = torch.randperm(len(train), generator=generator("test"))
    return train.part(order[count:]), train.part(order[:count], augmented=False)


def listed(clients: Any) -> list[Client]:
    """The clients, each of them one; of a dict those of its names. A generator is read once, here."""
    if isinstance(clients, Mapping):
        return [_named(name, given) for name, given in clients.items()]
    if not isinstance(clients, Iterable):
        raise InputError(f"clients is a {type(clients).__name__}: give a list of afo.Client(train, test, name=…)")
    with blaming("the clients cannot be made"):
        found = list(clients)
    for place, client in enumerate(found):
        if not isinstance(client, Client):
            raise InputError(f"clients[{place}] is a {type(client).__name__}: make it an afo.Client(train, test)")
    return found


def _named(name: Any, given: Any) -> Client:
    """One of {"Hospital A": (train, test)}; what is no pair of data sets is taken for data to train on."""
    if isinstance(given, Client):
        client = copy.copy(given)
        client.name = _checked_name(name)
        return client
    apart = isinstance(given, tuple) and len(given) == 2 and not any(map(is_array, given))
    with within(f"client {short(name)}"):
        return Client(*given, name=name) if apart else Client(given, name=name)


def unheld(clients: Sequence[Client]) -> list[int]:
    """Who has no new data to be judged by: nothing held out, and no stream."""
    return [k for k, client in enumerate(clients) if client.held is None and not client.is_stream]
