"""What it does to distances, weights and models that sites tell mean gradients by a count sketch (`--sketch`).

    python -m benchmarks.sketched

Digits dealt in two ways, with a network of 62 thousand numbers: the same run with whole gradients and with sketches.
"""

import argparse

import torch
from rich.progress import track
from torch import nn

import allforone as afo
from allforone.machines.loop import Loop
from allforone.reports.table import Table, plain
from allforone.runs import Given, Result, execute, parse, prepare

from .shown import show

#: Of a network 64 → WIDTH → 10.
WIDTH = 826
SIZES = (0, 4096, 1024, 256, 64)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))


def problem(split: str, seed: int) -> afo.Problem:
    dealt = afo.digits(split=split, seed=seed)
    return afo.Problem(network, dealt.loss, metrics=dealt.metrics, settings=dealt.settings, clients=dealt.clients)


def trained(learned: afo.Problem, seed: int, rounds: int, size: int) -> tuple[Result, float]:
    """A run, and the bytes of all answers to a look."""
    fleet = Loop(learned, seed=seed, sketch=size)
    config = parse({"problem": "python", "seed": seed, "rounds": rounds, "fleet": "loop"})
    answered: list[int] = []
    usual = fleet.look

    def look(*given: object) -> afo.fleet.Look:
        before = sum(contact.received for contact in fleet.contacts())
        found = usual(*given)  # type: ignore[arg-type]
        answered.append(sum(contact.received for contact in fleet.contacts()) - before)
        return found

    fleet.look = look  # type: ignore[method-assign]
    result = execute(prepare(config, Given(learned, afo.AllForOne())), fleet=fleet)
    return result, sum(answered) / len(answered)


def distance_error(learned: afo.Problem, seed: int, models: afo.fleet.Models, size: int) -> float:
    """Of the squared distances between clients' gradients at these models: root mean square, relative."""
    looks = []
    for width in (0, size):
        fleet = Loop(learned, seed=seed, sketch=width)
        round = fleet.begin(1, range(1))
        looks.append(fleet.look(models, round, afo.fleet.everybody(len(fleet.roster)), 16, 64).distance)
    others = ~torch.eye(len(looks[0])).bool()
    return float((looks[1] / looks[0] - 1)[others].square().mean().sqrt())


def accuracy(result: Result) -> float:
    last = result.metrics["round"].max()
    return 100 * float(result.metrics.filter(result.metrics["round"] == last)["accuracy"].mean())  # type: ignore[arg-type]


def measure(splits: list[str], seed: int, rounds: int) -> list[list[str]]:
    rows = []
    for split, size in track([(split, size) for split in splits for size in SIZES], "measuring …", transient=True):
        learned = problem(split, seed)
        result, answered = trained(learned, seed, rounds, size)
        if not size:
            whole = result
        moved = (result.weights - whole.weights).abs().sum(-1).mean() / 2
        error = distance_error(learned, seed, whole.stacked, size) if size else 0.0
        found = [f"{100 * error:.1f} %", f"{100 * moved:.1f} %", f"{accuracy(result):.1f}", f"{answered / 1e6:.3g} MB"]
        rows.append([split, str(size or "whole"), *found])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", default="dirichlet,cluster")
    parser.add_argument("--seed", type=int, default=127)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--markdown", action="store_true", help="a table for a document")
    given = parser.parse_args()
    rows = measure(given.splits.split(","), given.seed, given.rounds)
    heads = ["digits", "sketch", "error of distances", "weight moved", "accuracy, %", "answers to a look"]
    table = Table(heads, plain(rows))
    show([table], given.markdown)


if __name__ == "__main__":
    main()
