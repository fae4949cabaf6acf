"""pFedMe (Dinh, Tran, Nguyen, NeurIPS 2020): personal models around a common one, which follows their pull.

At every update, K times on its batch: θ_i ← θ_i − η (g_i(θ_i) + λ (θ_i − w_i)); then w_i ← w_i − η_w λ (w_i − θ_i).
Every round w_i starts as w, and w ← (1 − β) w + β Σ_k p_k w_k at its end, p the shares of the data.
"""

from dataclasses import dataclass

from ..errors import InputError
from ..fleet import Fleet, Models, Optimizer, Round, mean, plus, repeat, shared, where_rows
from .base import Algorithm, Info, State, identity
from .fedavg import Common, share, up_and_down

#: λ and η_w in its authors' code. Their product is the share of the way to θ_i that w_i goes at an update.
PENALTY, RATE = 15.0, 0.005


@dataclass(frozen=True)
class PFedMe(Algorithm):
    """K = 1 with λ = 0 is Local. The steps of θ_i are the run's optimizer's. They begin where θ_i was, which its paper
    leaves open; its authors' code begins at w.

    Args:
        steps: K. Each costs a gradient.
        penalty: λ; by default 15 up to a step size of 0.005, as in its authors' code, and less beyond it, so that their
            product stays: w_i follows gradients with η_w, and leaps over θ_i where η_w λ is above 1.
        rate: η_w; by default the step size of the run. Its authors have θ_i take 18 times larger steps.
        blend: β.
    """

    name = "pfedme"
    label = "pFedMe"

    steps: int = 5
    penalty: float | None = None
    rate: float | None = None
    blend: float = 1.0

    def __post_init__(self) -> None:
        if self.steps < 1 or (self.rate or 0) < 0 or (self.penalty or 0) < 0:
            raise InputError(
                f"steps K {self.steps} must be at least 1, penalty λ {self.penalty} and rate η {self.rate} not negative"
            )
        if not 0 <= self.blend <= 1:
            raise InputError(f"blend β is {self.blend}: must be between 0 and 1")

    def init(self, models: Models, optimizer: Optimizer) -> State:
        return State(models, optimizer, common=Common(model=shared(models)))

    def step(self, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
        before: Common = state.common
        w = {name: before["model"][name] for name in fleet.trained}
        local = repeat(w, len(fleet.roster))
        theta = state.optimizer.start(state.models, fleet.trained)
        rate = theta.lr if self.rate is None else self.rate
        penalty = PENALTY * RATE / max(RATE, rate) if self.penalty is None else self.penalty
        for step in round.steps:
            for _ in range(self.steps):
                gradients = fleet.gradients(theta.models, identity(fleet), round, step, fleet.roster.numbers)
                theta.apply(plus(gradients, {name: penalty * (theta.models[name] - local[name]) for name in w}))
            local = {name: t - rate * penalty * (t - theta.models[name]) for name, t in local.items()}
        models, optimizer = theta.finish()
        heard = {name: where_rows(round.present, tensor, w[name]) for name, tensor in local.items()}
        moved = mean(heard, share(fleet, round))
        common = {**before["model"], **{name: w[name].lerp(moved[name], self.blend) for name in w}}
        return State(models, optimizer, common=Common(model=common)), Info(identity(fleet), messages=up_and_down(round))
