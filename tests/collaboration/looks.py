"""Looks at clients whose gradients are known, and what the rule remembers of them."""

import torch

from allforone.collaboration import least_error as rule
from allforone.fleet import Look, Member, Roster, everybody


def looked(a, b, read=16.0):
    """A look from halves [N, N, P] that are not sketched."""
    mean = (a + b) / 2
    own = mean.diagonal().T[:, None]
    tables = [v.square().sum(2) for v in (mean - own, mean, (a - b) / 2)]
    return Look(
        everybody(len(a)),
        *tables,
        torch.stack([a, b], 2),
        torch.full(tables[0].shape, read).double(),
        torch.zeros_like(tables[0]),
    )


def setting_of(sizes, parameters=20, batch=8, updates=1):
    """Infinite sizes are those of streams."""
    roster = Roster(
        Member(None, 1, None, stream=True) if size == torch.inf else Member(None, size, None) for size in sizes
    )
    return rule.Setting.of(roster, batch, parameters, roster.numbers, everybody(len(roster)), updates)


def remembered(looks, setting):
    memory = rule.nothing(*setting.batch.shape, looks[0].halves.shape[-1])
    for look in looks:
        memory = rule.remember(memory, look, setting)
    return memory


def each(value, n):
    return torch.full((n,), value, dtype=torch.float64)


def halves(gradients, noise, seed, count=12):
    """Looks at clients whose true gradient at every model is gradients[k]."""
    random = torch.Generator().manual_seed(seed)
    n, p = gradients.shape

    def half():
        return gradients.expand(n, n, p) + noise * torch.randn(n, n, p, generator=random, dtype=torch.float64)

    return [looked(half(), half()) for _ in range(count)]
