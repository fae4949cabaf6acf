"""All that the page shows, as numbers: packed, thinned, and ready for JSON."""

from typing import Any

import numpy as np
import polars

from ..algorithms import AllForOne, FedAvg, Local
from ..runs import Comparison, FinishedRun, last_round, summarise, verdicts
from ..runs.quantities import LEAST_EXCESS, Quantity
from ..runs.tables import CROWD
from . import style
from .clusters import clusters_by_round
from .comparison_table import cells
from .cost import cost
from .crowd import crowd_frames, frame_bytes
from .curves import Array
from .gains import packed_gains, packed_guard
from .machines import machines
from .packing import FINE, NOT_KNOWN, packed
from .why import rows_of, told_reasons, verdicts_of_pairs

#: Frames of who listened to whom that a run has at most.
MOST_FRAMES = 120
#: Frames that a run has at least, if it has as many rounds.
LEAST_FRAMES = 6
#: Bytes of all frames together, before base64 makes them five megabytes.
MOST_BYTES = 3_600_000
#: The same of a crowd, of which nine megabytes are made.
MOST_BYTES_OF_A_CROWD = 6_500_000
#: Bytes of all clients' own curves together.
MOST_CURVE_BYTES = 2_400_000
#: What the curves can be drawn by that is told of all clients together.
SENT = ("messages", "bytes")
#: How a run gets something to be compared with.
COMPARE = f"allforone compare … --algorithms {AllForOne().name},{Local().name}"


def page_data(comparison: Comparison) -> dict[str, Any]:
    names, drawn = comparison.algorithms, comparison.quantities
    titles, rows = cells(summarise(comparison))
    return {
        "problem": comparison.problem,
        "seeds": sorted({run.seed for run in comparison.runs}),
        "clients": _clients(comparison),
        "crowd": _is_crowd(comparison),
        "truth": comparison.clusters,
        "algorithms": [_algorithm(comparison, name, colour) for name, colour in style.colours(names).items()],
        "compare": COMPARE,
        "table": {"head": titles, "rows": {name: [cell._asdict() for cell in row] for name, row in rows.items()}},
        "quantities": [_quantity(comparison, quantity) for quantity in drawn],
        "progress": {name: _progress(comparison, name, drawn) for name in names},
        "frames": _all_frames(comparison),
        "exchange": {name: _exchange(comparison, name) for name in names},
        "machines": {name: [told for run in comparison.of(name) if (told := machines(run))] for name in names},
        "gains": packed_gains(comparison, drawn),
        "reasons": told_reasons(),
        "costs": {name: cost(comparison.of(name))._asdict() for name in names},
    }


def _clients(comparison: Comparison) -> list[dict[str, Any]]:
    run = comparison.runs[0]
    told = run.clients or [{"name": None, "size": size} for size in run.sizes]
    return [{"name": client["name"] or str(number), "size": client["size"]} for number, client in enumerate(told)]


def _algorithm(comparison: Comparison, name: str, colour: str) -> dict[str, Any]:
    runs = comparison.of(name)
    return {
        "name": name,
        "label": style.label(name),
        "colour": colour,
        "role": _role(name, bool(runs[0].config.get("private"))),
        "threshold": runs[0].config.get("algorithm", {}).get("threshold"),
        "rounds": max(last_round(run) for run in runs),
    }


def _role(name: str, private: bool) -> str | None:
    """What others are compared with: every client alone, one model for all, or who is told the clusters."""
    made = style.made(name)
    if isinstance(made, Local):
        return "alone"
    if isinstance(made, FedAvg) and not made.finetune and not private:
        return "shared"
    return "told" if style.needs_clusters(name) else None


def _quantity(comparison: Comparison, quantity: Quantity) -> dict[str, Any]:
    return {
        "name": quantity.name,
        "title": quantity.title,
        "lower": quantity.lower_is_better,
        "percent": quantity.percent,
        "digits": quantity.digits,
        "logs": _logs(comparison, quantity),
        "powers": quantity.powers,
    }


