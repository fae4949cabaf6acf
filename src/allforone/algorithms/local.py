"""Local: every client alone, α = I."""

from dataclasses import dataclass

from ..fleet import Fleet, Round
from .base import Info, Memory, State, Weighted, identity


@dataclass(frozen=True)
class Local(Weighted):
    """What everything is measured against.

    Example:
        >>> import allforone as afo
        >>> afo.train(afo.synthetic(), algorithm=afo.Local(), rounds=2).weights[-1].sum()
        tensor(20., dtype=torch.float64)
    """

    name = "local"
    label = "Local"

    def collaborate(self, state: State, fleet: Fleet, round: Round) -> tuple[Info, Memory]:
        return Info(identity(fleet)), {}
