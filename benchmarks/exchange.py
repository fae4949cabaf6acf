"""Accuracy against what is sent: All-for-one in both forms beside FedAvg, Ditto and Local, and how far walks drift.

    python -m benchmarks.exchange --picture docs/pictures/exchange.png      # digits; some minutes
    python -m benchmarks.exchange --only streams                            # how far walks drift
    ALLFORONE_DATA=… python -m benchmarks.exchange --only mnist --seeds 1   # ten clients with 300 images each; long
    … --only mnist --seeds 1 --splits cluster,dirichlet --exchanges 20      # the same, less of it

Everybody does the same number of updates on the same batches; who exchanges once a round does so 6, 10 or 30 times.
What was measured once is kept in --out and not measured again: delete it after a change of the algorithms.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from rich.progress import Progress

from allforone.algorithms import Algorithm, AllForOne, Ditto, FedAvg, Local, Oracle, advance
from allforone.fleet import MessageBytes
from allforone.problems import digits, mnist, synthetic
from allforone.reports.figures import RC
from allforone.reports.style import COLOURS, label
from allforone.reports.table import Table, plain
from allforone.runs.training import sent_bytes

from .shown import show
from .worlds import SPLITS, World, dealt

SEEDS = (127, 496, 1729)
ONCE_A_ROUND: dict[str, Callable[[], Algorithm]] = {
    "all-for-one-round": partial(AllForOne, exchange="round"),
    "fedavg": FedAvg,
    "ditto": Ditto,
}
ALGORITHMS: dict[str, Callable[[], Algorithm]] = {
    "local": Local,
    "oracle": Oracle,
    "all-for-one": AllForOne,
    **ONCE_A_ROUND,
}
#: What All-for-one with one exchange a round is held against, FedAvg at as many exchanges; the oracle where it can run.
RIVALS = ("local", "fedavg", "oracle")
#: Points of accuracy by which it may be behind the best of them.
WITHIN = 0.7


@dataclass(frozen=True)
class Family:
    """Worlds, and how often those exchange who do so once a round."""

    worlds: list[World]
    exchanges: tuple[int, ...]

    def rounds(self, world: World, algorithm: str) -> tuple[int, ...]:
        """How often it is run with how many rounds."""
        return self.exchanges if algorithm in ONCE_A_ROUND else (world.rounds or 1,)

    def at(self, world: World, algorithm: str, exchanges: int) -> int:
        """The rounds of the run that stands beside others with so many exchanges."""
        return exchanges if algorithm in ONCE_A_ROUND else world.rounds or 1


FAMILIES = {
    "digits": Family(dealt("digits", digits, rounds=30, inner=10), (6, 10, 30)),
    "mnist": Family(
        dealt("mnist", partial(mnist, clients=10, samples_per_client=300), rounds=20, inner=20), (5, 10, 20)
    ),
}
#: Streams, on which walks drift away from what their gradients would say: updates in all, and between two exchanges.
STREAMS = [
    World("d = 10, clusters, noise 1", partial(synthetic, dimension=10, noise=1.0)),
    World("d = 10, spread 0.3, noise 1", partial(synthetic, dimension=10, spread=0.3, noise=1.0)),
]
STREAM_UPDATES, INNER = 200, (1, 5, 20)
STREAM_ALGORITHMS = ("local", "all-for-one", "all-for-one-round", "oracle")


class Case(NamedTuple):
    """One run: `exchanges` rounds of `inner` updates."""

    world: World
    algorithm: str
    exchanges: int
    inner: int
    seed: int

    @property
    def key(self) -> str:
        return json.dumps([self.world.name, *self[1:]])


class End(NamedTuple):
    score: float | None  #: accuracy in points, or −log10 of the excess loss; None where it cannot run
    messages: float = 0  #: per client
    bytes: float = 0  #: per client


def run(case: Case) -> End:
    torch.set_num_threads(1)
    fleet, optimizer, _, _ = case.world.begin(case.seed)
    algorithm = ALGORITHMS[case.algorithm]()
    if algorithm.needs_clusters and fleet.roster.clusters is None:
        return End(None)
    size = MessageBytes.of(case.world.problem(seed=case.seed).initial_model(case.seed))
    state, messages, weight = algorithm.init(fleet.initial(), optimizer), 0, 0
    for number in range(case.exchanges):
        round = fleet.begin(number + 1, range(number * case.inner, (number + 1) * case.inner))
        state, info = advance(algorithm, state, fleet, round)
        messages, weight = messages + (info.messages or 0), weight + (sent_bytes(info, size) or 0)
    found = fleet.evaluate(state.models, fleet.begin(0, range(0)))
    values = 100 * found.metrics["accuracy"] if found.excess is None else -found.excess.clamp(min=1e-28).log10()
    return End(float(values.mean()), messages / len(fleet.roster), weight / len(fleet.roster))


def case(world: World, algorithm: str, rounds: int, seed: int) -> Case:
    """As many updates as the world has, in so many rounds."""
    return Case(world, algorithm, rounds, (world.rounds or 1) * (world.inner or 1) // rounds, seed)


def cases(family: Family, seeds: Sequence[int]) -> list[Case]:
    return [
        case(world, name, rounds, seed)
        for world in family.worlds
        for name in ALGORITHMS
        for rounds in family.rounds(world, name)
        for seed in seeds
    ]


def stream_cases(seeds: Sequence[int]) -> list[Case]:
    return [
        Case(world, name, STREAM_UPDATES // inner, inner, seed)
        for world in STREAMS
        for name in STREAM_ALGORITHMS
        for inner in INNER
        for seed in seeds
    ]


def measure(wanted: list[Case], path: Path, workers: int = 1) -> dict[str, End]:
    """How each case ends: those of the file, and the others, which it is given as they come."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = {key: End(*end) for key, end in map(json.loads, lines)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(workers) as pool, path.open("a") as file, Progress(transient=True) as progress:
        jobs = {pool.submit(run, case): case for case in wanted if case.key not in found}
        bar = progress.add_task("training …", total=len(jobs))
        for job in as_completed(jobs):
            key = jobs[job].key
            found[key] = job.result()
            file.write(json.dumps([key, found[key]]) + "\n")
            file.flush()
            progress.advance(bar)
    return found


