"""Publication figures, as PNG and PDF, in one style."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..opening import to_write
from ..runs import Comparison, FinishedRun
from ..runs.tables import CROWD, Snapshot
from . import style
from .clusters import Blocks, find_clusters, mean_weights
from .curves import Array, curve

RC: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,
}


def draw_figures(comparison: Comparison, out: Path) -> list[Path]:
    """`curves` and, where similarity was estimated, `weights`; each as PNG and PDF."""
    return [*draw_curves(comparison, out), *draw_weights(comparison, out)]


def draw_curves(comparison: Comparison, out: Path) -> list[Path]:
    """The most telling quantity by round and by gradient sample, shaded by its standard deviation."""
    from matplotlib import rc_context  # slow to import, so only when something is drawn
    from matplotlib.figure import Figure

    quantity = comparison.quantities[0]
    colours = style.colours(comparison.algorithms)
    lines = {name: curve(comparison, name, quantity) for name in comparison.algorithms}
    with rc_context(RC):
        rows = -(-len(lines) // 4)
        figure = Figure(figsize=(8.4, 3.0 + 0.2 * rows), layout="constrained")
        axes = figure.subplots(1, 2, sharey=True)
        for name, line in lines.items():
            look = {"color": colours[name], "linestyle": style.linestyle(name), "label": style.label(name)}
            for axis, x in zip(axes, (line.rounds, line.samples), strict=True):
                axis.plot(x, line.mean, linewidth=1.6, **look)
                axis.fill_between(
                    x, line.mean - line.std, line.mean + line.std, color=colours[name], alpha=0.13, linewidth=0
                )
        axes[0].set(xlabel="round", ylabel=f"log₁₀ {quantity.title}" if quantity.powers else quantity.title)
        axes[1].set(xlabel="gradient samples per client, estimation included")
        if quantity.percent and not quantity.lower_is_better:
            after_the_first_rush = [float(line.mean[len(line.mean) // 6]) for line in lines.values()]
            least = min((value for value in after_the_first_rush if not math.isnan(value)), default=0.0)
            axes[0].set_ylim(max(0.0, least - 0.1), 1.01)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)), fontsize=8)
        return _save(figure, out / "curves")


def draw_weights(comparison: Comparison, out: Path) -> list[Path]:
    """Who listened to whom in the first rounds, half-way and at the end, clients by true cluster; of the first seed.

    Of a crowd, cells are not pairs of clients but of clusters, found ones where the true ones are not known.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    shown = [
        run for name in comparison.algorithms for run in comparison.of(name)[:1] if "similarity" in run.tables.names
    ]
    if not shown:
        return []
    with rc_context({**RC, "axes.grid": False, "axes.spines.top": True, "axes.spines.right": True}):
        figure = Figure(figsize=(6.6, 2.2 * len(shown) + 0.5), layout="constrained")
        axes = figure.subplots(len(shown), 3, squeeze=False)
        for line, run in zip(axes, shown, strict=True):
            last = len(run.tables) - 1
            shots = [
                run.tables[at] for at in (min(1, last), (last + 1) // 2, last)
            ]  # nothing is known in the very first
            crowd = len(shots[0].present) > CROWD
            grids = (_between_clusters if crowd else _between_clients)(shots, comparison.clusters)
            top = max(float(values.max()) for values in (grids if crowd else _weights(run)))
            for axis, shot, grid in zip(line, shots, grids, strict=True):
                image = axis.imshow(np.sqrt(grid), cmap="cividis", vmin=0, vmax=math.sqrt(top))
                axis.set(title=f"round {shot.number}", xticks=[], yticks=[])
            line[0].set_ylabel(style.label(run.algorithm))
            bar = figure.colorbar(image, ax=line, shrink=0.85)
            marks = [share * top for share in (0, 0.05, 0.25, 1)]
            bar.set_ticks([mark**0.5 for mark in marks], labels=[f"{mark:.2g}" for mark in marks])
            bar.set_label("weight given to a cluster" if crowd else "weight")
        return _save(figure, out / "weights")


def _weights(run: FinishedRun) -> Iterator[Array]:
    return (shot.values["weights"].numpy() for shot in run.tables)


def _between_clients(shots: list[Snapshot], clusters: list[int] | None) -> list[Array]:
    n = len(shots[0].present)
    order = sorted(range(n), key=lambda i: (clusters[i] if clusters else 0, i))
    return [shot.dense()[order][:, order].numpy() for shot in shots]


def _between_clusters(shots: list[Snapshot], clusters: list[int] | None) -> list[Array]:
    blocks = Blocks.of(find_clusters(mean_weights(shots)) if clusters is None else clusters)
    return [np.nan_to_num(blocks.weights(shot)) for shot in shots]


def _save(figure: Any, path: Path) -> list[Path]:
    paths = [path.with_suffix(".png"), path.with_suffix(".pdf")]
    for file in paths:
        figure.savefig(to_write(file))
    return paths
