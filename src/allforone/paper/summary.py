"""What is kept of a run: a small file of plain values without models, from which figures and tables are made."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars

from ..errors import InputError
from ..reports.cost import cost
from ..runs import FinishedRun, last_round, plain_json
from ..runs.durable import write_text
from ..runs.quantities import EXCESS, LEAST_EXCESS, Quantity, quantities
from .scores import Summary, train_scores

FILE = "summary.json"
#: Rounds that a curve is told at, about: more cannot be told apart in a figure.
MOST_POINTS = 100
#: Of the numbers of a curve: more than a figure shows.
DIGITS = 5


def summarise(shown: str, run: FinishedRun, path: Path, trained: bool) -> Summary:
    """Of the run that lies at `path`, called `shown` in tables. trained: whether models are judged on training data."""
    spent, ran = cost([run]), plain_json.read(path / "environment.json")
    last = run.metrics.filter(polars.col("round") == last_round(run)).sort("client")
    metrics = run.config.get("metrics") or {}
    judged = [quantity for quantity in quantities(metrics) if quantity.values(last).count()]
    return {
        "algorithm": shown,
        "seed": run.seed,
        "commit": ran.get("commit"),
        "versions": {"python": ran["python"], **ran["packages"]},
        "platform": f"{ran['platform']}, {ran['threads']} of {ran['cores']} cores",
        "config": {key: value for key, value in run.config.items() if key != "identity" and value is not None},
        "sizes": [client["size"] for client in run.clients],
        "clusters": [client["cluster"] for client in run.clients],
        "rounds": last_round(run),
        **{key: value for key, value in spent._asdict().items() if key != "epsilon"},
        "test": last.select("loss", *metrics, *_excess(judged)).to_dict(as_series=False),
        "train": train_scores(path) if trained else None,
        "curve": _curve(run.metrics, judged),
    }


def _excess(judged: Sequence[Quantity]) -> list[str]:
    return [EXCESS.name] if EXCESS in judged else []


def _curve(metrics: polars.DataFrame, judged: Sequence[Quantity]) -> dict[str, list[Any]]:
    """Over clients, round by round; of what is told by powers of ten, mean and deviation are those of its logarithm."""
    rounds = metrics["round"].unique().sort().to_list()
    step = max(1, len(rounds) // MOST_POINTS)
    chosen = [*rounds[:-1:step], rounds[-1]]

    def values(quantity: Quantity) -> polars.Expr:
        value = polars.col(quantity.name)
        return value.clip(lower_bound=LEAST_EXCESS).log10() if quantity.powers else value

    each = {quantity.name: values(quantity) for quantity in judged}
    table = (
        metrics.filter(polars.col("round").is_in(chosen))
        .group_by("round")
        .agg(
            polars.col("samples", "seconds", "messages", "bytes").mean(),
            *(value.mean().alias(name) for name, value in each.items()),
            *(value.std(ddof=0).alias(f"{name} std") for name, value in each.items()),
        )
        .sort("round")
    )
    return {name: [_short(value) for value in column] for name, column in table.to_dict(as_series=False).items()}


def _short(value: float | None) -> float | int | None:
    if value is None or not math.isfinite(value):
        return None
    return int(value) if value == int(value) else float(f"{value:.{DIGITS}g}")


def write(summary: Summary, folder: Path) -> Path:
    path: Path = folder / summary["algorithm"] / str(summary["seed"]) / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, plain_json.text(summary, ["config", "test", "train", "curve"]))
    return path


def read(folder: Path, order: Sequence[str]) -> list[Summary]:
    """All that a folder holds of one experiment, algorithms in this order."""
    found = [_read(path) for path in sorted(folder.glob(f"*/*/{FILE}"))]
    places = {name: place for place, name in enumerate(order)}
    return sorted(found, key=lambda each: (places.get(each["algorithm"], len(places)), each["algorithm"], each["seed"]))


def _read(path: Path) -> Summary:
    try:
        summary: Summary = plain_json.read(path)
        if not {"algorithm", "seed", "sizes", "test", "curve", "config"} <= summary.keys():
            raise ValueError
    except (OSError, ValueError, RecursionError, AttributeError) as error:
        raise InputError(
            f"{path}: no summary of a run ({type(error).__name__}); remove it, or write it anew by "
            "`allforone paper … --publish`"
        ) from error
    return summary
