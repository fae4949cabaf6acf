"""What algorithms read off models and answers before they decide."""

import torch
from torch import Tensor

from ..collaboration import least_error as rule
from ..fleet import Fleet, Models, Round, double, sketch, where_rows
from .base import State


def parameters(state: State, fleet: Fleet) -> int:
    """P, the numbers of a model that are trained."""
    return sum(state.models[name][0].numel() for name in fleet.trained)


def flat(models: Models, trained: list[str]) -> Tensor:
    """[N, P], all that is trained."""
    return torch.cat([models[name].flatten(1) for name in trained], 1)


def points(models: Models, fleet: Fleet, round: Round) -> Tensor:
    """[N, P], all that is trained, in double precision; 0 of the absent, of whose models nobody hears."""
    return where_rows(round.present, double(flat(models, fleet.trained)), torch.zeros((), dtype=torch.float64))


def asked(ids: Tensor, round: Round) -> int:
    """How many questions those present ask each other; ids: [N, c], whom each asks."""
    here = (ids >= 0) & round.present[ids] & (ids != torch.arange(len(ids))[:, None])
    return int((here & round.present[:, None]).sum())


def bent(
    seen: dict[str, Tensor], ids: Tensor, halves: Tensor, state: State, fleet: Fleet, step: float
) -> dict[str, Tensor]:
    """What is known, with how gradients, `step` times the halves, bend between the models, where β is not known."""
    if fleet.smoothness is not None:
        return seen
    points = flat(state.models, fleet.trained)
    short = sketch(points.shape[1], halves.shape[3])(double(points)).cpu()
    return rule.bend(seen, ids, halves, short, step)


def curvature(seen: dict[str, Tensor], state: State, fleet: Fleet) -> Tensor:
    """[N], κ for ηβ: known, seen (NaN: not yet), or 1 where the step does not grow with the gradient, as of Adam."""
    step, ones = state.optimizer.step_size, torch.ones(len(fleet.roster), dtype=torch.float64)
    if step is None:
        return ones
    return rule.curvature(seen) if fleet.smoothness is None else (step * fleet.smoothness * ones).clamp(max=1)
