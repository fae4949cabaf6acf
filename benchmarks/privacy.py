"""Accuracy against ε: Local, FedAvg, All-for-one in both forms and its oracle, with answers that are private.

    python -m benchmarks.privacy --picture docs/pictures/privacy.png        # digits; long
    ALLFORONE_DATA=… python -m benchmarks.privacy --only mnist --seeds 1    # ten clients with 300 images each; longer

Everybody does the same updates on the same batches, with the same noise multipliers; who answers at more models has
spent more by the end. ε is the mean over clients of what each has spent.
"""

import argparse
import statistics
from functools import partial
from pathlib import Path
from typing import NamedTuple

import polars
import torch
from rich.console import Console
from rich.progress import track

import allforone as afo
from allforone.catalogue import ALGORITHMS
from allforone.problems import digits, mnist
from allforone.reports.figures import RC
from allforone.reports.style import COLOURS, label
from allforone.reports.table import Table, markdown, plain, terminal

SEEDS = (127, 496, 1729)
NAMES = ("local", "fedavg", "all-for-one", "all-for-one-round", "oracle")
#: Noise multipliers, from none on.
NOISES = (0.0, 4.0, 8.0, 16.0, 32.0)
WORLDS = {"digits": digits, "mnist": partial(mnist, clients=10, samples_per_client=300)}


class End(NamedTuple):
    accuracy: float  #: in points, the mean over clients
    epsilon: float | None  #: the mean over clients; None without noise


def run(options: argparse.Namespace, name: str, noise: float, seed: int) -> End:
    problem = WORLDS[options.only](seed=seed)
    private = afo.Privacy(clip=options.clip, noise=noise) if noise else None
    sizes = {"rounds": options.rounds, "inner": options.inner, "batch_size": options.batch}
    result = afo.train(
        problem, algorithm=ALGORITHMS[name](), privacy=private, seed=seed, evaluate_every=options.rounds, **sizes
    )
    last = result.metrics.filter(polars.col("round") == options.rounds)
    spent = last["epsilon"].drop_nulls().to_list()
    return End(100 * statistics.fmean(last["accuracy"].to_list()), statistics.fmean(spent) if spent else None)


def measure(options: argparse.Namespace) -> dict[tuple[str, float], End]:
    """The mean over seeds."""
    cases, found = [(name, noise) for noise in options.noises for name in NAMES], {}
    for name, noise in track(cases, "measuring …", transient=True):
        ends = [run(options, name, noise, seed) for seed in SEEDS[: options.seeds]]
        spent = [end.epsilon for end in ends if end.epsilon is not None]
        mean = statistics.fmean(end.accuracy for end in ends)
        found[name, noise] = End(mean, statistics.fmean(spent) if spent else None)
    return found


def table(options: argparse.Namespace, found: dict[tuple[str, float], End]) -> Table:
    def told(end: End) -> str:
        return f"{end.accuracy:.1f}" if end.epsilon is None else f"{end.accuracy:.1f} (ε {end.epsilon:.2g})"

    rows = [
        [f"{noise:g}" if noise else "none", *(told(found[name, noise]) for name in NAMES)] for noise in options.noises
    ]
    about = f"{options.only}: {options.rounds} rounds of {options.inner} updates, batches of {options.batch}"
    about += f", clip {options.clip:g}"
    return Table(
        ["noise", *map(label, NAMES)], plain(rows), caption=f"{about}; δ = 1e-5; mean over {options.seeds} seeds"
    )


def draw(found: dict[tuple[str, float], End], path: Path) -> None:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(RC):
        figure = Figure(figsize=(5.2, 3.4), layout="constrained")
        axis = figure.subplots()
        for name in NAMES:
            ends = sorted(
                (e.epsilon, e.accuracy) for (who, _), e in found.items() if who == name and e.epsilon is not None
            )
            axis.plot(*zip(*ends, strict=True), marker="o", markersize=4, color=COLOURS[name], label=label(name))
            if (name, 0.0) in found:
                axis.axhline(found[name, 0.0].accuracy, color=COLOURS[name], linestyle=":", linewidth=0.9)
        axis.set(xscale="log", xlabel="ε spent, per client", ylabel="test accuracy, %")
        axis.legend(fontsize=8)
        figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(WORLDS), default="digits")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--inner", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--noises", type=lambda text: tuple(map(float, text.split(","))), default=NOISES)
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help=f"the first so many of {SEEDS}")
    parser.add_argument("--markdown", action="store_true", help="a table for a document")
    parser.add_argument("--picture", type=Path, help="where to draw accuracy against ε")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = measure(options)
    if options.picture:
        draw(found, options.picture)
    made = table(options, found)
    if options.markdown:
        print(markdown(made))
    else:
        Console().print(terminal(made))


if __name__ == "__main__":
    main()
