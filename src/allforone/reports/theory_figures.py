"""Figures of the theory: the sizes of sufficient clusters, and a run next to its bound."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import InputError
from ..opening import to_write
from ..theory import Trajectory
from .figures import RC

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#E69F00", "#D55E00", "#009E73")  # the paper's blue, orange, red and green


def save(figure: "Figure", out: Path) -> list[Path]:
    """As PNG and PDF; `out` may end in either, or in neither."""
    stem = out.with_suffix("") if out.suffix in (".png", ".pdf") else out
    if not stem.name:
        raise InputError(f"'{out}' is a folder: give the figure a name in it, such as {out / 'figure.png'}")
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(stem.name + suffix) for suffix in (".png", ".pdf")]
    for path in paths:
        figure.savefig(to_write(path))
    return paths


def draw_cluster_sizes(epsilon: Tensor, sizes: dict[str, dict[float, Tensor]], clients: int, out: Path) -> list[Path]:
    """One panel per title: the size of a sufficient cluster by precision, a line for every spread v."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(RC):
        figure = Figure(figsize=(8.4, 3.0), layout="constrained")
        axes = figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0]
        for axis, (title, lines) in zip(axes, sizes.items(), strict=True):
            for place, (spread, size) in enumerate(lines.items()):
                colour = COLOURS[place % len(COLOURS)]
                axis.plot(epsilon, size, color=colour, linewidth=1.8, drawstyle="steps-mid", label=f"v = {spread:g}")
            axis.set(
                xscale="log",
                title=title,
                xlabel="precision ε (training runs to the right)",
                xlim=(float(epsilon.max()), float(epsilon.min())),
                ylim=(0, clients + 1),
            )
            axis.set_yticks([1, *range(5, clients + 1, 5)])
        axes[0].set_ylabel("clients in the sufficient cluster")
        axes[-1].legend(loc="lower left")
        return save(figure, out)


def draw_bound(run: Trajectory, title: str, out: Path) -> list[Path]:
    """Left: excess loss and bound, means over clients. Right: how much noise collaboration leaves, medians."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(RC):
        figure = Figure(figsize=(8.4, 3.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        updates = range(len(run.excess))
        left.plot(updates, run.bound.mean(1), "--", color="#444444", label="theorem 1 along the run")
        left.plot(updates, run.sharper.mean(1), ":", color="#0072B2", linewidth=2, label="sharper, by direction")
        left.plot(updates, run.excess.mean(1), color="#B2182B", label="measured")
        spread = torch.quantile(run.excess, torch.tensor([0.1, 0.9], dtype=torch.float64), dim=1)
        left.fill_between(
            updates, spread[0], spread[1], color="#B2182B", alpha=0.13, linewidth=0, label="clients, 10 to 90 %"
        )
        left.set(yscale="log", xlabel="update", ylabel="excess loss, mean over clients", title=title)
        left.legend(fontsize=8)
        right.axhline(1, color="#E69F00", linewidth=1.2, label="alone")
        lines: dict[str, tuple[Tensor, dict[str, Any]]] = {
            "of this run": (run.remaining, {"color": "#B2182B"}),
            "sufficient variance": (run.sufficient, {"color": "#009E73", "linestyle": "--"}),
            "effective variance, if similarity were known": (run.effective, {"color": "#444444", "linestyle": ":"}),
        }
        for label, (variance, look) in lines.items():
            share = (variance / run.alone).median(1).values
            right.plot(range(1, len(share) + 1), share, label=label, linewidth=1.6, **look)
        right.set(yscale="log", xlabel="update", ylabel="noise / noise alone, median", title="noise at equal progress")
        right.set_ylim(top=max(5.0, 1.5 * right.get_ylim()[1]))  # room for the legend
        right.legend(fontsize=8, loc="upper right")
        return save(figure, out)
