"""An algorithm is two functions on plain state: `init`, and `step`, which is one round."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ..fleet import Fleet, Models, Optimizer, restricted


class State(NamedTuple):
    """All that an algorithm carries from round to round."""

    models: Models  #: client i's own model in row i
    optimizer: Optimizer  #: of these models
    memory: dict[str, Any]  #: whatever else it keeps, by name: tensors, models, optimizers


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
    noise: Tensor | None = None  #: [N, N], σ_k²/σ_i² at θ_i, where the weights depend on it
    trust: Tensor | None = None  #: [N, N], the share of g_k − g_i that client i let through, where it is bounded
    verdict: Verdict | None = None  #: of a guard, where one watches


class Algorithm(Protocol):
    """Pure: all state is in `State`, all randomness in the fleet's seed and the numbers of the steps."""

    def init(self, models: Models, optimizer: Optimizer) -> State: ...

    def step(self, state: State, fleet: Fleet, steps: range) -> tuple[State, Info]:
        """One round: the updates numbered `steps`."""
        ...


class Weighted(ABC):
    """θ_i ← θ_i − η Σ_k α_ik g_k(θ_i). All-for-one, its oracle and Local differ by one function, `collaborate`."""

    def init(self, models: Models, optimizer: Optimizer) -> State:
        return State(models, optimizer, {})

    @abstractmethod
    def collaborate(self, state: State, fleet: Fleet, step: int) -> tuple[Info, dict[str, Any]]:
        """The weights of the coming round, and what to remember."""

    def step(self, state: State, fleet: Fleet, steps: range) -> tuple[State, Info]:
        info, memory = self.collaborate(state, fleet, steps.start)
        info = info._replace(weights=restricted(info.weights, fleet.present(steps.start)))
        mix = info.weights if info.scale is None else info.scale[:, None] * info.weights
        models, optimizer = fleet.descend(state.models, mix, state.optimizer, steps)
        return State(models, optimizer, memory), info


def alone(fleet: Fleet) -> Tensor:
    """α = I: every client listens to itself only."""
    return torch.eye(len(fleet.sizes), dtype=torch.float64)