class Means:
    """Ends of a family's runs, over the seeds."""

    def __init__(self, family: Family, found: dict[str, End], seeds: Sequence[int]) -> None:
        self.family, self.found, self.seeds = family, found, seeds

    def of(self, world: World, algorithm: str, exchanges: int) -> End | None:
        rounds = self.family.at(world, algorithm, exchanges)
        ends = [self.found[case(world, algorithm, rounds, seed).key] for seed in self.seeds]
        scores = [end.score for end in ends if end.score is not None]
        if len(scores) < len(ends):
            return None
        messages, sent = (statistics.fmean(values) for values in zip(*(end[1:] for end in ends), strict=True))
        return End(statistics.fmean(scores), messages, sent)

    def score(self, world: World, algorithm: str, exchanges: int) -> float | None:
        end = self.of(world, algorithm, exchanges)
        return None if end is None else end.score

    def above_rivals(self, world: World, exchanges: int) -> float:
        """By how much one exchange a round is better than the best of those it is held against."""
        rivals = [score for name in RIVALS if (score := self.score(world, name, exchanges)) is not None]
        return (self.score(world, "all-for-one-round", exchanges) or 0.0) - max(rivals)


def score_table(means: Means) -> Table:
    rows = []
    for world in means.family.worlds:
        for exchanges in means.family.exchanges:
            scores = [means.score(world, name, exchanges) for name in ALGORITHMS]
            rows.append(
                [world.name, str(exchanges)]
                + ["–" if score is None else f"{score:.1f}" for score in scores]
                + [f"{means.above_rivals(world, exchanges):+.2f}"]
            )
    gaps = [means.above_rivals(world, count) for world in means.family.worlds for count in means.family.exchanges]
    said = f"once a round − best of {', '.join(RIVALS)}: at least −{WITHIN} in {sum(g >= -WITHIN for g in gaps)} of "
    return Table(["split", "exchanges", *ALGORITHMS, "− best"], plain(rows), caption=f"{said}{len(gaps)}")


