"""Similarity and noise from the update's own batches: no sample is drawn for them.

A missed partner costs little, a false one without bound. So what is unknown counts as different: the noise of the
estimate is a floor under the distance it is compared with, a client's own noise is the least that it believes of
others, and what a partner may add to a step is bounded by the step's own size.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from ..fleet import Fleet, Models, PairStatistics, Round
from .similarity import Estimate, Estimator, Memory, ordered_pairs

#: What is averaged over rounds, pair by pair.
SMOOTHED = ("distance", "norm", "noise", "length")
#: Half of a client's own noise is added to its squared gradient, so that r̂ stays defined near its optimum.
NOISE_FLOOR = 0.5
#: A gradient below this share of one's own squared length would only shorten the step, so it is no partner's.
IDLE = 0.01


@dataclass(frozen=True)
class UpdateBatches(Estimator):
    """Similarity and noise from the halves of the batches that are trained on anyway.

    Args:
        memory: how much of the past is kept at each refresh, at most; less while a client's gradient shrinks, since
            what was seen then tells less.
        every: rounds between two refreshes, each as dear as N² gradients of one batch.

    Example:
        >>> import allforone as afo
        >>> afo.AllForOne(estimator=afo.UpdateBatches(every=5)).estimator
        UpdateBatches(memory=0.9, every=5)
    """

    memory: float = 0.9
    every: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.memory < 1:
            raise InputError(f"memory is {self.memory}: must be at least 0 and below 1")
        if self.every < 1:
            raise InputError(f"every is {self.every}: must be a whole number of rounds, at least 1")

    def __call__(self, fleet: Fleet, models: Models, memory: Memory, round: Round) -> tuple[Estimate, Memory]:
        """r̂ and σ̂² know only the rounds before this one, so the weights do not depend on the batches they weigh."""
        memory = memory or _nothing(len(fleet.roster))
        r, variance = similarity_and_variance(memory)
        if self._refreshes(round):
            memory = remember(memory, fleet.compare(models, round), self.memory)
        return Estimate(r, variance, memory["trust"]), memory

    def messages(self, round: Round, partners: int) -> int:
        """A model and a gradient of the pairs without an update of their own; the others' answers serve twice."""
        return 2 * max(0, ordered_pairs(round) - partners) if self._refreshes(round) else 0

    def _refreshes(self, round: Round) -> bool:
        return (round.number - 1) % self.every == 0


def _nothing(n: int) -> Memory:
    table, row = torch.zeros(n, n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    tables = dict.fromkeys((*SMOOTHED, "seen"), table)
    rows = dict.fromkeys(("scale", "unit", "size", "size_seen"), row)
    return {**tables, **rows, "trust": table + 1}


def remember(memory: Memory, statistics: PairStatistics, kept: float | Tensor) -> Memory:
    """The smoothed statistics with those of now; a pair that was not asked together stays as it was."""
    assert statistics.noise is not None
    asked, here = statistics.distance.isfinite(), statistics.norm.diagonal().isfinite()
    own_noise, size = statistics.noise.diagonal().nan_to_num(), statistics.norm.diagonal().nan_to_num()
    scale = torch.where(memory["scale"] > 0, memory["scale"], size)
    unit = torch.where(scale > 0, scale, 1)[:, None]
    kept = progress(memory["unit"], scale)[:, None] * kept
    distance = statistics.distance - own_noise[:, None] - statistics.noise  # unbiased
    now = {
        "distance": bounded(distance, size),
        "norm": (size - own_noise)[:, None].expand_as(asked),
        "noise": statistics.noise,
        "length": statistics.norm,
    }
    after = {
        name: torch.where(asked, kept * memory[name] + (1 - kept) * (now[name] / unit).nan_to_num(), memory[name])
        for name in SMOOTHED
    }
    after["seen"] = torch.where(asked, kept * memory["seen"] + (1 - kept), memory["seen"])
    after["scale"] = torch.where(here, (scale + size) / 2, memory["scale"])
    after["unit"] = torch.where(here, scale, memory["unit"])
    after["size"] = torch.where(here, 0.7 * memory["size"] + 0.3 * size, memory["size"])
    after["size_seen"] = torch.where(here, 0.7 * memory["size_seen"] + 0.3, memory["size_seen"])
    reach = (after["size"] / after["size_seen"].clamp(min=1e-9))[:, None]
    beyond = statistics.distance - 2 * own_noise[:, None]  # an honest twin lies two noises away
    trust = torch.where(beyond > reach, reach / beyond, 1).sqrt()
    return {**after, "trust": torch.where(asked, trust, memory["trust"])}


def progress(before: Tensor, now: Tensor) -> Tensor:
    """[N], the share of its scale before that a client's gradient still has: what was seen then tells as much less."""
    return torch.where(before > 0, now / before.clamp(min=1e-300), 1).clamp(max=1)


def bounded(distance: Tensor, size: Tensor) -> Tensor:
    """D_ik ≥ −‖ḡ_i‖²: nobody saves up nearness by being noisy."""
    return torch.maximum(distance, -size[:, None])


def similarity_and_variance(memory: Memory) -> tuple[Tensor, Tensor]:
    """r̂_ik = (1 − D_ik⁺ / (n_i⁺ + ½ V_ii))₊ and σ̂²_ik = max(V_ik, V_ii).

    A pair never seen is not similar, nor is a gradient of no length: next to one's own noise it would seem so.
    """
    seen = memory["seen"]
    distance, norm, noise, length = (memory[name] / seen.clamp(min=1e-9) for name in SMOOTHED)
    own_noise = noise.diagonal()[:, None]
    against = norm.diagonal()[:, None].clamp(min=0) + NOISE_FLOOR * own_noise
    pulls = length > IDLE * length.diagonal()[:, None]
    r = torch.where((seen > 0) & (against > 0) & pulls, 1 - distance.clamp(min=0) / against.clamp(min=1e-300), 0)
    variance = torch.maximum(noise, own_noise)
    least = torch.where(variance.amax(1, keepdim=True) > 0, 1e-12 * variance.amax(1, keepdim=True), 1)
    return r.clamp(0, 1).fill_diagonal_(1), variance.clamp(min=least)
