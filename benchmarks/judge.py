"""All-for-one against Local, averaging and the true clusters, in worlds that differ in all that may matter.

    python -m benchmarks.judge                           # all for which the data are here; hours
    python -m benchmarks.judge --only digits,streams     # some families
    python -m benchmarks.judge --half tuned              # the half that constants were chosen on

What was measured once is kept in --out and not measured again: delete it after a change of the rule.
"""

import argparse
import json
import math
import statistics
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress

from allforone.algorithms import Algorithm, AllForOne, FedAvg, Local, Oracle, advance
from allforone.algorithms.base import Info, Memory, State, Weighted
from allforone.collaboration.simplex import least_quadratic
from allforone.fleet import Evaluation, Fleet, Round
from allforone.reports.table import Cell, Table, plain

from .shown import show
from .worlds import JUDGED, TUNED, World

HALVES = {"tuned": TUNED, "judged": JUDGED}
#: Where the best of the others gains less over training alone, a share of that gain says nothing.
LEAST_GAIN = {True: 0.3, False: 0.5}


class Averaged(Weighted):
    """One model for all, in effect: everybody's gradients at every update, by data size. FedAvg that talks always."""

    def collaborate(self, state: State, fleet: Fleet, round: Round) -> tuple[Info, Memory]:
        sizes = fleet.roster.sizes
        return Info((sizes / sizes.sum()).expand(len(sizes), -1)), {}


class BestWeights(Weighted):
    """The weights of least error if bias and noise were known, as they are of streams of the synthetic problem."""

    def collaborate(self, state: State, fleet: Fleet, round: Round) -> tuple[Info, Memory]:
        streams: list[Any] = [client.train for client in fleet.problem.clients]  # type: ignore[attr-defined]
        roots, optima = (torch.stack([getattr(stream, name) for stream in streams]) for name in ("root", "optimum"))
        hessians, label = roots @ roots, torch.tensor([stream.noise for stream in streams]).double()
        away = state.models["weight"][:, None, 0] - optima  # [i, k]: θ_i − θ*_k
        pull = torch.einsum("kab,ikb->ika", hessians, away)
        trace = hessians.diagonal(dim1=1, dim2=2).sum(1)
        noise = 4 * (trace * ((away * pull).sum(2) + label**2) + pull.square().sum(2))
        difference = 2 * (pull - pull.diagonal().T[:, None])
        kappa = (state.optimizer.step_size or 1.0) * (fleet.smoothness or 1.0)
        forms = difference @ difference.mT + torch.diag_embed(kappa / fleet.batch_size * noise.clamp(min=1e-60))
        return Info(least_quadratic(forms, torch.ones_like(noise, dtype=torch.bool))), {}


Make = Callable[[], Algorithm]

RULES: dict[str, Make] = {
    "local": Local,
    "fedavg": FedAvg,
    "averaged": Averaged,
    "oracle": Oracle,
    "all-for-one": AllForOne,
    "round": partial(AllForOne, exchange="round"),
    "corrected": partial(AllForOne, correct=True),
    "best-weights": BestWeights,
}
OTHERS = ("local", "fedavg", "averaged", "oracle")

Key = tuple[str, str, int]  #: world, rule, seed


def evaluated(world: World, rule: Make, seed: int) -> tuple[Evaluation, Fleet] | None:
    """What became of every client at the end, and who they were; None where the rule cannot run."""
    torch.set_num_threads(1)
    fleet, optimizer, rounds, inner = world.begin(seed)
    algorithm = rule()
    if algorithm.needs_clusters and fleet.roster.clusters is None:
        return None
    state = algorithm.init(fleet.initial(), optimizer)
    for number in range(rounds):
        state, _ = advance(
            algorithm, state, fleet, fleet.begin(number + 1, range(number * inner, (number + 1) * inner))
        )
    return fleet.evaluate(state.models, fleet.begin(0, range(0))), fleet


def score(world: World, rule: Make, seed: int) -> float | None:
    """The mean over the honest clients: accuracy in points, or −log10 of the excess loss; None where it cannot run."""
    done = evaluated(world, rule, seed)
    if done is None:
        return None
    found, fleet = done
    values = 100 * found.metrics["accuracy"] if found.excess is None else -found.excess.clamp(min=1e-28).log10()
    liars = getattr(fleet, "liars", [])
    return statistics.fmean(float(value) for k, value in enumerate(values) if k not in liars)


def accuracies(world: World, rule: Make, seed: int) -> list[float]:
    """Of every client, in percent."""
    done = evaluated(world, rule, seed)
    assert done is not None, f"{world.name}: its clusters are not known"
    return [float(value) for value in 100 * done[0].metrics["accuracy"]]


def measured(path: Path) -> dict[Key, Any]:
    lines = path.read_text().splitlines() if path.exists() else []
    return {(row["world"], row["rule"], row["seed"]): row["score"] for row in map(json.loads, lines)}


