"""`make bench`: print the ratios as a table and write them as JSON."""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from allforone.algorithms import AllForOne, Oracle
from allforone.fleet import Compiled, Privacy, Stacked, everybody
from allforone.machines.loop import Loop
from allforone.problems import PROBLEMS, Problem

from . import contestants
from .contestants import SGD, apart, descend, own_optimizer, plain, ten_collaborators, trained
from .crowd import growth
from .measure import seconds
from .memory import memory

Row = dict[str, Any]
BATCH, ESTIMATION, INNER, UPDATES = 16, 512, 50, 4


def convolutional(name: str) -> Iterator[Row]:
    """Update, estimation and round of 20 clients against one model trained on as many samples, and against the loop."""
    problem = contestants.images(name)
    n = len(problem.clients)
    fleet, loop, mix = Stacked(problem, seed=0), Loop(problem, seed=0), ten_collaborators(n)
    models = apart(fleet.initial())
    per_update, per_estimation = n * 10 * BATCH, n * n * ESTIMATION
    limits = {f"limit {batch}": plain(problem, batch, 2 * per_update) for batch in (128, 256, 640, 1280)}
    taken = seconds(
        {
            **limits,
            "drawing": plain(problem, 256, 2 * per_update, drawing=True),
            "update": descend(fleet, models, mix, UPDATES),
            "equal": descend(fleet, fleet.initial(), mix, UPDATES),
            "loop": descend(loop, models, mix, 1),
        }
    )
    limit = min(taken[key] for key in limits) / 2
    yield row(f"{name}: update", "limit", limit, taken["update"] / UPDATES)
    yield row(f"{name}: update", "plain training", taken["drawing"] / 2, taken["update"] / UPDATES)
    yield row(f"{name}: update", "loop", taken["loop"], taken["update"] / UPDATES)
    yield row(f"{name}: update, models of each half equal", "different models", taken["update"], taken["equal"])
    taken |= seconds(
        {
            "limit": plain(problem, 512, per_estimation // 8),
            "estimation": lambda: fleet.compare(models, fleet.begin(1, range(1)), ESTIMATION),
        },
        5,
    )
    best = min(8 * taken["limit"], limit * per_estimation / per_update)
    yield row(f"{name}: estimation of {n}² pairs", "limit", best, taken["estimation"])
    ours = taken["estimation"] + INNER * taken["update"] / UPDATES
    yield row(f"{name}: round of {INNER} updates, paper's estimation", "limit", best + INNER * limit, ours)
    yield from all_for_one(name, fleet, loop, taken["update"] / UPDATES)
    yield whole_run(name, problem)


def all_for_one(name: str, fleet: Stacked, loop: Loop, update: float) -> Iterator[Row]:
    """What All-for-one does before the updates of a round: look at each other, and weigh up. The reference takes all
    pairs one by one, whatever their weight, and N² gradients of 512 samples for the weights."""
    algorithm, models, n = AllForOne(), fleet.initial(), len(fleet.roster)
    round, start = fleet.begin(1, range(INNER)), algorithm.init(models, SGD)
    state = start._replace(own=algorithm.collaborate(start, fleet, round)[1])
    batch = loop.batches.of(torch.ones(n), 0, purpose="compare", size=ESTIMATION)[0]
    taken = seconds(
        {
            "look": lambda: fleet.look(
                models, round, everybody(len(fleet.roster)), algorithm.samples, algorithm.sketch
            ),
            "look of the loop": lambda: loop.look(
                models, round, everybody(len(loop.roster)), algorithm.samples, algorithm.sketch
            ),
            "collaborate": lambda: algorithm.collaborate(state, fleet, round),
            "reference update": descend(loop, models, torch.full((n, n), 1 / n, dtype=torch.float64)),
            "reference gradient": lambda: [
                loop.passes.gradient({k: t[0] for k, t in models.items()}, 0, 0, batch, 0) for _ in range(4)
            ],
        }
    )
    reference = INNER * taken["reference update"] + n * n * taken["reference gradient"] / 4
    yield row(f"{name}: look at {n}² pairs", "loop", taken["look of the loop"], taken["look"])
    ours = taken["collaborate"] + INNER * update
    yield row(f"{name}: round of {INNER} updates, all-for-one", "reference", reference, ours)
    yield row(f"{name}: the rule itself", "that round", max(0.0, taken["collaborate"] - taken["look"]), ours)


def whole_run(name: str, problem: Problem) -> Row:
    """Two rounds with all that is around them: what share of the time are gradients? The rest is drawing batches,
    the optimizer, evaluation and the record."""
    fleet = Stacked(problem, seed=0, batch_size=BATCH)
    start_apart = apart(fleet.initial())
    fleet.initial = lambda: start_apart  # type: ignore[method-assign]
    workers = fleet.passes.workers
    spent, each = 0.0, workers.each

    def timed(work: Any, items: Any, meanwhile: Any = None) -> Any:
        nonlocal spent
        start = time.perf_counter()
        found = each(work, items, meanwhile)
        if work.__name__ in ("add", "of_row"):
            spent += time.perf_counter() - start
        return found

    workers.each = timed  # type: ignore[method-assign]
    start = time.perf_counter()
    trained(fleet, problem, Oracle(), SGD, 2, INNER)
    return row(f"{name}: gradients in a whole run of 2 rounds", "all of it", spent, time.perf_counter() - start)


def tiny() -> Iterator[Row]:
    problems: dict[str, Problem] = {f"synthetic, d = {d}": PROBLEMS["synthetic"](dimension=d) for d in (2, 10)}
    if "ALLFORONE_DATA" in os.environ:
        problems["heart disease"] = PROBLEMS["heart-disease"]()
    for name, problem in problems.items():
        n, fleets = len(problem.clients), {"stacked": Stacked, "compiled": Compiled, "loop": Loop}
        mix = torch.full((n, n), 1 / n, dtype=torch.float64)
        made = {key: fleet(problem, seed=0) for key, fleet in fleets.items()}
        count = {"stacked": 200, "compiled": 1000, "loop": 5 if n > 4 else 50}
        start = time.perf_counter()
        optimizer = own_optimizer(problem)
        descend(made["compiled"], made["loop"].initial(), mix, 1, optimizer)()
        warm = time.perf_counter() - start
        taken = seconds(
            {key: descend(fleet, fleet.initial(), mix, count[key], optimizer) for key, fleet in made.items()}
        )
        each = {key: taken[key] / count[key] for key in made}
        yield row(f"{name}: update", "loop", each["loop"], each["stacked"])
        yield row(f"{name}: update, compiled ({warm:.0f} s of warm-up)", "loop", each["loop"], each["compiled"])


def private() -> Iterator[Row]:
    """An update whose answers are private against the same without: of a small model and of a convolutional one."""
    for name, problem in (("digits", PROBLEMS["digits"]()), ("mnist's network", contestants.images("mnist"))):
        mix = ten_collaborators(len(problem.clients))
        plainly, privately = Stacked(problem, seed=0), Stacked(problem, seed=0, privacy=Privacy(noise=4.0))
        models = plainly.initial()
        taken = seconds(
            {"plain": descend(plainly, models, mix, 2), "private": descend(privately, models, mix, 2)}, repetitions=3
        )
        yield row(f"{name}: private update", "update", taken["plain"] / 2, taken["private"] / 2)


def volumes() -> Iterator[Row]:
    problem = contestants.volumes()
    fleet = Stacked(problem, seed=0, batch_size=8)
    taken = seconds(
        {
            "limit": plain(problem, 8, 3 * 8),
            "update": descend(fleet, fleet.initial(), torch.eye(3, dtype=torch.float64)),
        },
        3,
    )
    yield row("ixi: update of 3 clients", "limit", taken["limit"], taken["update"])


def row(what: str, against: str, theirs: float, ours: float) -> Row:
    return {"what": what, "against": against, "theirs": theirs, "seconds": ours, "ratio": theirs / ours}


SECTIONS: dict[str, Callable[[], Iterator[Row]]] = {
    "growth": growth,
    "memory": memory,
    "tiny": tiny,
    "cifar10": lambda: convolutional("cifar10"),
    "mnist": lambda: convolutional("mnist"),
    "ixi": volumes,
    "privacy": private,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", help=f"any of {', '.join(SECTIONS)}; by default all")
    parser.add_argument("--out", type=Path, default=Path("out/bench.json"))
    options = parser.parse_args()
    console, rows = Console(), []
    for name in options.sections or SECTIONS:
        with console.status(f"measuring {name} …"):
            found = list(SECTIONS[name]())
        rows += found
        table = Table(*found[0], title=name)
        for line in found:
            table.add_row(*(f"{value:.3g}" if isinstance(value, float) else str(value) for value in line.values()))
        console.print(table)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    cores = torch.get_num_threads()
    options.out.write_text(json.dumps({"torch": torch.__version__, "cores": cores, "rows": rows}, indent=1))
    console.print(f"written to {options.out}")


if __name__ == "__main__":
    main()
