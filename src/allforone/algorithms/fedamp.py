"""FedAMP (Huang, Chu, Zhou, Wang, Liu, Pei, Zhang, AAAI 2021): models drawn to those of clients that are near already.

u_i = Σ_k ξ_ik θ_k, ξ_ik = α A'(‖θ_i − θ_k‖²), ξ_ii = 1 − Σ_{k≠i} ξ_ik, with A(x) = 1 − e^(−x/σ);
θ_i ← θ_i − η (g_i(θ_i) + λ/α (θ_i − u_i)), u_i as it was at the start of the round.
HeurFedAMP: ξ_ik = (1 − ξ_ii) softmax_{k≠i}(σ cos(θ_i, θ_k)), ξ_ii given.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..collaboration.similarity import cosine
from ..errors import InputError
from ..fleet import Fleet, Proximal, Round, combined
from .base import Algorithm, Info, State, identity
from .fedavg import up_and_down
from .looking import points


@dataclass(frozen=True)
class FedAMP(Algorithm):
    """λ = 0 is Local. Its convergence is proved for a small α; where α A' gives the others more than 1 in all, it is
    shortened for that client so that ξ_ii is 0 and not negative.

    Args:
        penalty: λ.
        rate: α, and
        width: σ. No setting is common: others' code has α and σ from 0.1 to 10⁴. ‖θ_i − θ_k‖² must be about σ for
            anybody to be heard, so that both hang on the model.
        cosine: HeurFedAMP's weights, for deep networks, whose distances tell little.
        own: ξ_ii of these; by default the same for all who are there.
    """

    name = "fedamp"

    penalty: float = 1.0
    rate: float = 1.0
    width: float = 1.0
    cosine: bool = False
    own: float | None = None

    def __post_init__(self) -> None:
        if self.penalty < 0 or self.rate <= 0 or self.width <= 0:
            raise InputError(
                f"penalty λ {self.penalty} must not be negative, rate α {self.rate} and width σ {self.width} must be "
                "above 0"
            )
        if self.own is not None and not (self.cosine and 0 <= self.own <= 1):
            raise InputError(f"own ξ is {self.own}: must be between 0 and 1, and together with cosine=True")

    @property
    def label(self) -> str:
        return "HeurFedAMP" if self.cosine else "FedAMP"

    def step(self, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
        attention = self.attention(points(state.models, fleet, round), round.present)
        centre = combined({name: state.models[name] for name in fleet.trained}, attention)
        direction = Proximal(self.penalty / self.rate, centre)
        models, optimizer = fleet.descend(state.models, identity(fleet), state.optimizer, round, direction)
        return State(models, optimizer), Info(attention, messages=up_and_down(round))

    def attention(self, theta: Tensor, present: Tensor) -> Tensor:
        """[N, N], ξ among those present, from the models [N, P]; 0 of the absent."""
        others = present[:, None] & present & ~torch.eye(len(present), dtype=torch.bool)
        if self.cosine:
            own = 1 / present.sum().clamp(min=1) if self.own is None else self.own
            scores = (self.width * cosine(theta)).masked_fill(~others, -torch.inf)
            xi = (1 - own) * scores.softmax(1).nan_to_num(0)  # NaN: there is nobody else
        else:
            squared = torch.cdist(theta, theta, compute_mode="donot_use_mm_for_euclid_dist").square().cpu()
            xi = torch.where(others, self.rate / self.width * (-squared / self.width).exp(), 0)
            xi = xi / xi.sum(1, keepdim=True).clamp(min=1)
        return xi + torch.diag(torch.where(present, 1 - xi.sum(1), 0).clamp(min=0))
