"""Clients that lie, for experiments: what they send."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import InputError, short, suggest
from ..problems.data import generator


class Seen(NamedTuple):
    """What a liar knows when it answers; each [models, P]."""

    honest: Tensor  #: its gradient, had it been honest
    victims: Tensor  #: the mean of the honest clients' gradients
    first: Tensor  #: its gradient on its first batch, at the initial model; the same in every row
    random: torch.Generator
    number: int  #: of the liar, among the liars
    step: int  #: of the update


def _noise(seen: Seen) -> Tensor:
    drawn = torch.randn(seen.honest.shape, generator=seen.random, dtype=seen.honest.dtype)
    return 10 * _length(seen.honest) * drawn / _length(drawn)


def _mimicry(seen: Seen) -> Tensor:
    """All but honest: the mean of its victims, and a tenth of its length in a direction that is always the same."""
    ones = torch.ones_like(seen.victims)
    return seen.victims + 0.1 * _length(seen.victims) * ones / _length(ones)


def _cancelling(seen: Seen) -> Tensor:
    """One half of the liars pull to one side, the other half to the other; at every fourth step all to the same."""
    side = 1 if seen.number % 2 == 0 or seen.step % 4 == 3 else -1
    ones = torch.ones_like(seen.victims)
    return seen.victims + 3 * side * _length(seen.victims) * ones / _length(ones)


def _length(rows: Tensor) -> Tensor:
    return rows.square().sum(1, keepdim=True).sqrt()


ATTACKS: dict[str, Callable[[Seen], Tensor]] = {
    "flip": lambda seen: -seen.honest,
    "flip10": lambda seen: -10 * seen.honest,
    "noise": _noise,
    "zeros": lambda seen: torch.zeros_like(seen.honest),
    "stale": lambda seen: seen.first,
    "mimicry": _mimicry,
    "cancelling": _cancelling,
    "nan": lambda seen: torch.full_like(seen.honest, torch.nan),
    "inf": lambda seen: torch.full_like(seen.honest, torch.inf),
    "short": lambda seen: seen.honest[:, 1:],
}


#: Of the number of liars; Python reads no number of thousands of them.
MOST_DIGITS = 9


class Attack(NamedTuple):
    kind: str
    liars: int

    @classmethod
    def parse(cls, text: str) -> "Attack":
        """'flip:4' are four liars that send the opposite."""
        kind, _, count = text.partition(":")
        if kind not in ATTACKS:
            raise InputError(f"attack '{short(kind)}': {suggest(kind, ATTACKS)}")
        if not count.isdecimal() or len(count) > MOST_DIGITS or int(count) < 1:
            raise InputError(f"attack '{short(text)}': say how many clients lie, as {kind}:4")
        return cls(kind, int(count))

    def choose(self, clients: int, seed: int) -> list[int]:
        """Who lies, by the seed."""
        if self.liars >= clients:
            raise InputError(f"attack {self.kind}:{self.liars}: of {clients} clients at most {clients - 1} may lie")
        return sorted(torch.randperm(clients, generator=generator(seed, "liars"))[: self.liars].tolist())
