"""What models are judged by, and how it is shown: the loss, its excess over the least possible, a run's metrics."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars
from torch import Tensor

from ..fleet import Evaluation

#: Smaller excess losses cannot be told from zero in float64.
LEAST_EXCESS = 1e-28
#: What stands in the place of a number that is not known.
UNKNOWN = "–"

#: name → how a metric is read, as config.yaml has it: `{"auc": {"lower_is_better": False, "percent": False}}`.
Readings = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Quantity:
    """One column of metrics.csv, and how tables, figures and pages show it."""

    name: str  #: of the column
    key: str  #: in summary.json
    head: str  #: of a table's column
    title: str  #: in figures
    lower_is_better: bool = False
    percent: bool = False  #: whether it is a share that is shown as a percentage
    digits: int = 3  #: after the decimal point
    logs: bool = False  #: whether it can be told on a log scale
    powers: bool = False  #: whether tables and figures have its logarithm, as of what shrinks by orders of magnitude

    @property
    def worst(self) -> str:
        """Which of several values is the worst: "max" or "min"."""
        return "max" if self.lower_is_better else "min"

    def shown(self, value: float | None) -> str:
        """As tables have it, where the head says that it is a percentage."""
        if value is None or not math.isfinite(value):
            return UNKNOWN
        return f"{100 * value if self.percent else value:.{self.digits}f}"

    def values(self, metrics: polars.DataFrame) -> polars.Series:
        """Its column, null where it is not known."""
        nothing = polars.Series(self.name, [None] * metrics.height, polars.Float64)
        return metrics.get_column(self.name, default=nothing)


LOSS = Quantity("loss", "test_loss", "loss", "test loss", lower_is_better=True, digits=2, logs=True)
EXCESS = Quantity(
    "excess_loss",
    "log10_excess_loss",
    "log10 excess",
    "excess loss",
    lower_is_better=True,
    digits=1,
    logs=True,
    powers=True,
)


def quantities(metrics: Readings | None) -> list[Quantity]:
    """All that may be known of a run with these metrics, the most telling first."""
    own = [_of_metric(name, **reading) for name, reading in (metrics or {}).items()]
    return [EXCESS, *own[:1], LOSS, *own[1:]]


def judged(evaluation: Evaluation, metrics: Readings | None) -> dict[Quantity, Tensor]:
    """What an evaluation tells: of every quantity that is known of anybody the values [N], NaN where it is not."""
    tensors = {LOSS.name: evaluation.loss, EXCESS.name: evaluation.excess, **evaluation.metrics}
    found = {quantity: tensors.get(quantity.name) for quantity in quantities(metrics)}
    return {quantity: values for quantity, values in found.items() if values is not None and not values.isnan().all()}


def _of_metric(name: str, lower_is_better: bool = False, percent: bool = False, digits: int = 3) -> Quantity:
    head = f"{name} %" if percent else name
    return Quantity(name, f"test_{name}", head, f"test {name}", lower_is_better, percent, digits)
