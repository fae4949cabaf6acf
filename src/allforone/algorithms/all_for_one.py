"""All-for-one: θ_i ← θ_i − η Σ_k w_ik g_k(θ_i), with the weights of least bias² + noise.

As good as the best of training alone, averaging and the true clusters, without being told which world it is.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..collaboration import correction, trusted
from ..collaboration import least_error as rule
from ..collaboration.similarity import ordered_pairs
from ..errors import InputError
from ..fleet import Direction, Fleet, Look, Models, Round, among_present, sketch, where_rows
from .base import Info, Memory, State, Weighted
from .race import begin, race

#: Numbers of all differences between clients, N²P, above which correcting them is refused: they and a look take 2 GB.
MOST_DIFFERENCES = 2**26


@dataclass(frozen=True)
class AllForOne(Weighted):
    """look at each other → remember → weigh up bias and noise → least error → trust → step.

    Args:
        samples: what a client shows at each look, at least: of finite data drawn for it, of streams the round's own.
        sketch: numbers by which a gradient is remembered.
        every: rounds between two looks, each as dear as N² gradients of `samples` samples; the weights stay in between.
        correct: take known differences off partners' gradients, so that who differs still lowers the noise. Keeps a
            whole gradient for every pair of clients.

    Example:
        >>> import allforone as afo
        >>> afo.train(afo.digits(clients=4), algorithm=AllForOne(), rounds=2).weights[-1].sum(1).round(decimals=6)
        tensor([1., 1., 1., 1.], dtype=torch.float64)
    """

    name = "all-for-one"
    label = "All-for-one"

    samples: int = 16
    sketch: int = 64
    every: int = 1
    correct: bool = False

    def __post_init__(self) -> None:
        for name in ("samples", "sketch", "every"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{name} is {value!r}: must be a whole number, at least 1")
        if not isinstance(self.correct, bool):
            raise InputError(f"correct is {self.correct!r}: must be true or false")
        if self.correct and self.every > 1:
            raise InputError(f"every is {self.every}: with correct=True clients look at each other in every round")

    def step(self, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
        """One round; streams, whose coming batches are new, also go on alone and take the better way."""
        before = state._replace(own=state.own.get("seen", {}))
        after, info = super().step(before, fleet, round)
        own: dict[str, Any] = {"seen": after.own}
        if any(member.stream for member in fleet.roster):
            begun = state.own.get("race") or begin(state.models, state.optimizer, len(fleet.roster))
            after, own["race"] = race(after, begun, fleet, round)
        return after._replace(own=own), info

    def collaborate(self, state: State, fleet: Fleet, round: Round) -> tuple[Info, Memory]:
        if state.own and (round.number - 1) % self.every:
            return _told(state.own), state.own
        n, parameters = len(fleet.roster), sum(state.models[name][0].numel() for name in fleet.trained)
        if self.correct and n * n * parameters > MOST_DIFFERENCES:
            raise InputError(
                f"correct keeps {n}² gradients of {parameters} numbers: too many for this machine; train without it"
            )
        setting = rule.Setting.of(fleet.roster, fleet.batch_size, parameters)
        look = fleet.look(state.models, round, self.samples, parameters if self.correct else self.sketch)
        memory: dict[str, Tensor] = state.own or {**rule.nothing(n, look.halves.shape[-1]), **correction.no_record(n)}
        if self.correct:
            memory = correction.compare_with_record(memory, look)
        memory, kappa = self._curvature(memory, look, state, fleet)
        after = rule.remember(memory, look, setting)
        # a stream shows the batches that it trains on: only the rounds before may weigh them
        known = {name: where_rows(setting.rarity == 0, memory[name], now) for name, now in after.items()}
        left = (look.norm.diagonal() / known["size"].exp()).clamp(max=1).nan_to_num(1.0)
        difference = rule.differences(known, setting, rule.noises(known, setting).fresh)
        corrected = correction.share(known, difference) if self.correct else torch.zeros(n, n, dtype=torch.float64)
        terms = rule.weigh_up(known, setting, kappa * left, corrected)  # with care while one's own gradient vanishes
        trust = rule.trust(after, look, setting, kappa)
        weights = trusted(rule.least_error(terms), trust)
        bias = torch.where(terms.allowed, terms.bias, torch.nan)
        told = {"weights": weights, "bias": bias, "cost": terms.cost, "trust": trust}
        if self.correct:
            heard = among_present(weights, round.present, fleet.roster.numbers)
            told["shift"] = correction.shift(heard, corrected, difference, known["size"])
        return _told(told), {**after, **told}

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
        return rule.curvature(memory, look, sketch(flat.shape[1], look.halves.shape[-1])(flat.double()), step)

    def direction(self, own: Memory, fleet: Fleet) -> Direction | None:
        if not self.correct:
            return None

        def corrected(models: Models, gradients: Models) -> Models:
            sizes = [models[name][0].numel() for name in fleet.trained]
            parts = dict(zip(fleet.trained, own["shift"].split(sizes, 1), strict=True))
            return {
                name: gradient - parts[name].reshape(gradient.shape).to(gradient.dtype) if name in parts else gradient
                for name, gradient in gradients.items()
            }

        return corrected

    def looking(self, round: Round, partners: int) -> int:
        """A gradient of every pair, and the models that updates do not send."""
        return 0 if (round.number - 1) % self.every else 2 * ordered_pairs(round) - partners


def _told(memory: Memory) -> Info:
    """What the last look has decided."""
    bias = memory["bias"]
    return Info(memory["weights"], (1 - bias).clamp(min=0), bias=bias, noise=memory["cost"], trust=memory["trust"])
