"""IFCA (Ghosh, Chung, Yin, Ramchandran 2020): K models; each client trains the one that fits it best.

Every round client i picks k = argmin loss_i(w_k) on the batches of the round, takes `inner` steps from w_k, and w_k
becomes the mean of those who picked it. The K models start as the local models farthest apart after one round.
"""

from dataclasses import dataclass
from typing import TypedDict

import torch
from torch import Tensor

from ..errors import InputError
from ..fleet import Fleet, Models, Round, mean, pick, where_rows
from .base import Algorithm, Info, State, identity


class Common(TypedDict):
    centres: Models  #: w_k, a stack of K; missing before the first round


@dataclass(frozen=True)
class Ifca(Algorithm):
    """clusters: K, how many models there are. One is FedAvg, but for its first round."""

    name = "ifca"
    label = "IFCA (knows how many clusters)"

    clusters: int = 2

    def __post_init__(self) -> None:
        if self.clusters < 1:
            raise InputError(f"clusters is {self.clusters}: must be at least 1")

    def step(self, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
        messages = (1 + self.clusters) * int(round.present.sum())
        if "centres" not in state.common:
            moved, optimizer = fleet.descend(state.models, identity(fleet), state.optimizer, round)
            models = {name: where_rows(round.present, moved[name], before) for name, before in state.models.items()}
            chosen = farthest_apart(models, fleet.trained, min(self.clusters, len(fleet.roster)))
            after = State(models, optimizer, common=Common(centres=pick(models, chosen)))
            return after, Info(identity(fleet), messages=messages)
        before: Common = state.common
        centres = before["centres"]
        choice = fleet.losses(centres, round).nan_to_num(torch.inf).argmin(0)
        local, optimizer = fleet.descend(pick(centres, choice), identity(fleet), state.optimizer, round)
        sizes = torch.where(round.present, fleet.roster.sizes, 0)
        member = torch.nn.functional.one_hot(choice, len(centres[fleet.trained[0]])).T * sizes  # [K, N]
        used = member.sum(1) > 0
        weights = member / member.sum(1, keepdim=True).clamp(min=1e-300)
        means = [mean(local, line) for line in weights]
        centres = {
            name: torch.cat([means[k][name] if used[k] else old[k : k + 1] for k in range(len(weights))])
            for name, old in centres.items()
        }
        after = State(pick(centres, choice), optimizer, common=Common(centres=centres))
        return after, Info(weights[choice], messages=messages)


def farthest_apart(models: Models, names: list[str], count: int) -> Tensor:
    """Row 0, then again and again the row farthest from those chosen."""
    vectors = torch.cat([models[name].flatten(1) for name in names], 1)
    chosen = [0]
    while len(chosen) < count:
        chosen.append(int(torch.cdist(vectors, vectors[torch.tensor(chosen)]).amin(1).argmax()))
    return torch.tensor(chosen)