def cost_table(means: Means) -> Table:
    """What all send, by the number of clients."""
    rows = []
    for world in means.family.worlds:
        for exchanges in means.family.exchanges:
            ends = [means.of(world, name, exchanges) for name in ALGORITHMS]
            told = ["–" if end is None else f"{end.messages:.0f} ({end.bytes / 1e6:.2f} MB)" for end in ends]
            rows.append([world.name, str(exchanges), *told])
    return Table(["messages of a client", "exchanges", *ALGORITHMS], plain(rows))


def stream_table(found: dict[str, End], seeds: Sequence[int]) -> Table:
    rows = []
    for world in STREAMS:
        for inner in INNER:
            ends = [
                [found[Case(world, name, STREAM_UPDATES // inner, inner, seed).key].score for seed in seeds]
                for name in STREAM_ALGORITHMS
            ]
            told = [f"{statistics.fmean(score for score in line if score is not None):.2f}" for line in ends]
            rows.append([world.name, str(inner), *told])
    heads = ["−log10 of the excess loss", "updates per exchange", *STREAM_ALGORITHMS]
    return Table(heads, plain(rows), caption=f"{STREAM_UPDATES} updates in all")


def draw(means: Means, path: Path) -> None:
    """Accuracy against bytes that a client sends; who sends nothing, or is told the clusters, is a level line."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    worlds, counts = means.family.worlds, means.family.exchanges
    with rc_context(RC):
        figure = Figure(figsize=(2.4 * len(worlds) + 0.6, 3.1), layout="constrained")
        axes = figure.subplots(1, len(worlds), squeeze=False)[0]
        for axis, world in zip(axes, worlds, strict=True):
            for name in ("local", "oracle"):
                score = means.score(world, name, counts[0])
                if score is not None:
                    axis.axhline(score, color=COLOURS[name], linestyle="--", linewidth=1.2, label=label(name))
            for name in ("all-for-one", *ONCE_A_ROUND):
                rounds = counts if name in ONCE_A_ROUND else counts[:1]
                ends = [end for count in rounds if (end := means.of(world, name, count)) is not None]
                x, y = [end.bytes for end in ends], [end.score for end in ends]
                axis.plot(x, y, marker="o", markersize=4, color=COLOURS[name], label=label(name))  # type: ignore[arg-type]
            axis.set(title=world.name, xscale="log", xlabel="bytes sent, per client")
        axes[0].set_ylabel("test accuracy, %")
        handles = {
            text: handle for axis in axes for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, fontsize=8)
        figure.savefig(path)


def chosen(name: str, splits: str | None, exchanges: str | None) -> Family:
    """A family, or less of it."""
    family = FAMILIES[name]
    kept = [world for world in family.worlds if not splits or world.name.split(", ")[1] in splits.split(",")]
    return Family(kept, tuple(map(int, exchanges.split(","))) if exchanges else family.exchanges)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[*FAMILIES, "streams"], default="digits")
    parser.add_argument("--splits", help="of " + ", ".join(SPLITS) + "; by default all")
    parser.add_argument("--exchanges", help="such as 6,10,30, each of which divides the number of updates")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help=f"the first so many of {SEEDS}")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--markdown", action="store_true", help="tables for a document")
    parser.add_argument("--picture", type=Path, help="where to draw accuracy against bytes")
    parser.add_argument("--out", type=Path, default=Path("out/exchange.jsonl"))
    options = parser.parse_args()
    seeds = SEEDS[: options.seeds]
    if options.only == "streams":
        tables = [stream_table(measure(stream_cases(seeds), options.out, options.workers), seeds)]
    else:
        family = chosen(options.only, options.splits, options.exchanges)
        means = Means(family, measure(cases(family, seeds), options.out, options.workers), seeds)
        tables = [score_table(means), cost_table(means)]
        if options.picture:
            draw(means, options.picture)
    show(tables, options.markdown)


if __name__ == "__main__":
    main()
