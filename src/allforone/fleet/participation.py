"""Who takes part in a round by the run's own choice, before anybody is asked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from ..problems.data import generator

#: With which probability a client is there in a round, or a function from a round's first step to [N], who is there.
Participation = float | Callable[[int], Tensor | Sequence[bool]]


@dataclass(frozen=True)
class Without:
    """Who takes part, but one client never."""

    participation: Participation
    absent: int
    clients: int
    seed: int

    def __call__(self, step: int) -> Tensor:
        here = present(self.participation, self.clients, self.seed, 1, step).clone()
        here[self.absent] = False
        return here


def check_participation(participation: Participation) -> None:
    if not callable(participation) and not 0 < participation <= 1:
        raise InputError(f"participation is {participation}: give a number above 0, at most 1, or a function")


def present(participation: Participation, clients: int, seed: int, number: int, step: int) -> Tensor:
    """[N], who takes part in round `number`, whose first step is `step`; before the training, everybody."""
    if number == 0:
        return torch.ones(clients, dtype=torch.bool)
    if callable(participation):
        here = torch.as_tensor(participation(step)).bool()
        if here.shape != (clients,):
            raise InputError(f"participation gave {list(here.shape)} at step {step}: must tell for each client")
        return here
    return torch.rand(clients, generator=generator(seed, "present", step)) < participation
