"""All-for-one with an oracle: uniform weights inside the true cluster, which only a synthetic problem knows."""

from typing import Any

from ..collaboration import uniform_within
from ..errors import InputError
from ..fleet import Fleet
from .base import Info, State, Weighted


class Oracle(Weighted):
    def collaborate(self, state: State, fleet: Fleet, step: int) -> tuple[Info, dict[str, Any]]:
        if fleet.clusters is None:
            raise InputError("the oracle needs to know the true clusters: give every Client a cluster, or leave it out")
        return Info(uniform_within(fleet.clusters)), {}
