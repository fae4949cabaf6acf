"""What is kept of a setting: a small file of plain values, from which all tables are made."""

from pathlib import Path
from typing import Any

from ..errors import InputError
from ..reports.style import needs_clusters
from ..runs import Comparison, last_round, plain_json
from ..runs.quantities import Quantity, quantities
from .contestants import CONTESTANTS
from .outcomes import Outcome, Outcomes, outcomes
from .scores import Score, scores
from .settings import SETTINGS, VALIDATION, Setting

Summary = dict[str, Any]


def summarise(setting: Setting, comparison: Comparison) -> Summary:
    quantity = comparison.quantities[0]
    runs = outcomes(comparison, quantity)
    return {
        "setting": setting.name,
        "about": setting.about,
        "config": setting.base(),
        "clients": len(comparison.runs[0].clients),
        "rounds": max(map(last_round, comparison.runs)),
        "seeds": list(setting.seeds),
        "validation": VALIDATION,
        "metric": quantity.name,
        "metrics": comparison.metrics,
        **_scored(runs, quantity),
        "not_run": [name for name in _able(setting, comparison) if name not in runs],
        "published": setting.published and {**vars(setting.published)},
    }


def _scored(runs: Outcomes, quantity: Quantity) -> Summary:
    return {
        "contestants": {name: score._asdict() for name, score in scores(runs, quantity).items()},
        "runs": {name: [run._asdict() for run in each] for name, each in runs.items()},
    }


def added(summary: Summary, earlier: Summary | None) -> Summary:
    """With the runs of the same setting that were kept earlier, where they have not been run anew."""
    same = ("setting", "config", "clients", "rounds", "metric", "validation")
    if earlier is None or "runs" not in earlier or any(summary[key] != earlier[key] for key in same):
        return summary
    runs: Outcomes = {}
    for each in (earlier["runs"], summary["runs"]):
        for name, found in each.items():
            by_seed = {run.seed: run for run in [*runs.get(name, []), *(Outcome(**run) for run in found)]}
            runs[name] = [by_seed[seed] for seed in sorted(by_seed)]
    return {
        **summary,
        "seeds": sorted({*summary["seeds"], *earlier["seeds"]}),
        **_scored(runs, quantity_of(summary)),
        "not_run": [name for name in summary["not_run"] if name not in runs],
    }


def _able(setting: Setting, comparison: Comparison) -> list[str]:
    """Of our contestants, those who can take part."""
    clustered = all(client["cluster"] is not None for client in comparison.runs[0].clients)
    return [
        each.name
        for each in CONTESTANTS
        if each.entry(setting) and (clustered or not needs_clusters(each.algorithm or each.name))
    ]


def without_seconds(summary: Summary) -> Summary:
    """As it is published: what else it says is the same on every machine."""
    numbers = {name: {**score, "seconds": None} for name, score in summary["contestants"].items()}
    runs = {name: [{**run, "seconds": None} for run in each] for name, each in summary["runs"].items()}
    return {**summary, "contestants": numbers, "runs": runs}


def quantity_of(summary: Summary) -> Quantity:
    """What contestants were judged by."""
    return next(each for each in quantities(summary["metrics"]) if each.name == summary["metric"])


def scores_of(summary: Summary) -> dict[str, Score]:
    return {name: Score(**numbers) for name, numbers in summary["contestants"].items()}


def write(summary: Summary, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{summary['setting']}.json"
    path.write_text(plain_json.text(summary, ["contestants", "runs"]), encoding="utf-8")
    return path


def read(folder: Path) -> list[Summary]:
    """All that a folder holds, in the order of the settings."""
    found = {path.stem: path for path in sorted(folder.glob("*.json"))}
    return [_read(found[name]) for name in sorted(found, key=lambda name: ([*SETTINGS, name].index(name), name))]


def _read(path: Path) -> Summary:
    try:
        summary: Summary = plain_json.read(path)
        quantity_of(summary), scores_of(summary)
    except (OSError, ValueError, KeyError, TypeError, StopIteration, AttributeError) as error:
        raise InputError(
            f"{path}: no summary of a setting ({type(error).__name__}); remove it, or write it anew by "
            "`allforone leaderboard`"
        ) from error
    return summary
