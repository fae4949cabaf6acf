"""All-for-one with an oracle: uniform weights inside the true cluster, which only a synthetic problem knows."""

from dataclasses import dataclass

from ..collaboration import uniform_within
from ..errors import InputError
from ..fleet import Fleet, Round
from .base import Info, Memory, State, Weighted


@dataclass(frozen=True)
class Oracle(Weighted):
    """What could be reached if one knew who is alike.

    Example:
        >>> import allforone as afo
        >>> afo.train(afo.synthetic(clients=4), algorithm=afo.Oracle(), rounds=1).weights[0, 0].tolist()
        [0.5, 0.0, 0.5, 0.0]
    """

    name = "oracle"
    label = "Oracle (knows the clusters)"
    needs_clusters = True

    def collaborate(self, state: State, fleet: Fleet, round: Round) -> tuple[Info, Memory]:
        if fleet.roster.clusters is None:
            raise InputError("the oracle needs to know the true clusters: give every Client a cluster, or leave it out")
        return Info(uniform_within(fleet.roster.clusters)), {}
