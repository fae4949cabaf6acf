"""CFL (Sattler, Müller, Samek 2020): one cluster, cut in two where its mean stands still and its members do not.

Every round client i takes `inner` steps from its cluster's model, which becomes the mean of its members'. Where
‖Σ_k p_k Δ_k‖ < ε₁ and max_k ‖Δ_k‖ > ε₂ for the members' ways Δ_k, the cluster is cut so that the most similar two of
its sides, by cos(Δ_i, Δ_k), are as little so as can be; if √((1 − that)/2) > γ.
"""

from dataclasses import dataclass
from typing import TypedDict

import torch
from torch import Tensor

from ..collaboration.similarity import cosine
from ..errors import InputError
from ..fleet import Fleet, Models, Optimizer, Round, mean, pick, shared
from .base import Algorithm, Info, State, identity
from .fedavg import up_and_down
from .looking import points


class Own(TypedDict):
    cluster: Tensor  #: [N], the number of its cluster


class Common(TypedDict):
    models: Models  #: a stack with one for each cluster
    greatest: Tensor  #: [1], the longest way that a cluster's mean has made in a round


@dataclass(frozen=True)
class CFL(Algorithm):
    """Never cut, it is FedAvg. Its paper has everybody there in every round; who is absent when its cluster is cut
    stays with the side that keeps the number.

    Args:
        small: ε₁, and
        large: ε₂, in shares of the longest way that a mean has made in a round. Its authors' code has lengths, 0.4 and
            1.6, which are of one model and step size; ours are a choice.
        gap: γ, in its paper a bound on noise, which is not known. Above √½ even the most similar of two sides must
            point away from each other: noise alone does not. At 0, as in that code, any cut will do.
    """

    name = "cfl"
    label = "CFL"

    small: float = 0.2
    large: float = 0.4
    gap: float = 0.7

    def __post_init__(self) -> None:
        if self.small < 0 or self.large < 0 or not 0 <= self.gap <= 1:
            raise InputError(
                f"small ε₁ {self.small} and large ε₂ {self.large} must not be negative, gap γ {self.gap} from 0 to 1"
            )

    def init(self, models: Models, optimizer: Optimizer) -> State:
        n = len(next(iter(models.values())))
        common = Common(models=shared(models), greatest=torch.zeros(1, dtype=torch.float64))
        return State(models, optimizer, Own(cluster=torch.zeros(n, dtype=torch.long)), common)

    def step(self, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
        own: Own = state.own
        before: Common = state.common
        start = pick(before["models"], own["cluster"])
        local, optimizer = fleet.descend(start, identity(fleet), state.optimizer, round)
        ways = (points(local, fleet, round) - points(start, fleet, round)).cpu()
        sizes = torch.where(round.present, fleet.roster.sizes, 0)
        count = len(before["models"][fleet.trained[0]])
        cluster, greatest = self.cut(own["cluster"], count, ways, sizes, before["greatest"])
        member = torch.nn.functional.one_hot(cluster, max(count, int(cluster.max()) + 1)).T * sizes  # [clusters, N]
        weights = member / member.sum(1, keepdim=True).clamp(min=1)
        means = [
            mean(local, line) if line.any() else pick(before["models"], torch.tensor([k]))
            for k, line in enumerate(weights)
        ]
        models = {name: torch.cat([one[name] for one in means]) for name in before["models"]}
        after = State(pick(models, cluster), optimizer, Own(cluster=cluster), Common(models=models, greatest=greatest))
        return after, Info(weights[cluster], messages=up_and_down(round))

    def cut(self, cluster: Tensor, count: int, ways: Tensor, sizes: Tensor, greatest: Tensor) -> tuple[Tensor, Tensor]:
        """The clusters, of `count` and of those that are cut off them, and the longest way of a mean so far."""
        after, members = cluster.clone(), [((cluster == k) & (sizes > 0)).nonzero().flatten() for k in range(count)]
        still = [(sizes[who] / sizes[who].sum() @ ways[who]).norm() for who in members]
        greatest = torch.cat([greatest, torch.stack(still)]).amax(0, keepdim=True)
        for who, length in zip(members, still, strict=True):
            if len(who) > 1 and length < self.small * greatest and ways[who].norm(dim=1).max() > self.large * greatest:
                alike = cosine(ways[who])
                side = apart(alike)
                if ((1 - alike[side][:, ~side].max()).clamp(min=0) / 2).sqrt() > self.gap:
                    after[who[side]] = count
                    count += 1
        return after, greatest


def apart(alike: Tensor) -> Tensor:
    """[m], one of two sides: the most similar are put together, pair after pair, until two groups are left."""
    group = torch.arange(len(alike))
    i, k = torch.triu_indices(len(alike), len(alike), 1)
    for pair in alike[i, k].argsort(descending=True, stable=True).tolist():
        if len(group.unique()) == 2:
            break
        group[group == group[k[pair]]] = group[i[pair]].clone()
    return group != group[0]
