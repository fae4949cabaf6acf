"""All-for-one: θ_i ← θ_i − η Σ_k w_ik g_k(θ_i), with the weights of least bias² + noise.

As good as the best of training alone, averaging and the true clusters, without being told which world it is.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..collaboration import least_error as rule
from ..collaboration import trusted
from ..collaboration.similarity import ordered_pairs
from ..errors import InputError
from ..fleet import Fleet, Look, Round, sketch, where_rows
from .base import Info, Memory, State, Weighted


@dataclass(frozen=True)
class AllForOne(Weighted):
    """look at each other → remember → weigh up bias and noise → least error → trust → step.

    Args:
        samples: what a client shows at each look, at least: of finite data drawn for it, of streams the round's own.
        sketch: numbers by which a gradient is remembered.

    Example:
        >>> import allforone as afo
        >>> afo.train(afo.digits(clients=4), algorithm=AllForOne(), rounds=2).weights[-1].sum(1).round(decimals=6)
        tensor([1., 1., 1., 1.], dtype=torch.float64)
    """

    name = "all-for-one"
    label = "All-for-one"

    samples: int = 16
    sketch: int = 64

    def __post_init__(self) -> None:
        for name in ("samples", "sketch"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{name} is {value!r}: must be a whole number, at least 1")

    def collaborate(self, state: State, fleet: Fleet, round: Round) -> tuple[Info, Memory]:
        parameters = sum(state.models[name][0].numel() for name in fleet.trained)
        setting, n = rule.Setting.of(fleet.roster, fleet.batch_size, parameters), len(fleet.roster)
        look = fleet.look(state.models, round, self.samples, self.sketch)
        memory: dict[str, Tensor] = state.own or rule.nothing(n, look.halves.shape[-1])
        memory, kappa = self._curvature(memory, look, state, fleet)
        after = rule.remember(memory, look, setting)
        # a stream shows the batches that it trains on: only the rounds before may weigh them
        known = {name: where_rows(setting.rarity == 0, memory[name], now) for name, now in after.items()}
        left = (look.norm.diagonal() / known["size"].exp()).clamp(max=1).nan_to_num(1.0)
        terms = rule.weigh_up(known, setting, kappa * left)  # with care while one's own gradient vanishes
        trust = rule.trust(after, look, setting, kappa)
        weights = trusted(rule.least_error(terms), trust)
        bias = torch.where(terms.allowed, terms.bias, torch.nan)
        return Info(weights, (1 - bias).clamp(min=0), bias=bias, noise=terms.cost, trust=trust), after

    def _curvature(
        self, memory: dict[str, Tensor], look: Look, state: State, fleet: Fleet
    ) -> tuple[dict[str, Tensor], Tensor]:
        """κ for ηβ: known, seen, or 1 where the step does not grow with the gradient, as of Adam."""
        step, ones = state.optimizer.step_size, torch.ones(len(fleet.roster), dtype=torch.float64)
        if step is None:
            return memory, ones
        if fleet.smoothness is not None:
            return memory, (step * fleet.smoothness * ones).clamp(max=1)
        flat = torch.cat([state.models[name].flatten(1) for name in fleet.trained], 1)
        return rule.curvature(memory, look, sketch(flat.shape[1], self.sketch)(flat.double()), step)

    def looking(self, round: Round, partners: int) -> int:
        """A gradient of every pair, and the models that updates do not send."""
        return 2 * ordered_pairs(round) - partners
