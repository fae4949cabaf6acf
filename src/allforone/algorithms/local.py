"""Local: every client alone, α = I."""

from typing import Any

from ..fleet import Fleet
from .base import Info, State, Weighted, alone


class Local(Weighted):
    def collaborate(self, state: State, fleet: Fleet, step: int) -> tuple[Info, dict[str, Any]]:
        return Info(alone(fleet)), {}
