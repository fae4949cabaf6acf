"""An algorithm is two functions on plain state: `init`, and `step`, which is one round."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import InputError
from ..fleet import Direction, Fleet, Models, Optimizer, Round, among_present, surely, where_rows

#: What an algorithm keeps from round to round, by name: tensors, models and optimizers, also in dictionaries. An
#: algorithm says what it keeps as a TypedDict.
Memory = Mapping[str, Any]

NOTHING: Memory = {}


class State(NamedTuple):
    """All that an algorithm carries from round to round."""

    models: Models  #: client i's own model in row i
    optimizer: Optimizer  #: of these models
    own: Any = NOTHING  #: a Memory, by client: row i of every tensor is client i's, and stays while that is absent
    common: Any = NOTHING  #: a Memory of what is nobody's, such as an averaged model


class Verdict(NamedTuple):
    """Whether collaboration helped each client, by data that no model was trained on; see `Guarded`."""

    gain: Tensor  #: [N], by how much its loss is lower than alone, of the mean of both; negative where it is higher
    margin: Tensor  #: [N], of the 95 % interval gain ± margin; infinite while too little has been seen
    alone: Tensor  #: [N], whether it was given its local model


class Info(NamedTuple):
    """What a round tells about itself."""

    weights: Tensor  #: [N, N], α_ik: how much client i listened to client k
    similarity: Tensor | None = None  #: [N, N], r_ik, where it was estimated
    scale: Tensor | None = None  #: [N], η_i/η, where the step-size condition shortened steps
    bias: Tensor | None = None  #: [N, N], expected ‖∇R_k(θ_i) − ∇R_i(θ_i)‖² in units of ‖g_i‖²; NaN: no partner
    noise: Tensor | None = None  #: [N, N], expected error by noise of following k alone, in the same units
    trust: Tensor | None = None  #: [N, N], the share of g_k − g_i that client i let through, where it is bounded
    verdict: Verdict | None = None  #: of a guard, where one watches
    messages: int | None = (
        None  #: models and gradients sent, had every client been a machine of its own; None: not known
    )
    gradients: int = 0  #: of these messages, gradients and displacements, which carry no buffers


class Algorithm(ABC):
    """Pure: all state is in `State`, all randomness in the fleet's seed and the numbers of the steps.

    Who is absent is not asked, and `advance` puts back its rows: an algorithm need not think of it.
    """

    needs_clusters = False  #: whether it must be told the true clusters

    @property
    def name(self) -> str:
        """What the command line and the files call it."""
        return type(self).__name__

    @property
    def label(self) -> str:
        """What figures and pages call it."""
        return self.name

    def advice(self, clients: int) -> str | None:
        """What a user with so many clients should be told before a run, in one line."""
        return None

    def init(self, models: Models, optimizer: Optimizer) -> State:
        return State(models, optimizer)

    @abstractmethod
    def step(self, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
        """One round."""


@dataclass(frozen=True)
class Around(Algorithm):
    """An algorithm around another, by whose name it goes."""

    algorithm: Algorithm

    @property
    def name(self) -> str:
        return self.algorithm.name

    @property
    def label(self) -> str:
        return self.algorithm.label


def advance(algorithm: Algorithm, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
    """One round of an algorithm, after which all that belongs to the absent is as it was, bit for bit."""
    after, info = surely(lambda: algorithm.step(state, fleet, round))
    present = round.present
    for memory in (state.own, after.own):
        check_rows(memory, len(present))
    if present.all():
        return after, info
    models, optimizer, own = (put_back(present, now, then) for now, then in zip(after[:3], state[:3], strict=True))
    common = after.common if present.any() else state.common
    heard = torch.where(present[:, None] & present, info.weights, 0)
    return State(models, optimizer, own, common), info._replace(weights=heard)


def check_rows(value: Any, clients: int, place: str = "own") -> None:
    """Refuse a memory of the clients in which anything has no row for each of them."""
    if isinstance(value, dict):
        for key, item in value.items():
            check_rows(item, clients, f"{place}[{key!r}]")
    elif not isinstance(value, Optimizer) and not (isinstance(value, Tensor) and value.shape[:1] == (clients,)):
        found = f"has shape {list(value.shape)}" if isinstance(value, Tensor) else f"is of type {type(value).__name__}"
        raise InputError(
            f"State.{place} {found}: `own` holds optimizers, models and tensors with a row for each of the {clients} "
            "clients, by name. What is nobody's, such as a counter, belongs in `common`, as a tensor"
        )


def put_back(present: Tensor, now: Any, before: Any) -> Any:
    """`now` with the rows of the absent as they were before; what was not there before is left."""
    if isinstance(now, dict):
        return {key: put_back(present, value, before[key]) if key in before else value for key, value in now.items()}
    if isinstance(now, Optimizer):
        return now.only_rows(present, before)
    return where_rows(present, now, before)


class Weighted(Algorithm):
    """θ_i ← θ_i − η Σ_k α_ik g_k(θ_i). All-for-one, its oracle and Local differ by one function, `collaborate`."""

    @abstractmethod
    def collaborate(self, state: State, fleet: Fleet, round: Round) -> tuple[Info, Memory]:
        """The weights of the coming round, and what to remember of each client."""

    def direction(self, own: Memory, fleet: Fleet) -> Direction | None:
        """What becomes of the mixed gradients, by what is remembered; by default nothing."""
        return None

    def looking(self, round: Round, own: Memory, partners: int) -> int | None:
        """Messages by which the weights were found, beyond those of the updates between so many ordered pairs: where A
        are asked, A gradients, and the A − `partners` models that the first update does not send."""
        return 0

    def step(self, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
        info, own = self.collaborate(state, fleet, round)
        weights = among_present(info.weights, round.present, fleet.roster.numbers)
        mix = weights if info.scale is None else info.scale[:, None] * weights
        models, optimizer = fleet.descend(state.models, mix, state.optimizer, round, self.direction(own, fleet))
        partners = pairs(weights)
        looking = self.looking(round, own, partners)  # for a partner's gradient one sends one's model: two messages
        messages = None if looking is None else 2 * len(round.steps) * partners + looking
        gradients = len(round.steps) * partners + ((looking + partners) // 2 if looking else 0)
        info = info._replace(weights=weights, messages=messages, gradients=gradients)
        return State(models, optimizer, own), info


def identity(fleet: Fleet) -> Tensor:
    """α = I: every client listens to itself only."""
    return torch.eye(len(fleet.roster), dtype=torch.float64)


def pairs(weights: Tensor) -> int:
    """How many ordered pairs of different clients have a weight."""
    return int((weights != 0).sum() - (weights.diagonal() != 0).sum())
