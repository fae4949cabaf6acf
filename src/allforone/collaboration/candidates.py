"""Of a crowd each client looks at few: those that promise most, their friends, and strangers, so that all are found.

What is known is kept for so many pairs only: a row has places, and `ids` says whose they are. Those looked at now come
first, the owner at the very first place; then the others by what they promise; who promises least is forgotten.
"""

import torch
from torch import Tensor

from ..problems.data import generator
from .similarity import Memory

#: Of the candidates, one half are the most promising, and a quarter friends of those; the rest are drawn from all.
PROMISING, FRIENDS = 0.5, 0.25
#: Pairs that are kept, in numbers of candidates.
KEPT = 2
#: Below this, nobody promises anything: no logarithm of 0.
LEAST_PROMISE = 1e-30


def places(clients: int, count: int) -> int:
    """How many pairs of each client are kept: all, where there are no more."""
    return min(clients, 1 + KEPT * count)


def nobody(clients: int, places: int) -> Memory:
    """Whose the places are before the first refresh: nobody's, but the first."""
    ids = torch.full((clients, places), -1)
    ids[:, 0] = torch.arange(clients)
    return {"ids": ids, "promise": torch.zeros(ids.shape, dtype=torch.float64)}


def choose(memory: Memory, present: Tensor, count: int, number: int) -> Tensor:
    """[N, 1 + count], the owner and whom it looks at in round `number`, all of them there; -1 where nobody is left."""
    ids, random = memory["ids"], generator("candidates", number)
    n, here = len(ids), present.nonzero().flatten()
    if not len(here):
        return torch.cat([torch.arange(n)[:, None], torch.full((n, count), -1)], 1)
    known = (ids >= 0) & present[ids] & (ids != torch.arange(n)[:, None])
    hope = torch.where(known, memory["promise"].clamp(min=LEAST_PROMISE).log(), -torch.inf)
    best = _drawn(hope, max(1, int(PROMISING * count)), random)
    friend = ids.gather(1, _drawn(hope, max(1, int(FRIENDS * count)), random))
    theirs = _drawn(hope[friend.flatten()], 1, random)
    friends = ids[friend.flatten()].gather(1, theirs).view_as(friend)
    anybody = here[torch.randint(len(here), (n, 2 * count + 8), generator=random)]
    return _without_repeats(torch.cat([ids.gather(1, best), friends, anybody], 1), present, count)


def _drawn(hope: Tensor, count: int, random: torch.Generator) -> Tensor:
    """[N, count], different places, drawn in proportion to e^hope (Gumbel's trick)."""
    luck = -(-torch.rand(hope.shape, generator=random, dtype=torch.float64).log()).log()
    return (hope + luck).topk(min(count, hope.shape[1]), 1).indices


def _without_repeats(wanted: Tensor, present: Tensor, count: int) -> Tensor:
    """The first `count` different ones of each row that are there, after the owner."""
    n = len(wanted)
    wanted = torch.cat([torch.arange(n)[:, None], wanted], 1)
    order = wanted.sort(dim=1, stable=True)
    again = torch.cat([torch.zeros(n, 1, dtype=torch.bool), order.values[:, 1:] == order.values[:, :-1]], 1)
    useless = torch.zeros_like(again).scatter(1, order.indices, again) | (wanted < 0) | ~present[wanted]
    useless[:, 0] = False
    first = useless.int().sort(dim=1, stable=True).indices[:, : 1 + count]
    found = torch.where(useless.gather(1, first), -1, wanted.gather(1, first))
    return torch.cat([found, torch.full((n, 1 + count - found.shape[1]), -1)], 1)


def arranged(memory: Memory, ids: Tensor) -> Memory:
    """The same memory with the places of `ids` first, empty where nothing is known of them."""
    old, promise = memory["ids"], memory["promise"]
    size = old.shape[1]
    same = (ids[:, :, None] == old[:, None]) & (ids >= 0)[:, :, None]  # [N, c, places]
    known, where = same.any(2), same.int().argmax(2)
    left = torch.where(same.any(1) | (old < 0), -1.0, promise)  # who is not looked at now, by promise
    rest = left.sort(dim=1, descending=True, stable=True)
    source = torch.cat([where, rest.indices], 1)[:, :size]
    filled = torch.cat([known, rest.values >= 0], 1)[:, :size]

    def moved(table: Tensor) -> Tensor:
        shape = (*source.shape, *[1] * (table.dim() - 2))
        taken = table.gather(1, source.view(shape).expand(*source.shape, *table.shape[2:]))
        return torch.where(filled.view(shape), taken, torch.zeros((), dtype=table.dtype))

    after = {name: moved(table) if table.dim() > 1 else table for name, table in memory.items()}
    everyone = torch.cat([ids, old.gather(1, rest.indices)], 1)[:, :size]
    used = torch.cat([ids >= 0, rest.values >= 0], 1)[:, :size]
    return {**after, "ids": torch.where(used, everyone, -1)}


def partners(weights: Tensor, itself: Tensor, count: int, number: int) -> Tensor:
    """Weights of at most `count` others, drawn so that their mean is `weights`; rows keep their sums.

    k is taken with probability min(1, count·w_k/Σw) and counts by the inverse of that, so that nobody is left out for
    ever. Each row is walked through once, in a random order, and hit at equal distances.
    """
    random = generator("partners", number)
    others = torch.where(itself, 0, weights)
    chance = _chances(others, count)
    order = torch.rand(chance.shape, generator=random, dtype=torch.float64).argsort(1)
    marks = chance.gather(1, order).cumsum(1) + torch.rand(len(chance), 1, generator=random, dtype=torch.float64)
    before = torch.cat([marks[:, :1] - chance.gather(1, order[:, :1]), marks[:, :-1]], 1)
    hit = torch.zeros_like(itself).scatter(1, order, marks.floor() > before.floor()) | (chance >= 1)
    taken = torch.where(hit & (chance > 0), others / chance.clamp(min=1e-300), 0)
    total, kept = others.sum(1, keepdim=True), taken.sum(1, keepdim=True)
    taken = torch.where(kept > 0, taken * total / kept.clamp(min=1e-300), taken)  # rounding alone
    return torch.where(itself, weights, taken)


def _chances(weights: Tensor, count: int) -> Tensor:
    """[N, c], min(1, a·w) with sums of `count`, or of all that have a weight."""
    sure = torch.zeros_like(weights, dtype=torch.bool)
    chance = torch.where(weights > 0, 1.0, 0.0).to(weights.dtype)
    crowded = (weights > 0).sum(1) > count
    for _ in range(count + 1):
        room = (count - sure.sum(1)).clamp(min=0)
        rest = torch.where(sure, 0, weights)
        share = rest * (room / rest.sum(1).clamp(min=1e-300))[:, None]
        over = (share >= 1) & ~sure
        if not over.any():
            break
        sure |= over
    return torch.where(crowded[:, None], torch.where(sure, 1.0, share), chance)
