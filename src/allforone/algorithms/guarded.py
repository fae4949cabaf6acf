"""A guard for any algorithm: beside it every client trains alone, and is given whichever of the two models is better.

The two models of a client differ by collaboration only: they start at one point and see the same batches. Their losses
on the same parts of data that neither was trained on differ by d_j; if the whole 95 % interval of the mean of d says
that collaboration hurts, the client is given its local model. Both train on, so that the choice can change at every
round; a mistaken one costs little, since it is between models that can hardly be told apart.
"""

from dataclasses import dataclass
from typing import Any, TypedDict

import torch
from torch import Tensor

from ..fleet import Fleet, Models, Optimizer, Round, where_rows
from .base import Around, Info, State, Verdict, advance
from .local import Local

#: The confidence with which collaboration must be seen to hurt.
SURE = 0.95
#: The latest differences of a client that are looked at.
KEPT = 20
#: Differences that are needed before anything is said.
LEAST = 5


class Own(TypedDict):
    together: Models  #: those of the algorithm
    inner: Any  #: what the algorithm remembers of each client
    alone: Models
    alone_optimizer: Optimizer
    differences: Tensor  #: [N, KEPT], NaN where there are fewer


@dataclass(frozen=True)
class Guarded(Around):
    """Costs one more gradient per client and update, and two evaluations of new data per round; no more samples."""

    def init(self, models: Models, optimizer: Optimizer) -> State:
        n = len(next(iter(models.values())))
        inner = self.algorithm.init(models, optimizer)
        differences = torch.full((n, KEPT), torch.nan, dtype=torch.float64)
        return _joined(inner, inner, State(models, optimizer), differences)

    def step(self, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
        own: Own = state.own
        before = State(own["together"], state.optimizer, own["inner"], state.common)
        together, info = advance(self.algorithm, before, fleet, round)
        alone, _ = advance(Local(), State(own["alone"], own["alone_optimizer"]), fleet, round)
        (losses, held), (losses_alone, _) = (fleet.new_losses(s.models, round) for s in (together, alone))
        fresh = relative_difference(losses, losses_alone)
        differences = latest(own["differences"], fresh, held, round.present)
        verdict = judge(differences)
        given = {
            name: where_rows(verdict.alone, alone.models[name], shared) for name, shared in together.models.items()
        }
        return _joined(together._replace(models=given), together, alone, differences), info._replace(verdict=verdict)


def _joined(given: State, together: State, alone: State, differences: Tensor) -> State:
    """The state of a guarded run: the models given, and beside them those of both."""
    return given._replace(
        own=Own(
            together=together.models,
            inner=together.own,
            alone=alone.models,
            alone_optimizer=alone.optimizer,
            differences=differences,
        )
    )


def relative_difference(together: Tensor, alone: Tensor) -> Tensor:
    """d_j = (ℓ_j − ℓ'_j) / mean of both over all j: free of the loss's scale, which shrinks as the models learn.

    A loss that is not finite counts as much worse than one that is.
    """
    both = torch.where(together.isfinite() & alone.isfinite(), (together + alone) / 2, torch.nan)
    scale = both.nanmean(1, keepdim=True).abs()
    difference = torch.where(scale != 0, (together - alone) / scale, 0 * (together - alone))
    difference = torch.where(alone.isfinite() & ~together.isfinite(), 2.0, difference)
    return torch.where(together.isfinite() & ~alone.isfinite(), -2.0, difference)


def latest(differences: Tensor, fresh: Tensor, held: Tensor, present: Tensor) -> Tensor:
    """Each client's last KEPT differences. Those of a stream's batches gather over the rounds; those of held-out data
    take the place of what the same data said before; of who is absent, all stay as they were."""
    rows = []
    for before, now, whole, here in zip(differences, fresh, held, present, strict=True):
        past = torch.full_like(before, torch.nan) if whole else before
        rows.append(torch.cat([past, now[~now.isnan()]])[-KEPT:] if here else before)
    return torch.stack(rows)


def judge(differences: Tensor) -> Verdict:
    """The paired interval of Student: mean ± t s/√n."""
    from scipy.special import stdtrit  # type: ignore[import-untyped]  # scipy.stats takes longer to import than torch

    count = (~differences.isnan()).sum(1)
    mean = differences.nanmean(1)
    deviation = (differences - mean[:, None]).square().nansum(1) / (count - 1).clamp(min=1)
    quantile = torch.as_tensor(stdtrit((count - 1).clamp(min=1).numpy(), (1 + SURE) / 2))
    margin = torch.where(count >= LEAST, quantile * (deviation / count.clamp(min=1)).sqrt(), torch.inf)
    gain = (-mean).nan_to_num(0.0)
    return Verdict(gain, margin, gain + margin < 0)
