"""report.html: one self-contained page, made of the parts in `explorer` and the numbers. It asks nobody anything."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..opening import to_write
from ..runs import Comparison
from .page_data import page_data

#: in this order: each uses those before it
SCRIPTS = (
    "numbers.js",
    "clusters.js",
    "chart.js",
    "overview.js",
    "heatmap.js",
    "graph.js",
    "collaboration.js",
    "crowd.js",
    "why.js",
    "client.js",
    "benefit.js",
    "machines.js",
    "main.js",
)


def write_report(comparison: Comparison, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    to_write(path).write_text(page(page_json(comparison)), encoding="utf-8")
    return path


def page(data: str, live: bool = False) -> str:
    """With `live` the page asks where it came from for newer numbers; else the browser is told to let it ask nobody."""
    part = files("allforone.reports").joinpath("explorer")
    scripts = "\n".join(part.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS)
    return fill(
        part.joinpath("page.html").read_text(encoding="utf-8"),
        {
            "CONNECT": "'self'" if live else "'none'",
            "STYLE": part.joinpath("style.css").read_text(encoding="utf-8"),
            "DATA": data,
            "SCRIPTS": scripts,
        },
    )


def fill(template: str, parts: dict[str, str]) -> str:
    """Each /*NAME*/ of the template by its part; what stands inside a part is not looked at again."""
    head, *rest = template.split("/*")
    pieces = [head]
    for piece in rest:
        name, end, text = piece.partition("*/")
        pieces.append(parts[name] + text if end and name in parts else "/*" + piece)
    return "".join(pieces)


def page_json(comparison: Comparison, **more: Any) -> str:
    numbers = {**page_data(comparison), **more}
    return json.dumps(numbers, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
