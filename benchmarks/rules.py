"""What goes wrong without each rule of the estimator: one small picture each. `make pictures` draws them."""

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars
import torch
from rich.progress import track
from torch import Tensor

from allforone.algorithms import Algorithm, AllForOne, Local
from allforone.collaboration import Estimate, UpdateBatches, continuous, update_batches
from allforone.fleet import Attack, Attacked, Fleet, Models, Optimizer, Round, Stacked
from allforone.problems import Problem, synthetic
from allforone.reports.figures import RC
from allforone.reports.style import COLOURS
from allforone.runs import PAPER_SEEDS

from .contestants import trained


class Biased(UpdateBatches):
    """The noise stays in what is compared."""

    def __call__(self, fleet: Fleet, models: Models, memory: Any, round: Round) -> tuple[Estimate, Any]:
        def compare(*args: Any, **options: Any) -> Any:
            found = honest(*args, **options)
            assert found.noise is not None
            own = found.noise.diagonal()
            return found._replace(distance=found.distance + own[:, None] + found.noise, norm=found.norm + own.diag())

        honest = fleet.compare
        with patch.object(fleet, "compare", compare):
            return super().__call__(fleet, models, memory, round)


class Hasty(UpdateBatches):
    """The batches that are weighed decide on their weights."""

    def __call__(self, *args: Any) -> tuple[Estimate, Any]:
        estimate, memory = super().__call__(*args)
        similarity, variance = update_batches.similarity_and_variance(memory)
        return estimate._replace(similarity=similarity, variance=variance), memory


class Trustful(UpdateBatches):
    def __call__(self, *args: Any) -> tuple[Estimate, Any]:
        estimate, memory = super().__call__(*args)
        return estimate._replace(trust=None), memory


class Equal(UpdateBatches):
    def __call__(self, *args: Any) -> tuple[Estimate, Any]:
        estimate, memory = super().__call__(*args)
        return estimate._replace(variance=torch.ones_like(estimate.variance)), memory


def unequal(seed: int) -> Problem:
    """Every other pair of clients has labels thirty times as noisy as the rest."""
    problem = synthetic(seed=seed, dimension=10)
    for number, client in enumerate(problem.clients):
        client.train.noise = 9.0 if number % 4 < 2 else 0.3  # type: ignore[union-attr]
    return problem


@dataclass(frozen=True)
class Rule:
    title: str
    problem: Callable[..., Problem]
    shown: str
    rounds: int
    without: UpdateBatches = UpdateBatches()  # noqa: RUF009  (a value, never changed)
    patched: Callable[[], AbstractContextManager[Any]] = nullcontext
    attack: str | None = None


TEN, TWO = partial(synthetic, dimension=10), partial(synthetic, dimension=2)
RULES = [
    Rule("The noise is taken off", TEN, "d = 10", 100, Biased()),
    Rule(
        "One's own noise is a floor",
        TEN,
        "d = 10",
        100,
        patched=lambda: patch.object(update_batches, "NOISE_FLOOR", 0.0),
    ),
    Rule("Only the past decides", TEN, "d = 10", 100, Hasty()),
    Rule("The past is remembered", TWO, "4 of 20 send noise", 40, UpdateBatches(memory=0), attack="noise:4"),
    Rule(
        "Nearness is not saved up",
        TWO,
        "4 of 20 send noise",
        40,
        attack="noise:4",
        patched=lambda: patch.object(update_batches, "bounded", lambda distance, size: distance),
    ),
    Rule(
        "Who does not pull is no partner",
        TWO,
        "4 of 20 send zeros",
        40,
        attack="zeros:4",
        patched=lambda: patch.object(update_batches, "IDLE", -1.0),
    ),
    Rule("Trust is bounded", partial(TWO, spread=1.0), "d = 2, every optimum another", 40, Trustful()),
    Rule(
        "Progress makes the past tell less",
        partial(TWO, spread=1.0),
        "d = 2, every optimum another",
        40,
        patched=lambda: patch.object(update_batches, "progress", lambda before, now: torch.ones_like(now)),
    ),
    Rule("Noise weighs less", unequal, "half of the labels very noisy", 100, Equal()),
]


def curve(rule: Rule, algorithm: Algorithm) -> Tensor:
    """[rounds + 1], the mean of log10 of the honest clients' excess loss, over the seeds."""
    curves = []
    for seed in PAPER_SEEDS:
        problem = rule.problem(seed=seed)
        honest = Stacked(problem, seed=seed)
        attacked = Attacked(honest, Attack.parse(rule.attack)) if rule.attack else None
        liars = attacked.liars if attacked else []
        optimizer = Optimizer(partial(torch.optim.SGD, lr=problem.settings.optimizer["lr"]))
        metrics = trained(attacked or honest, problem, algorithm, optimizer, rule.rounds).metrics
        others = metrics.filter(~polars.col("client").is_in(liars)).sort("round", "client")
        excess = others["excess_loss"].to_torch().reshape(rule.rounds + 1, -1)
        curves.append(excess.clamp(min=1e-28).log10().mean(1))
    return torch.stack(curves).mean(0)


def curves(rule: Rule) -> dict[str, Tensor]:
    found = {"with the rule": curve(rule, AllForOne())}
    with rule.patched():
        found["without it"] = curve(rule, AllForOne(continuous(), rule.without))
    return {**found, "Local": curve(rule, Local())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/rules.png"))
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    drawn = {rule: curves(rule) for rule in track(RULES, "running with and without each rule …")}
    for rule, found in drawn.items():
        print(f"{rule.title}: " + ", ".join(f"{name} {float(values[-1]):.1f}" for name, values in found.items()))
    draw(drawn, options.out)


def draw(drawn: dict[Rule, dict[str, Tensor]], path: Path) -> None:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    looks = {
        "with the rule": (COLOURS["all-for-one-binary"], "-"),
        "without it": (COLOURS["fedavg"], "-"),
        "Local": ("0.55", "--"),
    }
    with rc_context(RC):
        figure = Figure(figsize=(8.4, 7.6), layout="constrained")
        axes = figure.subplots(3, 3)
        for axis, (rule, found) in zip(axes.flat, drawn.items(), strict=True):
            for name, values in found.items():
                colour, style = looks[name]
                axis.plot(values, color=colour, linestyle=style, label=name)
            axis.set_title(f"{rule.title}\n", fontsize=9, fontweight="bold", loc="left")
            axis.text(0, 1.03, rule.shown, transform=axis.transAxes, fontsize=8, color="0.35")
        for axis in axes[-1]:
            axis.set_xlabel("rounds")
        for axis in axes[:, 0]:
            axis.set_ylabel("log10 excess loss")
        handles, labels = axes.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        figure.savefig(path, dpi=140)


if __name__ == "__main__":
    main()
