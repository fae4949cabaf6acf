"""What goes wrong without each part of All-for-one's rule: one line and one small picture each. `make pictures` draws
them."""

import argparse
import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from rich.progress import track
from torch import Tensor

from allforone.algorithms import Algorithm, AllForOne, Local, advance, all_for_one
from allforone.collaboration import Memory, decision
from allforone.collaboration import least_error as rule
from allforone.fleet import Fleet
from allforone.problems import digits, synthetic
from allforone.reports.figures import RC
from allforone.reports.style import COLOURS
from allforone.runs import PAPER_SEEDS

from .worlds import World, one_class, unequal, unlike_noise

Without = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Part:
    title: str
    world: World
    without: Without


def constant(name: str, value: float) -> Without:
    return lambda: patch.object(rule, name, value)


def told(function: str, change: Callable[..., tuple[Any, ...]]) -> Without:
    """A function of the rule hears something else than what is."""
    true = getattr(rule, function)
    return lambda: patch.object(rule, function, lambda *heard: true(*change(*heard)))


def weighing(kappa: float) -> Without:
    return told(
        "weigh_up", lambda memory, setting, true, *others: (memory, setting, torch.full_like(true, kappa), *others)
    )


def remembering(change: Callable[[Memory], Memory]) -> Without:
    return told("weigh_up", lambda memory, *others: (memory | change(memory), *others))


def setting(**values: float) -> Without:
    def change(memory: Memory, true: rule.Setting, *others: Tensor) -> tuple[Any, ...]:
        other = {name: torch.full_like(getattr(true, name), value) for name, value in values.items()}
        return memory, true._replace(**other), *others

    return told("weigh_up", change)


def own_noise(memory: Memory) -> Memory:
    """Everybody is as noisy as oneself."""
    own = (memory["noise"] / memory["seen"].clamp(min=1e-12)).diagonal()[:, None]
    return {"noise": own * memory["seen"] / memory["ratio"].exp()}


def strangers_tell() -> AbstractContextManager[Any]:
    """Of one's own noise, whoever differs from oneself tells as much as a twin."""
    true = rule.noises

    def noises(memory: Memory, setting: rule.Setting) -> rule.Noise:
        with patch.object(rule, "surely", lambda difference: torch.zeros_like(difference.length)):
            return true(memory, setting)

    return patch.object(rule, "noises", noises)


TWO, TEN = World("d = 2, clusters", synthetic), World("d = 10, clusters", partial(synthetic, dimension=10), rounds=100)
NOISY = World("d = 10, clusters, noisy labels", partial(synthetic, dimension=10, noise=1.0), rounds=100)
OTHERS = World("d = 2, every optimum another", partial(synthetic, spread=1.0))
FAR = World("d = 2, optima far apart", partial(synthetic, spread=3.0))
SMALL = World("small step, noisy labels", partial(synthetic, spread=1.0, noise=1.0), rounds=100, lr=1 / 64)
UNLIKE = World("half of the labels very noisy", unlike_noise, rounds=100)
ZEROS = World("d = 2, 4 of 20 send zeros", synthetic, "attacks", attack="zeros:4")
NOISE = World("d = 2, 4 of 20 send noise", synthetic, "attacks", attack="noise:4")
DIRICHLET = World("digits, Dirichlet", partial(digits, split="dirichlet"), "digits")
UNEQUAL = World("digits, unequal sizes", unequal, "digits")
ONE_CLASS = World("digits, shards, two of one class", one_class, "digits", rounds=150)

