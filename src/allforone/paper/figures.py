"""Figures 2 and 3: the synthetic problem in two and ten dimensions, and the real data sets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..reports import style
from ..reports.curves import curve
from ..reports.figures import RC
from ..reports.theory_figures import save
from ..runs import Comparison
from ..runs.quantities import EXCESS, LOSS, Quantity
from .experiments import AS_PUBLISHED, EXPERIMENTS

#: The title of each row of panels → what it shows of a problem.
Rows = dict[str, Callable[[Comparison], Quantity]]


def draw_synthetic(found: dict[str, Comparison], out: Path) -> list[Path]:
    return _draw(found, {"log₁₀ excess loss": lambda comparison: EXCESS}, out)


def draw_real(found: dict[str, Comparison], out: Path) -> list[Path]:
    """Test loss above, the problem's first metric below, as in the paper's figure 3 and its appendix."""
    rows: Rows = {
        "log₁₀ test loss": lambda comparison: LOSS,
        "test accuracy": lambda comparison: comparison.quantities[0],
    }
    return _draw(found, rows, out)


def _draw(found: dict[str, Comparison], panels: Rows, out: Path) -> list[Path]:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    every = (name for comparison in found.values() for name in comparison.algorithms)
    names = list(dict.fromkeys(name for name in every if name not in AS_PUBLISHED.values()))
    colours = style.colours(names)
    with rc_context(RC):
        rows, columns = len(panels), len(found)
        figure = Figure(
            figsize=(max(4.2, 2.9 * columns + 0.4), 2.6 * rows + 0.2 * -(-len(names) // 3) + 0.3), layout="constrained"
        )
        axes = figure.subplots(rows, columns, squeeze=False)
        for column, (experiment, comparison) in enumerate(found.items()):
            for line, quantity in zip(axes, panels.values(), strict=True):
                for name in (name for name in names if name in comparison.algorithms):
                    _line(line[column], comparison, name, quantity(comparison), colours[name])
            axes[0][column].set_title(EXPERIMENTS[experiment].title, fontsize=9)
            axes[-1][column].set_xlabel("rounds")
            for line in axes:
                line[column].xaxis.get_major_locator().set_params(integer=True)
        for line, title in zip(axes, panels, strict=True):
            line[0].set_ylabel(title)
        handles = {
            text: handle for axis in axes.flat for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=3 if columns < 4 else 4, fontsize=8
        )
        return save(figure, out)


def _line(axis: Any, comparison: Comparison, name: str, quantity: Quantity, colour: str) -> None:
    line = curve(comparison, name, quantity)
    mean, low, high = line.mean, line.mean - line.std, line.mean + line.std
    if quantity is LOSS:
        low = np.maximum(low, mean / 10)  # a loss less its deviation may be negative
        low, mean, high = (np.log10(np.clip(values, 1e-12, None)) for values in (low, mean, high))
    axis.plot(line.rounds, mean, style.linestyle(name), color=colour, label=style.label(name), linewidth=1.4)
    axis.fill_between(line.rounds, low, high, color=colour, alpha=0.12, linewidth=0)
