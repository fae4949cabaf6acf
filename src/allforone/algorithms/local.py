"""Local: every client alone, α = I."""

from dataclasses import dataclass

from ..fleet import Fleet, Round
from .base import Info, Memory, State, Weighted, identity


@dataclass(frozen=True)
class Local(Weighted):
    name = "local"
    label = "Local"

    def collaborate(self, state: State, fleet: Fleet, round: Round) -> tuple[Info, Memory]:
        return Info(identity(fleet)), {}
