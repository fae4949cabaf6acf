"""WGA-BC (Chayti, Karimireddy, Stich, Flammarion, Jaggi 2021): weighted gradients with a running bias correction.

θ_i ← θ_i − η ((1 − a) g_i + a (Σ_k τ_k g_k − c_i)), all gradients at θ_i, k over the peers;
c_i ← (1 − β) c_i + β (Σ_k τ_k g_k − g_i).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from ..fleet import Fleet, Models, Optimizer
from ..fleet.optimizer import where_rows
from .base import Info, State, alone


@dataclass(frozen=True)
class WgaBc:
    """share: a, unless told 1 − 1/N, with which all N gradients count the same; rate: β.

    Its paper scales β with the step size and gives no number; small β corrects slowly, large β adds noise.
    as_published: what the authors of All-for-one ran: a_i = 1 − 1/n_i (so 0 on streams, where n_i is 1),
    τ_ik = (n_k / (n_i N))², β = 10⁻⁴, and a correction that compares with the direction, not with g_i.
    """

    share: float | None = None
    rate: float = 0.1
    as_published: bool = False

    def __post_init__(self) -> None:
        if self.share is not None and not 0 <= self.share <= 1:
            raise InputError(f"share is {self.share}: must be between 0 and 1")
        if not 0 <= self.rate <= 1:
            raise InputError(f"rate β is {self.rate}: must be between 0 and 1")

    def init(self, models: Models, optimizer: Optimizer) -> State:
        return State(models, optimizer, {"correction": {name: torch.zeros_like(t) for name, t in models.items()}})

    def step(self, state: State, fleet: Fleet, steps: range) -> tuple[State, Info]:
        own, (a, peers) = alone(fleet), self.weights(fleet)
        rate = 1e-4 if self.as_published else self.rate
        correction = dict(state.memory["correction"])
        running = state.optimizer.start(state.models, fleet.trained)
        for step in steps:
            gradients = fleet.gradients(running.models, own, step)
            of_peers = fleet.gradients(running.models, peers, step)
            direction = dict(gradients)
            for name in fleet.trained:
                g, others, c = gradients[name], of_peers[name], correction[name]
                part = a.to(g.dtype).view(-1, *[1] * (g.dim() - 1))
                direction[name] = (1 - part) * g + part * (others - c)
                bias = others - (direction[name] if self.as_published else g)
                correction[name] = (1 - rate) * c + rate * bias
            running.apply(direction)
        after, optimizer = running.finish()
        here = fleet.present(steps.start)
        models, kept = (
            {name: where_rows(here, now[name], before[name]) for name in now}
            for now, before in ((after, state.models), (correction, state.memory["correction"]))
        )
        info = Info((1 - a)[:, None] * own + a[:, None] * peers)
        return State(models, optimizer.only(here, state.optimizer), {"correction": kept}), info

    def weights(self, fleet: Fleet) -> tuple[Tensor, Tensor]:
        """a [N] and τ [N, N], which is 0 on the diagonal."""
        n, sizes = len(fleet.sizes), fleet.sizes
        others = 1 - alone(fleet)
        if self.as_published:
            return 1 - 1 / sizes, others * (sizes[None, :] / (sizes[:, None] * n)).square()
        if n == 1:
            return torch.zeros(1, dtype=torch.float64), others
        share = 1 - 1 / n if self.share is None else self.share
        return torch.full((n,), share, dtype=torch.float64), others / (n - 1)
