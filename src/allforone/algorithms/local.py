"""Local: every client alone, α = I."""

from ..fleet import Fleet
from .base import Info, State, Weighted, alone


class Local(Weighted):
    def collaborate(self, state: State, fleet: Fleet, step: int) -> Info:
        return Info(alone(fleet))
