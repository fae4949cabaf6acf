"""The three step sizes of theorem 2, as numbers and as torch schedulers for any run (`schedule: horizon`).

All keep the step-size condition η ≤ 1/β. Where weights sum to more than one, All-for-one shortens a client's step by
itself (`step_scale`); or give the largest sum as `weight_sum`.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler

from ..errors import InputError

Number = float | Tensor


def double(value: Number) -> Tensor:
    return torch.as_tensor(value, dtype=torch.float64)


def horizon_step(
    start: Number, updates: Number, smoothness: float, convexity: float, variance: Number, weight_sum: Number = 1.0
) -> Tensor:
    """η = ln(2Tμ²ε₀/(βσ²))/(μT), which minimises e^(−ημT) ε₀ + ηβσ²/(2μ), kept within [0, 1/(β Σα)]."""
    updates = double(updates)
    best = (2 * updates * convexity**2 * start / (smoothness * double(variance))).log() / (convexity * updates)
    return torch.minimum(best.clamp(min=0), 1 / (smoothness * double(weight_sum)))


def decreasing_offset(smoothness: float, convexity: float, factor: float = 2.0, weight_sum: Number = 1.0) -> Tensor:
    """γ = Cβ Σα/μ − 1: the least with which C/(μ(γ+t)) ≤ 1/(β Σα) from t = 1 on."""
    if not factor > 1:
        raise InputError(f"the factor C of a decreasing step is {factor}: must be above 1, such as 2")
    return factor * smoothness * double(weight_sum) / convexity - 1


def decreasing_step(
    number: Number, smoothness: float, convexity: float, factor: float = 2.0, weight_sum: Number = 1.0
) -> Tensor:
    """η_t = C/(μ(γ+t)), of update number t = 1, 2, …"""
    offset = decreasing_offset(smoothness, convexity, factor, weight_sum)
    return factor / (convexity * (offset + double(number)))


def nonconvex_step(
    start: Number, updates: Number, smoothness: float, variance: Number, weight_sum: Number = 1.0
) -> Tensor:
    """η = min(√(2ε₀/(Tβσ²)), 1/(β Σα)), which minimises the bound of theorem 3."""
    best = (2 * double(start) / (double(updates) * smoothness * double(variance))).sqrt()
    return torch.minimum(best, 1 / (smoothness * double(weight_sum)))


class Constant(LRScheduler):
    """The optimizer's own step size, refused where it breaks η ≤ 1/β; β may be unknown."""

    def __init__(self, optimizer: torch.optim.Optimizer, smoothness: float | None = None, last_epoch: int = -1) -> None:
        for group in optimizer.param_groups:
            if smoothness and group["lr"] > (1 + 1e-9) / smoothness:
                raise InputError(
                    f"lr is {float(group['lr']):g}, above 1/β = {1 / smoothness:g} (β = {smoothness:g}): "
                    "the step-size condition of the theory asks for a smaller one"
                )
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | Tensor]:
        return [group["lr"] for group in self.optimizer.param_groups]


class Horizon(LRScheduler):
    """`horizon_step` for a run of `updates` updates, whatever step size the optimizer was made with."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        updates: int,
        smoothness: float,
        convexity: float,
        variance: float,
        excess: float,
        last_epoch: int = -1,
    ) -> None:
        self.step_size = float(horizon_step(excess, updates, smoothness, convexity, variance))
        if self.step_size == 0:
            raise InputError(
                f"no horizon step for {updates} updates: the noise {variance:g} outweighs the excess loss {excess:g} "
                "to be gained (2Tμ²ε₀ ≤ βσ²); run more rounds, with larger batches, or with schedule: decreasing"
            )
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | Tensor]:
        return [self.step_size for _ in self.optimizer.param_groups]


class Decreasing(LRScheduler):
    """`decreasing_step`: a round has the step size of its first update; `inner` updates make a round."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        smoothness: float,
        convexity: float,
        factor: float = 2.0,
        inner: int = 1,
        last_epoch: int = -1,
    ) -> None:
        self.factor, self.convexity, self.inner = factor, convexity, inner
        self.offset = float(decreasing_offset(smoothness, convexity, factor))
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | Tensor]:
        number = self.last_epoch * self.inner + 1
        return [self.factor / (self.convexity * (self.offset + number)) for _ in self.optimizer.param_groups]


#: The scheduler of each schedule, by its name.
SCHEDULES: dict[str, type[LRScheduler]] = {"constant": Constant, "horizon": Horizon, "decreasing": Decreasing}


def constants_of(name: str) -> dict[str, bool]:
    """The constants of a problem that a schedule takes, and whether it can do without."""
    parameters = inspect.signature(SCHEDULES[name]).parameters
    return {
        key: value.default is not value.empty
        for key, value in parameters.items()
        if key not in ("optimizer", "updates", "inner", "last_epoch")
    }


def scheduler(name: str, constants: dict[str, Any], updates: int, inner: int) -> Callable[..., LRScheduler]:
    """A function from a torch optimizer to its scheduler, for a run of `updates` updates, `inner` in each round."""
    length: dict[str, Any] = {"horizon": {"updates": updates}, "decreasing": {"inner": inner}}.get(name, {})
    return partial(SCHEDULES[name], **constants, **length)
