"""What few partners keep of the gain that all bring, and how soon a crowd that looks at few finds its clusters.

    python -m benchmarks.few                 # both tables; half an hour, and longer where ALLFORONE_DATA has Mnist
    python -m benchmarks.few --only found    # one of them

What was measured once is kept in --out and not measured again: delete it after a change of the rule.
"""

import argparse
import math
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from allforone.algorithms import AllForOne, Local, advance
from allforone.problems import digits, mnist, synthetic
from allforone.reports.table import Table, plain

from .judge import Make, Means, measure
from .shown import show
from .worlds import World

SEEDS = (127, 496, 1729)
PARTNERS = (32, 16, 8, 4, 2)
CROWD = partial(AllForOne, partners=16, candidates=32)
RULES: dict[str, Make] = {
    "local": Local,
    "all": AllForOne,
    **{str(count): partial(AllForOne, partners=count) for count in PARTNERS},
    "16 of 32 candidates": CROWD,
}
CLUSTER = 50  #: clients in each of the two clusters of a hundred
NOISY = World(
    "synthetic, N = 100, d = 10, noise 1",
    partial(synthetic, dimension=10, clients=100, noise=1.0),
    seeds=SEEDS,
    rounds=60,
)
WORLDS = [
    World("synthetic, N = 100, d = 4", partial(synthetic, dimension=4, clients=100), seeds=SEEDS, rounds=60),
    NOISY,
    World("digits, N = 60", partial(digits, clients=60), "digits", SEEDS),
]
MNIST = World(
    "Mnist, N = 20, 150 images", partial(mnist, samples_per_client=150), "mnist", SEEDS[:1], rounds=10, inner=20
)
#: Rounds in which clusters must be found, for good.
ROUNDS = 60
#: The share of the weight on others that must lie inside the true clusters.
INSIDE = 0.95
#: Partners that at least half of the clients must have.
COMPANY = 8
CLIENTS = (50, 100, 200, 400)


def kept_table(means: Means, worlds: list[World]) -> Table:
    rows = []
    for world in worlds:
        alone, together = means.of(world, "local"), means.of(world, "all")
        assert alone is not None and together is not None
        shares = [_share(means, world, rule, together - alone) for rule in list(RULES)[2:]]
        unit = "decades" if world.decades else "points"
        rows.append([world.name, f"{alone:.1f}", f"{together:.1f}", f"{together - alone:.1f} {unit}", *shares])
        if world.name == NOISY.name:
            rows.append(["were noise all that is left", "", "", "", *_noise_alone(together - alone)])
    return Table(["world", "Local", "all partners", "gain", *list(RULES)[2:]], plain(rows))


def _noise_alone(gain: float) -> list[str]:
    """A step that averages 1 + p batches and not all 50 of a cluster leaves log10(50/(1 + p)) decades more."""
    counts = [*PARTNERS, 16]
    return [f"{100 * (1 - math.log10(max(1.0, CLUSTER / (1 + count))) / gain):.0f} %" for count in counts]


def _share(means: Means, world: World, rule: str, gain: float) -> str:
    mean, error = means.above(world, rule, "local") if len(world.seeds) > 1 else (_gain(means, world, rule), math.nan)
    return f"{100 * mean / gain:.0f} %" + ("" if math.isnan(error) else f" ± {100 * error / gain:.0f}")


def _gain(means: Means, world: World, rule: str) -> float:
    mine, alone = means.of(world, rule), means.of(world, "local")
    assert mine is not None and alone is not None
    return mine - alone


def crowds() -> Iterator[World]:
    """Of every size, one in two clusters and one in clusters of twenty."""
    for n in CLIENTS:
        for name, count in (("2 clusters", 2), ("clusters of 20", n // 20)):
            made = partial(synthetic, dimension=4, clients=n, clusters=count)
            yield World(f"{n} clients, {name}", made, seeds=SEEDS, rounds=ROUNDS)


def found(world: World, rule: Make, seed: int) -> float | None:
    """The first round from which on, to the end, weights are as they should be; None if they never are."""
    torch.set_num_threads(1)
    fleet, optimizer, rounds, inner = world.begin(seed)
    algorithm, clusters = rule(), torch.tensor(fleet.roster.clusters)
    state, wrong = algorithm.init(fleet.initial(), optimizer), 0
    for number in range(1, rounds + 1):
        round = fleet.begin(number, range((number - 1) * inner, number * inner))
        state, info = advance(algorithm, state, fleet, round)
        wrong = wrong if knows_its_cluster(info.weights, clusters) else number
    return None if wrong == rounds else wrong + 1


def knows_its_cluster(weights: Tensor, clusters: Tensor) -> bool:
    others = weights.clone().fill_diagonal_(0)
    inside = torch.where(clusters[:, None] == clusters, others, 0).sum() >= INSIDE * others.sum()
    return bool(inside) and float(((others != 0).sum(1) >= COMPANY).double().mean()) >= 0.5


def found_table(means: Means, worlds: list[World]) -> Table:
    def rounds(world: World) -> str:
        values = [means.found[world.name, "crowd", seed] for seed in world.seeds]
        return ", ".join("–" if value is None else f"{value:.0f}" for value in values)

    pairs = zip(worlds[::2], worlds[1::2], strict=True)
    rows = [[str(n), *map(rounds, pair)] for n, pair in zip(CLIENTS, pairs, strict=True)]
    return Table(["clients", "2 clusters", "clusters of 20"], plain(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("kept", "found"))
    parser.add_argument("--seeds", type=int, help="of each world, the first so many; by default all")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--markdown", action="store_true", help="tables for a document")
    parser.add_argument("--out", type=Path, default=Path("out/few.jsonl"))
    options = parser.parse_args()
    tables = []

    def some(worlds: list[World]) -> list[World]:
        return [replace(world, seeds=world.seeds[: options.seeds]) for world in worlds]

    if options.only != "found":
        worlds = some([*WORLDS, *([MNIST] if "ALLFORONE_DATA" in os.environ else [])])
        tables.append(kept_table(Means(measure(worlds, RULES, options.out, options.workers)), worlds))
    if options.only != "kept":
        worlds = some(list(crowds()))
        means = Means(measure(worlds, {"crowd": CROWD}, options.out, options.workers, found))
        tables.append(found_table(means, worlds))
    show(tables, options.markdown)


if __name__ == "__main__":
    main()
