"""What the authors of All-for-one ran under the names of their algorithms, as their code shows; see
docs/algorithms.md."""

from dataclasses import dataclass
from typing import Literal, TypedDict

import torch
from torch import Tensor

from .. import algorithms
from ..algorithms import Info, Memory, State
from ..algorithms.base import identity
from ..algorithms.fedavg import Common, share, up_and_down
from ..collaboration import Binary, Continuous, FreshSamples, normalised
from ..errors import InputError
from ..fleet import Fleet, Models, Optimizer, Round, mean, repeat

#: Rounds in a row without any similarity after which a client is never listened to again.
PATIENCE = 5


class Own(TypedDict):
    """What All-for-one remembers, as published."""

    unlike: Tensor  #: [N, N], for how many rounds in a row r_ik was 0


@dataclass(frozen=True)
class AllForOne(algorithms.BySimilarity):
    """They left n_k out of the continuous weights, let all rows sum to one, and gave a client up for good whose
    similarity was 0 in five rounds running. (Here it is asked all the same, and not listened to.)"""

    @property
    def name(self) -> str:
        return f"{super().name}-as-published"

    @property
    def label(self) -> str:
        return f"All-for-one, {type(self.criterion).__name__.lower()}, as published"

    def init(self, models: Models, optimizer: Optimizer) -> State:
        clients = len(next(iter(models.values())))
        return State(models, optimizer, Own(unlike=torch.zeros(clients, clients, dtype=torch.float64)))

    def collaborate(self, state: State, fleet: Fleet, round: Round) -> tuple[Info, Memory]:
        before: Own = state.own
        estimate, _ = self.estimator(fleet, state.models, {}, round)
        r = torch.where(before["unlike"] < PATIENCE, estimate.similarity, 0)
        met = round.present[:, None] & round.present
        unlike = torch.where(met, torch.where(r > 0, 0, before["unlike"] + 1), before["unlike"])
        sizes = torch.ones(len(r)) if isinstance(self.criterion, Continuous) else fleet.roster.sizes
        return Info(normalised(self.criterion.phi(r) * sizes), r), dict(Own(unlike=unlike))


def all_for_one_binary(
    threshold: float = 0.1, samples: int = 512, weighting: Literal["normalised"] = "normalised"
) -> AllForOne:
    return AllForOne(Binary(threshold), FreshSamples(samples), weighting)


def all_for_one_continuous(samples: int = 512, weighting: Literal["normalised"] = "normalised") -> AllForOne:
    return AllForOne(Continuous(), FreshSamples(samples), weighting)


@dataclass(frozen=True)
class FedAvg(algorithms.FedAvg):
    """They left the last client out: it is given the common model, and what it learned is in nobody's mean."""

    name = "fedavg-as-published"
    label = "FedAvg, as published"

    def __post_init__(self) -> None:
        if self.proximal or self.finetune:
            raise InputError("fedavg-as-published has neither proximal nor finetune: fedavg has")

    def step(self, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
        before: Common = state.common
        start = repeat(before["model"], len(fleet.roster))
        local, optimizer = fleet.descend(start, identity(fleet), state.optimizer, round)
        first = round.present & (fleet.roster.numbers < len(fleet.roster) - 1)
        weights = share(fleet, round._replace(present=first) if first.any() else round)
        common = mean(local, weights)
        after = State(repeat(common, len(weights)), optimizer, common=Common(model=common))
        return after, Info(weights.expand(len(weights), -1), messages=up_and_down(round))


@dataclass(frozen=True)
class Ditto(algorithms.Ditto):
    """They added the penalty to the gradient as one Python list to another, which appends it where nothing reads it. So
    it was never applied."""

    name = "ditto-as-published"
    label = "Ditto, as published"

    penalty: float = 0.0


@dataclass(frozen=True)
class CoBo(algorithms.CoBo):
    """They never applied the penalty (see Ditto) and forgot the weights every round."""

    name = "cobo-as-published"
    label = "CoBo, as published"

    penalty: float = 0.0

    def step(self, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
        return super().step(self.init(state.models, state.optimizer), fleet, round)


@dataclass(frozen=True)
class WgaBc(algorithms.WgaBc):
    """They ran a_i = 1 − 1/n_i (so 0 on streams, where n_i is 1), τ_ik = (n_k / (n_i N))², β = 10⁻⁴, and a correction
    that compares with the direction, not with g_i."""

    name = "wga-bc-as-published"
    label = "WGA-BC, as published"

    rate: float = 1e-4

    def bias(self, others: Tensor, own: Tensor, direction: Tensor) -> Tensor:
        return others - direction

    def weights(self, fleet: Fleet) -> tuple[Tensor, Tensor]:
        sizes = fleet.roster.sizes
        return 1 - 1 / sizes, (1 - identity(fleet)) * (sizes[None, :] / (sizes[:, None] * len(sizes))).square()


@dataclass(frozen=True)
class Apfl(algorithms.Apfl):
    """They fixed α at 1 − η, took the gradient in v without its factor α, and averaged the common model without regard
    to the clients' sizes."""

    name = "apfl-as-published"
    label = "APFL, as published"

    adaptive: bool = False

    def init(self, models: Models, optimizer: Optimizer) -> State:
        state = super().init(models, optimizer)
        alpha = torch.full_like(state.own["mixture"], 1 - optimizer.lr)
        return state._replace(own={**state.own, "mixture": alpha})

    def chain(self, alpha: Tensor, gradient: Tensor) -> Tensor:
        return gradient

    def averaging(self, fleet: Fleet, round: Round) -> Tensor:
        return round.present.double() / round.present.sum().clamp(min=1)
