"""All-for-one with an oracle: uniform weights inside the true cluster, which only a synthetic problem knows."""

from dataclasses import dataclass

from ..collaboration import uniform_within
from ..errors import InputError
from ..fleet import Fleet, Round
from .base import Info, Memory, State, Weighted


@dataclass(frozen=True)
class Oracle(Weighted):
    name = "oracle"
    label = "Oracle (knows the clusters)"
    needs_clusters = True

    def collaborate(self, state: State, fleet: Fleet, round: Round) -> tuple[Info, Memory]:
        if fleet.roster.clusters is None:
            raise InputError("the oracle needs to know the true clusters: give every Client a cluster, or leave it out")
        return Info(uniform_within(fleet.roster.clusters)), {}