def _logs(comparison: Comparison, quantity: Quantity) -> bool:
    """Whether it can be told on a log scale: not a loss that falls below zero."""
    negative = any((quantity.values(run.metrics) < 0).any() for run in comparison.runs)
    return quantity.powers or (quantity.logs and not negative)


def _progress(comparison: Comparison, name: str, drawn: list[Quantity]) -> dict[str, Any]:
    """Round by round and client by client, mean and standard deviation over seeds; the last round of each seed."""
    runs = comparison.of(name)
    joined = polars.concat(run.metrics.select("round", "samples", "seconds", *SENT) for run in runs)
    sent = [polars.when(polars.col(name).is_not_null().all()).then(polars.col(name).mean()) for name in SENT]
    when = joined.group_by("round").agg(polars.col("samples", "seconds").mean(), *sent).sort("round")
    rounds, count = when["round"].to_list(), len(_clients(comparison))
    told, of = _told_of_each(comparison, drawn, len(rounds)), {}
    for quantity in drawn:
        cubes = [_cube(run, quantity, rounds, count) for run in runs]
        stacked = np.stack(cubes)  # [seeds, rounds, clients]
        last = np.stack([cube[_reached(run, rounds)] for run, cube in zip(runs, cubes, strict=True)])
        together = stacked.swapaxes(1, 2).reshape(-1, len(rounds))  # [seeds · clients, rounds]
        logs = _logs(comparison, quantity)
        each = _spread(stacked[:, told], logs)
        of[quantity.name] = {"all": _spread(together, logs), "each": each, "last": packed(last)}
    return {
        "round": rounds,
        "samples": when["samples"].to_list(),
        "seconds": [round(value, 4) for value in when["seconds"].to_list()],
        **{name: when[name].to_list() for name in SENT},  # by all clients; None where one seed does not know
        "seeds": [run.seed for run in runs],
        "told": told,
        "of": of,
    }


