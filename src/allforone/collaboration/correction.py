"""Partners whose difference is known still lower the noise: Σ_k w_ik (g_k − s_ik c_ik) in place of Σ_k w_ik g_k.

c_ik is the mean of the differences g_k − g_i at θ_i seen so far. It is taken off as far as it stands out of chance and
as far as it has foretold the differences of later rounds: where they move with the models, nothing is corrected.
"""

import torch
from torch import Tensor

from ..fleet import Look
from .least_error import Difference, Setting
from .similarity import Memory

#: How much of the record of what was foretold is kept at each refresh.
RECORD_KEPT = 0.9
#: A correction must stand so far out of chance.
CERTAIN = 4


def no_record(n: int, places: int) -> Memory:
    """What is remembered of foretold differences before the first refresh."""
    return {name: torch.zeros(n, places, dtype=torch.float64) for name in ("came", "foretold")}


def compare_with_record(memory: Memory, look: Look, setting: Setting) -> Memory:
    """Σ⟨x, c⟩ and Σ‖c‖² over the refreshes: what came along what was foretold, and how long that was.

    The noise of x is new, so that the ratio of the two is 1 on average where differences stay as they are.
    """
    mean = look.halves.mean(2)
    x = mean - setting.own(mean)[:, None]
    unit = memory["size"].exp()[:, None]
    c = memory["difference"] / memory["weight"].clamp(min=1e-150)[..., None] * unit.sqrt()[..., None]
    known = x.isfinite().all(2) & (memory["weight"] > 0)
    now = {"came": (x * c).sum(2) / unit, "foretold": c.square().sum(2) / unit}
    return {
        **memory,
        **{
            name: torch.where(known, RECORD_KEPT * memory[name] + t.nan_to_num(), memory[name])
            for name, t in now.items()
        },
    }


def share(memory: Memory, difference: Difference, setting: Setting) -> Tensor:
    """s_ik = (1 − 4 chance/‖c_ik‖²)₊, at most the share of the foretold that came."""
    certain = (1 - CERTAIN * difference.chance / difference.length.clamp(min=1e-300)).clamp(min=0)
    kept_word = (memory["came"] / memory["foretold"].clamp(min=1e-300)).clamp(0, 1)
    return torch.where(setting.itself, 0, certain.minimum(kept_word))


def shift(weights: Tensor, corrected: Tensor, difference: Difference, size: Tensor) -> Tensor:
    """[N, P], Σ_k w_ik s_ik c_ik: what is taken off the mixed gradients; size: [N], ln S_i."""
    return torch.einsum("ik,ikp->ip", weights * corrected, difference.mean) * (size / 2).exp()[:, None]
