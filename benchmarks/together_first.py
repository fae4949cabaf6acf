"""Why All-for-one is not first where labels are skewed: models that begin as one and part later end better.

    python -m benchmarks.together_first                       # digits, dealt in five ways; some minutes
    python -m benchmarks.together_first --seeds 127 496 1729  # the leaderboard's

Together for so many rounds: everybody's gradients count by data size, then All-for-one decides. Last weights: those
that it ends with, from the first round on. Round: with one exchange a round. What was measured once is kept in --out
and not measured again.
"""

import argparse
import statistics
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from allforone.algorithms import AllForOne, Local, advance
from allforone.algorithms.base import Info, Memory, State, Weighted
from allforone.fleet import Fleet, Round
from allforone.leaderboard.settings import DEALS
from allforone.problems import digits
from allforone.reports.table import Table, plain

from .judge import Averaged, Key, Make, measure, score
from .shown import show
from .worlds import World

#: Not those of the leaderboard.
SEEDS = (11, 12, 13)
ROUNDS = 30


@dataclass(frozen=True, eq=False)
class Fixed(Weighted):
    weights: Tensor

    def collaborate(self, state: State, fleet: Fleet, round: Round) -> tuple[Info, Memory]:
        return Info(self.weights), {}


def last_weights(world: World, seed: int) -> Tensor:
    """Those with which All-for-one ends, mean over five rounds."""
    fleet, optimizer, rounds, inner = world.begin(seed)
    algorithm = AllForOne()
    state, found = algorithm.init(fleet.initial(), optimizer), []
    for number in range(rounds):
        round = fleet.begin(number + 1, range(number * inner, (number + 1) * inner))
        state, info = advance(algorithm, state, fleet, round)
        found.append(info.weights)
    return torch.stack(found[-5:]).mean(0)


RULES: dict[str, Make] = {
    "Local": Local,
    "averaged": Averaged,
    "All-for-one": AllForOne,
    "its last weights": partial(Fixed, torch.empty(0)),
    **{f"together for {rounds}": partial(AllForOne, together=rounds) for rounds in (5, 10, 20)},
    **{f"round, {rounds}": partial(AllForOne, exchange="round", together=rounds or None) for rounds in (0, 20)},
}
#: What Dirichlet must leave everybody.
LEAST = {"least": 50}
WORLDS = [
    World(told, partial(digits, **options, **(LEAST if "concentration" in options else {})), rounds=ROUNDS)
    for told, options in DEALS.values()
]


def scored(world: World, rule: Make, seed: int) -> float | None:
    fixed = isinstance(rule, partial) and rule.func is Fixed
    return score(world, partial(Fixed, last_weights(world, seed)) if fixed else rule, seed)


def table(found: dict[Key, float], worlds: list[World]) -> Table:
    def mean(world: World, rule: str) -> str:
        return f"{statistics.fmean(found[world.name, rule, seed] for seed in world.seeds):.1f}"

    rows = [[world.name, *(mean(world, rule) for rule in RULES)] for world in worlds]
    return Table([f"test %, {ROUNDS} rounds", *RULES], plain(rows), caption=f"seeds {[*worlds[0].seeds]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--markdown", action="store_true", help="a table for a document")
    parser.add_argument("--out", type=Path, default=Path("out/together-first.jsonl"))
    options = parser.parse_args()
    worlds = [replace(world, seeds=tuple(options.seeds)) for world in WORLDS]
    made = table(measure(worlds, RULES, options.out, options.workers, scored), worlds)
    show([made], options.markdown)


if __name__ == "__main__":
    main()
