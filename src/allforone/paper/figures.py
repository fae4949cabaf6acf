"""Figures 2 and 3: the synthetic problem in two and ten dimensions, and the real data sets."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..reports import style
from ..reports.curves import QUANTITIES, curve
from ..reports.figures import RC
from ..reports.theory_figures import save
from ..runs import Comparison
from .experiments import EXPERIMENTS


def draw_synthetic(found: dict[str, Comparison], out: Path) -> list[Path]:
    return _draw(found, ["log10_excess_loss"], out)


def draw_real(found: dict[str, Comparison], out: Path) -> list[Path]:
    """Test loss above, accuracy below, as in the paper's figure 3 and its appendix."""
    return _draw(found, ["log10_loss", "accuracy"], out)


def _draw(found: dict[str, Comparison], quantities: Sequence[str], out: Path) -> list[Path]:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    names = list(
        dict.fromkeys(name for comparison in found.values() for name in comparison.algorithms if ":" not in name)
    )
    colours = style.colours(names)
    with rc_context(RC):
        rows, columns = len(quantities), len(found)
        figure = Figure(
            figsize=(max(4.2, 2.9 * columns + 0.4), 2.6 * rows + 0.2 * -(-len(names) // 3) + 0.3), layout="constrained"
        )
        axes = figure.subplots(rows, columns, squeeze=False)
        for column, (experiment, comparison) in enumerate(found.items()):
            for line, quantity in zip(axes, quantities, strict=True):
                for name in (name for name in names if name in comparison.algorithms):
                    _line(line[column], comparison, name, quantity, colours[name])
            axes[0][column].set_title(EXPERIMENTS[experiment].title, fontsize=9)
            axes[-1][column].set_xlabel("rounds")
            for line in axes:
                line[column].xaxis.get_major_locator().set_params(integer=True)
        for line, quantity in zip(axes, quantities, strict=True):
            line[0].set_ylabel("log₁₀ test loss" if quantity == "log10_loss" else QUANTITIES[quantity][0])
        handles = {
            text: handle for axis in axes.flat for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=3 if columns < 4 else 4, fontsize=8
        )
        return save(figure, out)


def _line(axis: Any, comparison: Comparison, name: str, quantity: str, colour: str) -> None:
    line = curve(comparison, name, "loss" if quantity == "log10_loss" else quantity)
    mean, std = np.array(line.mean), np.array(line.std)
    low, high = mean - std, mean + std
    if quantity == "log10_loss":
        low = np.maximum(low, mean / 10)  # a loss less its deviation may be negative
        low, mean, high = (np.log10(np.clip(values, 1e-12, None)) for values in (low, mean, high))
    dashes = "--" if name == "oracle" else "-"
    axis.plot(line.rounds, mean, dashes, color=colour, label=style.label(name), linewidth=1.4)
    axis.fill_between(line.rounds, low, high, color=colour, alpha=0.12, linewidth=0)
