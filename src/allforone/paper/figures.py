"""Figures 2 and 3: the synthetic problem in two and ten dimensions, and the real data sets; from summaries of runs."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..reports import style
from ..reports.curves import Array
from ..reports.figures import RC
from ..reports.theory_figures import save
from ..runs.quantities import EXCESS, LOSS, Quantity, quantities
from .experiments import AS_PUBLISHED, EXPERIMENTS
from .scores import Summary

#: What runs are drawn against → the column of a curve, what an axis calls it, and the unit.
AXES = {
    "rounds": ("round", "rounds", 1.0),
    "samples": ("samples", "gradient samples per client", 1.0),
    "bytes": ("bytes", "megabytes sent by all", 1e6),
}

#: By experiment, the summaries of all its runs.
Found = dict[str, list[Summary]]


class Row(NamedTuple):
    """Of panels, one for each experiment."""

    title: str
    quantity: Callable[[Summary], Quantity]
    published: bool = False  #: whether algorithms are shown as the paper's authors ran them
    late: bool = False  #: whether the first tenth of the runs, in which all come from chance, may leave the panel


class Line(NamedTuple):
    """Mean and standard deviation over clients and seeds."""

    x: Array
    mean: Array
    std: Array


def draw_synthetic(found: Found, out: Path, by: str = "rounds") -> list[Path]:
    """Ours, and below it what the paper's authors ran, where that was run."""
    rows = [Row("log₁₀ excess loss", lambda run: EXCESS)]
    if any(_is_variant(run["algorithm"]) for runs in found.values() for run in runs):
        rows.append(Row("log₁₀ excess loss, as published", lambda run: EXCESS, published=True))
    return _draw(found, rows, out, by)


def draw_real(found: Found, out: Path, by: str = "rounds") -> list[Path]:
    """Test loss above, the problem's first metric below, as in the paper's figure 3 and its appendix."""
    rows = [
        Row("log₁₀ test loss", lambda run: LOSS),
        Row(
            "test accuracy",
            lambda run: next(q for q in quantities(run["config"]["metrics"]) if q is not EXCESS),
            late=True,
        ),
    ]
    return _draw(found, rows, out, by)


def _draw(found: Found, rows: Sequence[Row], out: Path, by: str) -> list[Path]:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    every = (run["algorithm"] for runs in found.values() for run in runs)
    names = list(dict.fromkeys(name for name in every if not _is_variant(name)))
    colours = style.colours(names)
    with rc_context(RC):
        columns = len(found)
        named = min(columns + 1, 4)  # in a line of the legend, which is no wider than the panels
        height = 2.6 * len(rows) + 0.2 * -(-len(names) // named) + 0.3
        figure = Figure(figsize=(max(4.2, 2.9 * columns + 0.4), height), layout="constrained")
        axes = figure.subplots(len(rows), columns, squeeze=False)
        for column, (experiment, runs) in enumerate(found.items()):
            for line, row in zip(axes, rows, strict=True):
                for name in names:
                    if shown := _runs_of(name, runs, row.published):
                        _plot(line[column], shown, row.quantity(shown[0]), by, name, colours[name])
                _lay_out(line[column], by)
                if row.late:
                    show_what_is_late(line[column])
            axes[0][column].set_title(EXPERIMENTS[experiment].title, fontsize=9)
            axes[-1][column].set_xlabel(AXES[by][1])
        for line, row in zip(axes, rows, strict=True):
            line[0].set_ylabel(row.title)
        handles = _handles(axes.flat)
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=named, fontsize=8)
        return save(figure, out)


def _handles(axes: Iterable[Any]) -> dict[str, Any]:
    """One for each algorithm, whichever panels it is in."""
    each = (zip(*axis.get_legend_handles_labels(), strict=True) for axis in axes)
    return {text: handle for handles in each for handle, text in handles}


def _is_variant(name: str) -> bool:
    return name in AS_PUBLISHED.values()


def _runs_of(name: str, runs: Sequence[Summary], published: bool) -> list[Summary]:
    """As the paper's authors ran it, the variant that there is; the oracle and Local were theirs as they are ours, and
    our own All-for-one is not in the paper."""
    if published and name == "all-for-one":
        return []
    theirs = [run for run in runs if run["algorithm"] == AS_PUBLISHED.get(name)] if published else []
    return theirs or [run for run in runs if run["algorithm"] == name]


def line_of(runs: Sequence[Summary], quantity: Quantity, by: str) -> Line:
    """Over clients and seeds. All runs of an algorithm have as many clients, so their moments have the same weight."""
    column, _, unit = AXES[by]
    every = ({*run["curve"]["round"]} for run in runs)
    rounds = sorted(set.intersection(*every))

    def told(name: str) -> Array:
        tables = (dict(zip(run["curve"]["round"], run["curve"][name], strict=True)) for run in runs)
        return np.array([[table[number] for number in rounds] for table in tables], dtype=float)

    means, deviations = told(quantity.name), told(f"{quantity.name} std")
    mean = means.mean(0)
    variance = (deviations**2 + means**2).mean(0) - mean**2
    return Line(told(column).mean(0) / unit, mean, np.sqrt(variance.clip(min=0)))


def _plot(axis: Any, runs: Sequence[Summary], quantity: Quantity, by: str, name: str, colour: str) -> None:
    x, mean, std = line_of(runs, quantity, by)
    low, high = mean - std, mean + std
    if quantity is LOSS:
        low = np.maximum(low, mean / 10)  # a loss less its deviation may be negative
        low, mean, high = (np.log10(np.clip(values, 1e-12, None)) for values in (low, mean, high))
    look = {"color": colour, "label": style.label(name), "linewidth": 1.4}
    if by == "bytes" and not x.any():  # who sends nothing has no way to go: where it ended
        axis.axhline(mean[-1], linestyle=":", **look)
        return
    axis.plot(x, mean, style.linestyle(name), **look)
    axis.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)


def _lay_out(axis: Any, by: str) -> None:
    if by == "bytes":  # a round of one costs a hundred times that of another
        axis.set_xscale("log")
    else:
        axis.xaxis.get_major_locator().set_params(integer=True)


def show_what_is_late(axis: Any) -> None:
    each = [np.asarray(line.get_ydata(), float) for line in axis.lines]
    late = np.concatenate([np.empty(0), *(values[len(values) // 10 :] for values in each)])
    late = late[np.isfinite(late)]
    if late.size:
        margin = 0.1 * np.ptp(late) or 0.01
        axis.set_ylim(late.min() - margin, late.max() + margin)