def measure(
    worlds: list[World],
    rules: Mapping[str, Make],
    path: Path,
    workers: int,
    scored: Callable[[World, Make, int], Any] = score,
) -> dict[Key, Any]:
    """All scores: those of the file, and the others, which it is given as they come."""
    found = measured(path)
    missing = [(w, r, s) for w in worlds for r in rules for s in w.seeds if (w.name, r, s) not in found]
    path.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(workers) as pool, path.open("a") as file, Progress(transient=True) as progress:
        bar = progress.add_task("judging …", total=len(missing))
        jobs = {pool.submit(scored, world, rules[rule], seed): (world, rule, seed) for world, rule, seed in missing}
        for job in as_completed(jobs):
            world, rule, seed = jobs[job]
            found[world.name, rule, seed] = job.result()
            row = {"world": world.name, "rule": rule, "seed": seed, "score": job.result()}
            file.write(json.dumps(row) + "\n")
            file.flush()
            progress.advance(bar)
    return found


class Means:
    """Scores over the seeds of a world; a difference has its standard error."""

    def __init__(self, found: dict[Key, float | None]) -> None:
        self.found = found

    def of(self, world: World, rule: str) -> float | None:
        values = [self.found.get((world.name, rule, seed)) for seed in world.seeds]
        return None if None in values else statistics.fmean(v for v in values if v is not None)

    def best(self, world: World) -> float:
        return max(mean for rule in OTHERS if (mean := self.of(world, rule)) is not None)

    def above(self, world: World, rule: str, other: str) -> tuple[float, float]:
        """By how much a rule is better than another, paired by seed: mean and standard error, NaN of a single seed."""
        gaps = [self.found[world.name, rule, s] - self.found[world.name, other, s] for s in world.seeds]  # type: ignore[operator]
        return statistics.fmean(gaps), statistics.stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else math.nan

    def above_best(self, world: World, rule: str) -> float:
        mine = self.of(world, rule)
        assert mine is not None, f"{rule} was not measured in {world.name}"
        return mine - self.best(world)

    def share(self, world: World, rule: str) -> float | None:
        """Its gain over Local, of that of the best of the others; None where that is next to nothing."""
        mine, alone = self.of(world, rule), self.of(world, "local")
        if mine is None or alone is None or self.best(world) - alone < LEAST_GAIN[world.decades]:
            return None
        return (mine - alone) / (self.best(world) - alone)


def world_table(worlds: list[World], rules: list[str], means: Means) -> Table:
    rows = []
    for world in worlds:
        values = [means.of(world, rule) for rule in rules]
        best = max(value for value in values if value is not None)
        gaps = [means.above(world, rule, "local") for rule in rules if rule not in OTHERS]
        rows.append(
            [
                Cell(world.name),
                *(Cell("–") if value is None else Cell(f"{value:.1f}", value == best) for value in values),
                *(Cell(f"{mean:+.2f} ± {error:.2f}") for mean, error in gaps),
            ]
        )
    gains = [f"{rule} − local" for rule in rules if rule not in OTHERS]
    return Table(["world", *rules, *gains], rows)


def summary_table(worlds: list[World], rules: list[str], means: Means) -> Table:
    rows = []
    for family in dict.fromkeys(world.family for world in worlds):
        inside = [world for world in worlds if world.family == family]
        for rule in (rule for rule in rules if rule not in OTHERS):
            shares = [share for world in inside if (share := means.share(world, rule)) is not None]
            worst = [
                min(means.above(world, rule, other)[0] for world in inside) if other in rules else None
                for other in ("local", "fedavg")
            ]
            worst.append(min(means.above_best(world, rule) for world in inside))
            gain = f"{100 * statistics.fmean(shares):.0f} %" if shares else "–"
            rows.append([family, rule, gain, *("–" if gap is None else f"{gap:+.2f}" for gap in worst)])
    heads = ["family", "rule", "of the attainable gain", "worst to Local", "worst to FedAvg", "worst to the best"]
    return Table(heads, plain(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=list(HALVES), default="judged")
    parser.add_argument("--only", help="families of worlds, such as digits,streams")
    parser.add_argument("--rules", default="local,fedavg,averaged,oracle,all-for-one", help="of " + ", ".join(RULES))
    parser.add_argument("--seeds", type=int, help="of each world, the first so many; by default all")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--markdown", action="store_true", help="tables for a document")
    parser.add_argument("--out", type=Path, help="by default out/judge-HALF.jsonl")
    options = parser.parse_args()
    worlds = [
        replace(world, seeds=world.seeds[: options.seeds])
        for world in HALVES[options.half]
        if not options.only or world.family in options.only.split(",")
    ]
    rules = list(dict.fromkeys(["local", *options.rules.split(",")]))
    if wrong := [rule for rule in rules if rule not in RULES]:
        parser.error(f"--rules: {wrong[0]!r} is none of {', '.join(RULES)}")
    out = options.out or Path(f"out/judge-{options.half}.jsonl")
    means = Means(measure(worlds, {rule: RULES[rule] for rule in rules}, out, options.workers))
    show((world_table(worlds, rules, means), summary_table(worlds, rules, means)), options.markdown)


if __name__ == "__main__":
    main()
