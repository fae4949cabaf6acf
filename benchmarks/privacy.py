"""Accuracy against ε: Local, FedAvg, All-for-one in both forms and its oracle, with answers that are private.

    python -m benchmarks.privacy --picture docs/pictures/privacy.png                # digits, in clusters and at random
    ALLFORONE_DATA=… python -m benchmarks.privacy --worlds digits,digits-iid,mnist  # and 300 of Mnist's for each of ten

Everybody does the same updates, on all data of a client, with the same noise at one model; All-for-one spends more,
since clients look at each other besides. What was measured once is kept in --out and not measured again; --tune looks
for a step on a seed that nothing is judged by.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import polars
import torch
from rich.progress import track

import allforone as afo
from allforone.problems import Problem, digits, mnist
from allforone.reports.figures import RC
from allforone.reports.style import COLOURS, label
from allforone.reports.table import Table, plain

from .shown import show

SEEDS = (127, 496, 1729)
#: The seed on which steps are chosen.
TUNED = 11
#: Clients of every problem here.
CLIENTS = 10
#: Larger than any client's data, so that a batch is all of them.
ALL = 10_000
ROUNDS, INNER, CLIP = 4, 3, 1.0
#: Steps that are tried on the seed for it, and those which were chosen.
STEPS = (1.0, 2.0, 4.0)
STEP = {"digits": 4.0, "digits-iid": 4.0, "mnist": 1.0}
#: Noise multipliers; 0: clipped, without noise.
LEVELS = (0.0, 0.5, 2.0, 8.0)

WORLDS: dict[str, Callable[[int], Problem]] = {
    "digits": lambda seed: digits(seed, CLIENTS),
    "digits-iid": lambda seed: digits(seed, CLIENTS, split="iid"),
    "mnist": lambda seed: mnist(seed, CLIENTS, samples_per_client=300),
}
TITLES = {"digits": "digits, two clusters", "digits-iid": "digits, all alike", "mnist": "Mnist, two clusters"}
WHO: dict[str, Callable[[], afo.Algorithm]] = {
    "local": afo.Local,
    "fedavg": afo.FedAvg,
    "all-for-one": partial(afo.AllForOne, samples=ALL),
    "all-for-one-round": partial(afo.AllForOne, exchange="round"),
    "oracle": afo.Oracle,
}


class Case(NamedTuple):
    world: str
    who: str
    level: float
    step: float
    seed: int


class End(NamedTuple):
    accuracy: float  #: in points, the mean over clients
    epsilon: float | None  #: the mean over clients; None without noise


def run(case: Case) -> End:
    result = afo.train(
        WORLDS[case.world](case.seed),
        algorithm=WHO[case.who](),
        optimizer=partial(torch.optim.SGD, lr=case.step),
        privacy=afo.Privacy(clip=CLIP, noise=case.level),
        seed=case.seed,
        rounds=ROUNDS,
        inner=INNER,
        batch_size=ALL,
        evaluate_every=ROUNDS,
        progress=False,
    )
    last = result.metrics.filter(polars.col("round") == ROUNDS)
    spent = last["epsilon"].drop_nulls().to_list()
    return End(100 * statistics.fmean(last["accuracy"].to_list()), statistics.fmean(spent) if spent else None)


def measure(wanted: Iterable[Case], kept: Path) -> dict[Case, End]:
    """What the file holds, and what it does not, which it is given as it comes."""
    lines = kept.read_text().splitlines() if kept.exists() else []
    known = {Case(*case): End(*end) for case, end in map(json.loads, lines)}
    kept.parent.mkdir(parents=True, exist_ok=True)
    for case in track([case for case in wanted if case not in known], "measuring …", transient=True):
        known[case] = run(case)
        with kept.open("a") as file:
            file.write(json.dumps([case, known[case]]) + "\n")
    return {case: known[case] for case in wanted}


def means(found: dict[Case, End], world: str, who: str) -> list[End]:
    """Over seeds, from the smallest ε on; that without noise is the last."""
    ends = []
    for level in sorted({case.level for case in found}, reverse=True):
        of = [end for case, end in found.items() if (case.world, case.who, case.level) == (world, who, level)]
        spent = [end.epsilon for end in of if end.epsilon is not None]
        ends.append(End(statistics.fmean(end.accuracy for end in of), statistics.fmean(spent) if spent else None))
    return ends


def table(found: dict[Case, End], world: str, seeds: int) -> Table:
    def told(end: End) -> str:
        return f"{end.accuracy:.1f}" if end.epsilon is None else f"{end.accuracy:.1f} (ε {end.epsilon:.2g})"

    levels = sorted({case.level for case in found}, reverse=True)
    columns = [means(found, world, who) for who in WHO]
    rows = [
        [f"{level:g}" if level else "none", *(told(ends[place]) for ends in columns)]
        for place, level in enumerate(levels)
    ]
    step = next(case.step for case in found if case.world == world)
    about = f"{world}: {ROUNDS} rounds of {INNER} updates on all data, step {step:g}, clip {CLIP:g}, δ = 1e-5; "
    about += f"{seeds} seed{'s' if seeds > 1 else ''}"
    return Table(["noise", *map(label, WHO)], plain(rows), caption=about)


def draw(found: dict[Case, End], worlds: list[str], path: Path) -> None:
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    with rc_context(RC):
        figure = Figure(figsize=(3.4 * len(worlds), 3.4), layout="constrained")
        for axis, world in zip(figure.subplots(1, len(worlds), squeeze=False)[0], worlds, strict=True):
            for who in WHO:
                ends = means(found, world, who)
                private = [(end.epsilon, end.accuracy) for end in ends if end.epsilon is not None]
                axis.plot(*zip(*private, strict=True), marker="o", markersize=4, color=COLOURS[who], label=label(who))
                if ends[-1].epsilon is None:
                    axis.axhline(ends[-1].accuracy, color=COLOURS[who], linestyle=":", linewidth=0.9)
            axis.set(xscale="log", xlabel="ε spent by a client", title=TITLES[world])
            axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axis.xaxis.set_minor_formatter(NullFormatter())
        figure.axes[0].set_ylabel("test accuracy, %")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
        figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", default="digits,digits-iid", help=f"of {', '.join(WORLDS)}")
    parser.add_argument("--step", type=float, help=f"of SGD; by default {STEP}")
    parser.add_argument("--tune", action="store_true", help=f"try steps on seed {TUNED}, and nothing else")
    parser.add_argument("--levels", type=lambda text: tuple(map(float, text.split(","))), default=LEVELS)
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help=f"the first so many of {SEEDS}")
    parser.add_argument("--markdown", action="store_true", help="tables for a document")
    parser.add_argument("--picture", type=Path, help="where to draw accuracy against ε")
    parser.add_argument("--out", type=Path, default=Path("out/privacy.jsonl"), help="where what was measured is kept")
    options = parser.parse_args()
    torch.set_num_threads(1)
    worlds = options.worlds.split(",")
    if options.tune:
        tune(worlds, options.levels, options.out)
        return
    seeds = SEEDS[: options.seeds]
    cases = [
        Case(world, who, level, options.step or STEP[world], seed)
        for seed in seeds
        for world in worlds
        for level in options.levels
        for who in WHO
    ]
    found = measure(cases, options.out)
    if options.picture:
        draw(found, worlds, options.picture)
    show((table(found, world, len(seeds)) for world in worlds), options.markdown)


def tune(worlds: list[str], levels: Iterable[float], kept: Path) -> None:
    """Accuracies of who spends least, which are cheap, by step and level."""
    tried = [
        Case(world, who, level, step, TUNED)
        for world in worlds
        for who in ("local", "fedavg")
        for step in STEPS
        for level in levels
    ]
    for case, end in measure(tried, kept).items():
        print(f"{case.world:12} {case.who:8} step {case.step:<5g} level {case.level:<5g} accuracy {end.accuracy:.1f}")


if __name__ == "__main__":
    main()
