"""report.html: one self-contained page, made of a template, plotly, and the numbers."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from ..runs import Comparison, summarise
from . import style
from .curves import QUANTITIES, curve, quantities
from .table import cells

MOST_FRAMES = 120  # of the weights, per algorithm


def write_report(comparison: Comparison, path: Path) -> Path:
    template = files("allforone.reports").joinpath("report.html").read_text()
    data = json.dumps(page_data(comparison), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(template.replace("/*PLOTLY*/", get_plotlyjs()).replace("/*DATA*/", data))
    return path


def page_data(comparison: Comparison) -> dict[str, Any]:
    titles, rows = cells(summarise(comparison))
    names, drawn = comparison.algorithms, quantities(comparison)
    clusters = comparison.clusters
    order = sorted(range(len(comparison.runs[0].sizes)), key=lambda i: (clusters[i] if clusters else 0, i))
    return {
        "problem": comparison.problem,
        "clients": len(comparison.runs[0].sizes),
        "seeds": sorted({run.seed for run in comparison.runs}),
        "order": order,
        "clusters": clusters,
        "labels": {name: style.label(name) for name in names},
        "colours": style.colours(names),
        "quantities": {name: QUANTITIES[name][0] for name in drawn},
        "curves": {q: {name: curve(comparison, name, q)._asdict() for name in names} for q in drawn},
        "weights": {name: _frames(comparison, name) for name in names},
        "table": {"head": ["algorithm", *titles], "rows": {name: [cell._asdict() for cell in row]
                                                           for name, row in rows.items()}},
    }


def _frames(comparison: Comparison, algorithm: str) -> dict[str, Any]:
    """The weights of the first seed's run, thinned to at most MOST_FRAMES rounds."""
    tensors = comparison.of(algorithm)[0].weights
    if not tensors:
        return {"rounds": [], "weights": []}
    rounds, weights = tensors["rounds"], tensors["weights"]
    if len(rounds) > 1 and (weights == weights[:1]).all():
        rounds, weights = rounds[:1], weights[:1]
    picked = sorted({round(j * (len(rounds) - 1) / max(1, MOST_FRAMES - 1)) for j in range(MOST_FRAMES)})
    return {
        "rounds": rounds[picked].tolist(),
        "weights": [[[round(v, 4) for v in line] for line in matrix] for matrix in weights[picked].tolist()],
    }