PARTS = [
    Part(
        "Both ways are tried",
        FAR,
        lambda: patch.object(all_for_one, "race", lambda together, begun, *_: (together, begun)),
    ),
    Part("Chance is taken off", TEN, remembering(lambda memory: {"spread": 0 * memory["spread"]})),
    Part("Differences are averaged", NOISY, constant("DIFFERENCE_KEPT", 0.0)),
    Part("Sizes are smoothed", TWO, constant("SIZE_KEPT", 0.0)),
    Part("Only the past decides", TWO, lambda: patch.object(decision, "where_rows", lambda _, before, now: now)),
    Part("Noise counts by the step", SMALL, weighing(kappa=1.0)),
    Part("Care at one's optimum", OTHERS, weighing(kappa=0.5)),  # which is ηβ there
    Part("Noise has its price", UNLIKE, remembering(own_noise)),
    Part("Who does not pull is no partner", ZEROS, constant("IDLE", -1.0)),
    Part("Trust is bounded", NOISE, lambda: patch.object(rule, "trust", lambda _, look, *others: look.norm.isfinite())),
    Part(
        "Its bound follows the step",
        SMALL,
        told("trust", lambda *seen: (*seen[:3], torch.full_like(seen[3], rule.REACH))),
    ),
    Part("Few samples mislead", UNEQUAL, setting(rarity=0.0)),
    Part("Fitted samples hide noise", DIRICHLET, setting(unfitted=1.0)),
    Part("Strangers do not tell it", ONE_CLASS, strangers_tell),
]


def scores(world: World, algorithm: Algorithm, seed: int) -> Iterator[float]:
    """After every round, of the honest clients: the mean of log10 of the excess loss, or of the accuracy in percent."""
    fleet, optimizer, rounds, inner = world.begin(seed)
    state = algorithm.init(fleet.initial(), optimizer)
    for number in range(rounds):
        steps = range(number * inner, (number + 1) * inner)
        state, _ = advance(algorithm, state, fleet, fleet.begin(number + 1, steps))
        yield score(fleet, state.models)


def score(fleet: Fleet, models: dict[str, Tensor]) -> float:
    found = fleet.evaluate(models, fleet.begin(0, range(0)))
    values = 100 * found.metrics["accuracy"] if found.excess is None else found.excess.clamp(min=1e-28).log10()
    liars = getattr(fleet, "liars", [])
    return statistics.fmean(float(value) for k, value in enumerate(values) if k not in liars)


def curve(world: World, algorithm: Algorithm) -> Tensor:
    return torch.tensor([list(scores(world, algorithm, seed)) for seed in PAPER_SEEDS]).mean(0)


@cache
def whole(world: World) -> dict[str, Tensor]:
    """What several parts are compared with."""
    return {"the rule": curve(world, AllForOne()), "Local": curve(world, Local())}


def curves(part: Part) -> dict[str, Tensor]:
    with part.without():
        missing = curve(part.world, AllForOne())
    return {"the rule": whole(part.world)["the rule"], "without it": missing, "Local": whole(part.world)["Local"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/rules.png"))
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    drawn = {}
    for part in track(PARTS, "running with and without each part …"):
        drawn[part] = curves(part)
        last = ", ".join(f"{name} {float(values[-1]):.2f}" for name, values in drawn[part].items())
        print(f"{part.title} ({part.world.name}): {last}", flush=True)
    draw(drawn, options.out)


def draw(drawn: dict[Part, dict[str, Tensor]], path: Path) -> None:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    looks = {
        "the rule": (COLOURS["all-for-one"], "-"),
        "without it": (COLOURS["all-for-one-binary"], "-"),
        "Local": ("0.55", "--"),
    }
    columns = 3
    rows = -(-len(drawn) // columns)
    with rc_context(RC):
        figure = Figure(figsize=(8.4, 2.5 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
        for number, (axis, (part, found)) in enumerate(zip(axes.flat, drawn.items(), strict=False)):
            for name, values in found.items():
                colour, style = looks[name]
                axis.plot(range(1, len(values) + 1), values, color=colour, linestyle=style, label=name)
            axis.set_title(f"{part.title}\n", fontsize=9, fontweight="bold", loc="left")
            axis.text(0, 1.03, part.world.name, transform=axis.transAxes, fontsize=8, color="0.35")
            if number % columns == 0 or not part.world.decades:
                axis.set_ylabel("log10 excess loss" if part.world.decades else "accuracy %")
            if number + columns >= len(drawn):
                axis.set_xlabel("rounds")
        for axis in axes.flat[len(drawn) :]:
            axis.remove()
        handles, labels = axes.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        figure.savefig(path, dpi=140)


if __name__ == "__main__":
    main()
