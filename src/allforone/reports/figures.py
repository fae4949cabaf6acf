"""Publication figures, as PNG and PDF."""

from pathlib import Path
from typing import Any

import numpy as np

from ..runs import Comparison
from . import style
from .curves import QUANTITIES, curve, quantities

RC: dict[Any, Any] = {
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25,
    "legend.frameon": False, "figure.dpi": 100, "savefig.dpi": 200, "pdf.fonttype": 42,
}


def draw_curves(comparison: Comparison, out: Path) -> list[Path]:
    """The most telling quantity by round and by gradient sample, shaded by its standard deviation."""
    from matplotlib import rc_context  # slow to import, so only when something is drawn
    from matplotlib.figure import Figure

    quantity = quantities(comparison)[0]
    title, lower = QUANTITIES[quantity]
    colours = style.colours(comparison.algorithms)
    with rc_context(RC):
        figure = Figure(figsize=(8.4, 3.2), layout="constrained")
        axes = figure.subplots(1, 2, sharey=True)
        for name in comparison.algorithms:
            line = curve(comparison, name, quantity)
            mean, std = np.array(line.mean), np.array(line.std)
            dashes = "--" if name == "oracle" else "-"
            for axis, x in zip(axes, (line.rounds, line.samples), strict=True):
                axis.plot(x, mean, dashes, color=colours[name], label=style.label(name), linewidth=1.6)
                axis.fill_between(x, mean - std, mean + std, color=colours[name], alpha=0.13, linewidth=0)
        axes[0].set(xlabel="round", ylabel=title)
        axes[1].set(xlabel="gradient samples per client, estimation included")
        if quantity == "accuracy":
            means = [curve(comparison, name, quantity).mean for name in comparison.algorithms]
            axes[0].set_ylim(max(0.0, min(mean[len(mean) // 6] for mean in means) - 0.1), 1.01)  # not the first rush
        axes[0].legend(loc="lower right" if not lower else "lower left", fontsize=8)
        paths = [out / "curves.png", out / "curves.pdf"]
        for path in paths:
            figure.savefig(path)
    return paths
