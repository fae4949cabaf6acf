"""From a look to weights: remember → weigh up bias and noise → least error → trust."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..fleet import Look, where_rows
from . import correction
from . import least_error as rule
from .similarity import Memory
from .weights import trusted


class Decision(NamedTuple):
    """What a look has decided, place by place."""

    ids: Tensor  #: [R, c], whose the places are; -1: nobody's
    weights: Tensor  #: [R, c]; rows sum to one
    bias: Tensor  #: [R, c], in units of S_i; NaN of who cannot be a partner
    cost: Tensor  #: [R, c], the error by noise of following k alone, in the same units
    trust: Tensor  #: [R, c]
    shift: Tensor  #: [R, P], what is taken off the mixed gradients; [R, 0] where nothing is corrected

    @classmethod
    def alone(cls, ids: Tensor, itself: Tensor) -> "Decision":
        """Before anything is seen."""
        unknown = torch.full(ids.shape, torch.nan, dtype=torch.float64)
        own = itself.double()
        return cls(ids.clone(), own, unknown, unknown.clone(), own.clone(), unknown[:, :0])


def decide(
    memory: Memory, look: Look, setting: rule.Setting, kappa: Tensor, correct: bool = False, walks: int | None = None
) -> tuple[Decision, Memory]:
    """Weights, and what is remembered, of which the first c places are those of the look.

    A stream shows the batches that it trains on: only the looks before may weigh them. walks: the look is at walks of
    so many updates, of which the weighted sum is the step; else gradients are asked for with these weights.
    """
    places = look.ids.shape[1]
    before = {name: table[:, :places] if table.dim() > 1 else table for name, table in memory.items()}
    if correct:
        before = correction.compare_with_record(before, look, setting)
    after = rule.remember(before, look, setting)
    streams = setting.own(setting.rarity) == 0
    known = {name: where_rows(streams, before[name], now) for name, now in after.items()}
    noise = rule.noises(known, setting)
    difference = rule.differences(known, setting, noise.own, noise.least)
    nothing = torch.zeros_like(look.distance)
    corrected = correction.share(known, difference, setting) if correct else nothing
    left = (setting.own(look.norm) / known["size"].exp()).clamp(max=1).nan_to_num(1.0)
    terms = rule.weigh_up(known, setting, kappa * left, corrected)  # with care while one's own gradient vanishes
    answered = setting.itself | look.distance.isfinite()
    terms = terms._replace(allowed=terms.allowed & answered)
    if look.added.any():
        weights = rule.least_error_in_private(terms, look, setting, kappa * left / known["size"].exp(), walks)
    else:
        least = rule.least_error(terms)
        weights = least if walks else rule.worth_asking(least, terms)
    trust = rule.trust(after, look, setting, kappa)
    heard = trusted(weights, trust, setting.itself)
    shift = correction.shift(heard, corrected, difference, known["size"]) if correct else nothing[:, :0]
    bias = torch.where(terms.allowed, terms.bias, torch.nan)
    after["promise"] = promise(after, setting, terms.cost)
    kept = {
        name: torch.cat([table, memory[name][:, places:]], 1) if table.dim() > 1 else table
        for name, table in after.items()
    }
    return Decision(look.ids, heard, bias, terms.cost, trust, shift), kept


def promise(memory: Memory, setting: rule.Setting, cost: Tensor) -> Tensor:
    """[R, c], noise / (noise + bias²), were all that may be chance taken off the bias: a newcomer is given hope."""
    noise = rule.noises(memory, setting)
    difference = rule.differences(memory, setting, noise.own, noise.least)
    drawn = memory["spread"] / memory["weight"].clamp(min=1e-150).square()
    excess = (difference.length - difference.chance - (1 - rule.believed(memory, setting)) * drawn).clamp(min=0)
    own = setting.own(cost)[:, None]
    return torch.where(memory["seen"] > 0, own / (own + excess), 0).nan_to_num(0.0)


def by_client(table: Tensor, ids: Tensor, empty: float) -> Tensor:
    """[N, c] → [N, N], client k in column k; `empty` of whom no place is."""
    wide = torch.full((len(ids), len(ids)), empty, dtype=table.dtype)
    rows, places = (ids >= 0).nonzero(as_tuple=True)
    wide[rows, ids[rows, places]] = table[rows, places]
    return wide
