"""pFedMe (Dinh, Tran, Nguyen, NeurIPS 2020): personal models around a common one, which follows their pull.

At every update, K times on its batch: θ_i ← θ_i − η (g_i(θ_i) + λ (θ_i − w_i)); then w_i ← w_i − η_w λ (w_i − θ_i).
Every round w_i starts as w, and w ← (1 − β) w + β Σ_k p_k w_k at its end, p the shares of the data.
"""

from dataclasses import dataclass

from ..errors import InputError
from ..fleet import Fleet, Models, Optimizer, Round, mean, plus, repeat, shared, where_rows
from .base import Algorithm, Info, State, identity
from .fedavg import Common, share, up_and_down

#: λ in its authors' code, and λ times the step size there: beyond 2 the steps of θ_i would overshoot more and more.
PENALTY, STEP = 15.0, 1.35


@dataclass(frozen=True)
class PFedMe(Algorithm):
    """K = 1 with λ = 0 is Local. The steps of θ_i are the run's optimizer's. They begin where θ_i was, which its paper
    leaves open; its authors' code begins at w.

    Args:
        steps: K. Each costs a gradient.
        penalty: λ; by default 15 as in its authors' code, but no more than 1.35 over the step size, their product.
        rate: η_w.
        blend: β.
    """

    name = "pfedme"
    label = "pFedMe"

    steps: int = 5
    penalty: float | None = None
    rate: float = 0.005
    blend: float = 1.0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.rate < 0 or (self.penalty or 0) < 0:
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
        penalty = STEP / max(STEP / PENALTY, theta.lr) if self.penalty is None else self.penalty
        for step in round.steps:
            for _ in range(self.steps):
                gradients = fleet.gradients(theta.models, identity(fleet), round, step, fleet.roster.numbers)
                theta.apply(plus(gradients, {name: penalty * (theta.models[name] - local[name]) for name in w}))
            local = {name: t - self.rate * penalty * (t - theta.models[name]) for name, t in local.items()}
        models, optimizer = theta.finish()
        heard = {name: where_rows(round.present, tensor, w[name]) for name, tensor in local.items()}
        moved = mean(heard, share(fleet, round))
        common = {**before["model"], **{name: w[name].lerp(moved[name], self.blend) for name in w}}
        return State(models, optimizer, common=Common(model=common)), Info(identity(fleet), messages=up_and_down(round))