def _told_of_each(comparison: Comparison, drawn: list[Quantity], rounds: int) -> list[int]:
    """The places of the rounds of which every client's own values are told: all, unless that is too much."""
    numbers = sum(4 if _logs(comparison, quantity) else 2 for quantity in drawn)
    size = 4 * numbers * len(_clients(comparison)) * len(comparison.algorithms)
    most = max(2, min(rounds, MOST_CURVE_BYTES // max(1, size)))
    return sorted({round(j * (rounds - 1) / (most - 1)) for j in range(most)})


def _reached(run: FinishedRun, rounds: list[int]) -> int:
    return rounds.index(last_round(run))


def _cube(run: FinishedRun, quantity: Quantity, rounds: list[int], count: int) -> Array:
    """[rounds, clients]; NaN for what is not known, such as the models of those who lie."""
    cube = np.full((len(rounds), count), np.nan)
    place = {number: line for line, number in enumerate(rounds)}
    at = [place[number] for number in run.metrics["round"]]
    cube[at, run.metrics["client"].to_list()] = quantity.values(run.metrics).to_numpy()
    return cube


def _spread(values: Array, logs: bool) -> dict[str, Any]:
    """Mean and standard deviation over the first dimension, and of the logarithms."""
    found = {"mean": packed(_mean(values)), "std": packed(_std(values))}
    if logs:
        powers = np.log10(np.maximum(values, LEAST_EXCESS))
        found.update(log_mean=packed(_mean(powers)), log_std=packed(_std(powers)))
    return found


def _mean(values: Array) -> Array:
    known = np.isfinite(values)
    return np.where(known.any(0), np.where(known, values, 0).sum(0) / np.maximum(known.sum(0), 1), np.nan)


def _std(values: Array) -> Array:
    return np.asarray(np.sqrt(np.maximum(_mean(np.square(values - _mean(values))), 0)))


def _all_frames(comparison: Comparison) -> dict[str, list[dict[str, Any]]]:
    """Who listened to whom, and why, of every run, in as many rounds as the page can bear."""
    shown = {name: [run for run in comparison.of(name) if run.tables] for name in comparison.algorithms}
    most = _bearable(shown)
    if most < LEAST_FRAMES:  # so many clients that only one seed of each can be shown
        shown = {name: runs[:1] for name, runs in shown.items()}
        most = max(1 if _is_crowd(comparison) else LEAST_FRAMES, _bearable(shown))
    return {name: [_frames(run, min(most, MOST_FRAMES)) for run in runs] for name, runs in shown.items()}


def _is_crowd(comparison: Comparison) -> bool:
    return len(_clients(comparison)) > CROWD


def _bearable(shown: dict[str, list[FinishedRun]]) -> int:
    """Frames of every run that changes."""
    changing = [run for runs in shown.values() for run in runs if not _constant(run)]
    if any(len(run.tables[-1].present) > CROWD for run in changing):
        return MOST_BYTES_OF_A_CROWD // sum(frame_bytes(run.tables[-1], run.tables.names) for run in changing)
    size = sum(
        run.tables[-1].present.numel() ** 2 * (2 + sum(4 if name in FINE else 2 for name in run.tables.names))
        for run in changing
    )
    return MOST_BYTES // max(1, size)


def _constant(run: FinishedRun) -> bool:
    return "similarity" not in run.tables.names and run.tables.constant


def _frames(run: FinishedRun, most: int) -> dict[str, Any]:
    last, names, truth = len(run.tables) - 1, run.tables.names, _truth(run)
    many = [last] if most == 1 else sorted({round(j * last / (most - 1)) for j in range(most)})
    places = [last] if _constant(run) else many
    shots, threshold = [run.tables[at] for at in places], run.config.get("algorithm", {}).get("threshold")
    found = clusters_by_round(run.tables, places)
    if len(shots[0].present) > CROWD:
        tables = crowd_frames(shots, found, names, truth, threshold)
    else:
        cubes = {name: np.stack([shot.dense(name).double().numpy() for shot in shots]) for name in names}
        tables = {name: packed(cube, coarse=name not in FINE) for name, cube in cubes.items()}
        verdicts = np.stack([verdicts_of_pairs(rows_of(shot), threshold) for shot in shots])
        tables["verdicts"] = packed(verdicts, top=NOT_KNOWN - 1)
    tables["found"] = packed(found, top=NOT_KNOWN - 1)
    return {
        "seed": run.seed,
        "truth": truth,
        "rounds": [shot.number for shot in shots],
        "liars": list(run.liars),
        "guard": _guard(run),
        "guarded": packed_guard(run),
        "constant": len(shots) == 1 and last > 0 and _constant(run),
        "absent": [
            [at, client] for at, shot in enumerate(shots) for client in (~shot.present).nonzero().flatten().tolist()
        ],
        **tables,
    }


def _guard(run: FinishedRun) -> dict[int, dict[str, Any]]:
    """What a guard found for each client at the end, in shares of the loss; nothing where none watched."""
    return {
        row["client"]: {
            key: round(row[key], 3) if isinstance(row[key], float) else row[key]
            for key in ("gain", "low", "high", "alone")
        }
        for row in verdicts(run.metrics).to_dicts()
    }


def _truth(run: FinishedRun) -> list[int] | None:
    clusters = [client["cluster"] for client in run.clients]
    return None if None in clusters or not clusters else clusters


def _exchange(comparison: Comparison, name: str) -> dict[str, list[float]]:
    """The weight that each client gave to others' gradients, and others to its: mean over rounds and seeds."""
    runs = [run for run in comparison.of(name) if run.tables]
    if not runs:
        return {"received": [], "given": []}
    sums = np.zeros((2, len(runs[0].tables[0].present)))
    for run in runs:
        for shot in run.tables:
            pair = np.stack(np.divmod(shot.pairs.numpy(), sums.shape[1]))
            weights = np.where(pair[0] == pair[1], 0, shot.values["weights"].numpy().astype(float)) / len(run.tables)
            sums += [np.bincount(side, weights, sums.shape[1]) for side in pair]
    received, given = (sums / len(runs)).round(4).tolist()
    return {"received": received, "given": given}
