"""What a model is judged by besides its loss: a function of all outputs and targets of a client's test data."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from ..errors import InputError
from .tree import Tree, leaves

#: The columns that every metrics.csv has of itself, so that no metric may take their names.
RESERVED = (
    *("round", "client", "loss", "excess_loss", "weight_sum", "collaborators", "step_scale", "present", "samples"),
    *("seconds", "refused", "messages", "bytes", "gain", "gain_margin", "alone", "epsilon", "held_out"),
)


@dataclass(frozen=True)
class Metric:
    """A function of a client's whole test data, and how its value is read.

    Args:
        function: (outputs, targets) → a number; it sees all samples of a client at once, in evaluation mode.
        lower_is_better: its direction; by default higher is better.
        percent: whether it is a share that is shown as a percentage.
        digits: shown after the decimal point; by default 1 of a percentage, else 3.

    Example:
        >>> import torch
        >>> wrong = Metric(lambda output, target: (output.argmax(1) != target).double().mean(), lower_is_better=True)
        >>> wrong(torch.eye(4), torch.tensor([0, 1, 2, 2]))
        0.25
    """

    function: Callable[[Tree, Tree], Tensor | float]
    lower_is_better: bool = False
    percent: bool = False
    digits: int | None = None

    def __post_init__(self) -> None:
        if self.digits is None:
            object.__setattr__(self, "digits", 1 if self.percent else 3)

    def __call__(self, output: Tree, target: Tree) -> float:
        return float(self.function(output, target))


def named(metrics: Mapping[str, Metric | Callable[[Tree, Tree], Tensor | float]]) -> dict[str, Metric]:
    """The same metrics, of which plain functions are made metrics where higher is better."""
    found = {}
    for name, metric in metrics.items():
        if not isinstance(name, str) or name in RESERVED or not re.fullmatch(r"[^,\"\x00-\x1f]+", name):
            taken = f"without commas, quotes and line breaks, and none of {', '.join(RESERVED)}"
            raise InputError(f"metrics: {name!r} cannot be a metric's name; give one {taken}")
        if not callable(metric):
            raise InputError(f"metrics: {name} is {metric!r}: give a function of (outputs, targets), or afo.Metric(…)")
        found[name] = metric if isinstance(metric, Metric) else Metric(metric)
    return found


def _share_right(output: Tree, target: Tensor) -> Tensor:
    return (leaves(output)[0].argmax(1) == target).double().mean()


#: The share of samples whose largest output is the target class; of several outputs, the first tells.
accuracy = Metric(_share_right, percent=True)
