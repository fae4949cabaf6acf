"""Our rivals against fluke's code: same clients, model, batches a round and step size; accuracy of the last round.

Where both are not the same by more than chance, a plain loop does what fluke's source does, and shows the cause.
`python -m benchmarks.crosscheck`, after `make .venv-fluke/installed`.
"""

import argparse
import copy
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import nn

from allforone.algorithms import Apfl, Ditto, FedALA, FedAMP, FedAvg, PFedMe
from allforone.results.paired import paired

from .by_fluke import MIXTURE, PENALTY, PULL, RATE, ROUNDS, STEPS, WIDTH
from .one_peer import average, epoch, trained
from .peers import FLUKE, ROOT
from .task import Task, accuracies, prepared, write_tasks

SEEDS = (127, 496, 1729)
#: How the digits are dealt to ten clients, beside what it is called.
DEALS: dict[str, dict[str, Any]] = {
    "dirichlet": {"split": "dirichlet", "concentration": 0.5, "least": 100},
    "shards": {"split": "shards"},
}
HEAD = "2.*"


def ours(task: Task, name: str) -> list[nn.Module]:
    algorithm, more = {
        "fedavg": (FedAvg(), {}),
        "fedbn": (FedAvg(), {"private": "batchnorm"}),
        "ditto": (Ditto(PENALTY), {}),
        "apfl": (Apfl(MIXTURE, adaptive=False), {}),
        "fedamp": (FedAMP(PULL * RATE, RATE, WIDTH), {}),
        "fedala": (FedALA(), {}),
        "fedper": (FedAvg(), {"private": HEAD}),
        "fedrep": (FedAvg(), {"private": HEAD, "alternate": task.steps}),
        "pfedme": (PFedMe(STEPS, PENALTY), {}),
    }[name]
    return trained(task, algorithm, ROUNDS, **more)


def apfl_of_fluke(task: Task) -> list[nn.Module]:
    """The gradient of the mixture is taken in a copy and reaches nothing: v_i ← (1 − α) w_i + α v_i, once a round."""

    def after(personal: nn.Module, local: nn.Module) -> None:
        with torch.no_grad():
            for own, other in zip(personal.parameters(), local.parameters(), strict=True):
                own.mul_(MIXTURE).add_(other, alpha=1 - MIXTURE)

    return rounds_of_fedavg(task, lambda model, data, optimizer: epoch(model, optimizer, data, task.batch), after)


def pfedme_of_fluke(task: Task) -> list[nn.Module]:
    """θ_i is held near itself, so that nothing holds it: K plain steps on each batch, then the mean of all θ_i."""

    def local(model: nn.Module, data: Any, optimizer: torch.optim.Optimizer) -> None:
        for places in torch.randperm(len(data[1])).split(task.batch):
            for _ in range(STEPS):
                optimizer.zero_grad()
                F.cross_entropy(model(data[0][places]), data[1][places]).backward()
                optimizer.step()

    return rounds_of_fedavg(task, local, lambda personal, model: personal.load_state_dict(model.state_dict()))


def rounds_of_fedavg(
    task: Task,
    train: Callable[[nn.Module, Any, torch.optim.Optimizer], object],
    after: Callable[[nn.Module, nn.Module], object],
) -> list[nn.Module]:
    """The personal models, which `after` makes of the local ones before these are averaged."""
    torch.manual_seed(task.seed)
    common, sizes = copy.deepcopy(task.model), [len(y) for _, y in task.train]
    local, personal = ([copy.deepcopy(common) for _ in sizes] for _ in range(2))
    optimizers = [torch.optim.SGD(model.parameters(), lr=task.lr) for model in local]
    for _ in range(ROUNDS):
        for k, data in enumerate(task.train):
            local[k].load_state_dict(common.state_dict())
            train(local[k], data, optimizers[k])
            after(personal[k], local[k])
        average(local, sizes, common)
    return personal


LIKE_FLUKE: dict[str, Callable[[Task], list[nn.Module]]] = {"apfl": apfl_of_fluke, "pfedme": pfedme_of_fluke}
NAMES = ("fedavg", "ditto", "fedamp", "fedala", "fedper", "fedrep", "fedbn", "apfl", "pfedme")

Found = dict[str, dict[str, list[list[float]]]]  # algorithm → who → seed by seed, the accuracy of each client


def with_batchnorm(task: Task) -> Task:
    first, relu, last = copy.deepcopy(task.model).children()
    return task._replace(model=nn.Sequential(first, nn.BatchNorm1d(first.out_features), relu, last))


def compare(deal: str, names: list[str], seeds: Sequence[int]) -> Found:
    found: Found = {name: {"ours": [], "fluke": [], "like fluke": []} for name in names}
    for seed in seeds:
        task = prepared("digits", seed, **DEALS[deal])
        tasks = {name: with_batchnorm(task) if name == "fedbn" else task for name in names}
        with tempfile.TemporaryDirectory() as folder:
            write_tasks(tasks, Path(folder) / "tasks.pt")
            command = [str(FLUKE), "-m", "benchmarks.by_fluke", str(Path(folder) / "tasks.pt")]
            said = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
        theirs = json.loads(said.strip().rpartition("\n")[2])
        for name, each in tasks.items():
            found[name]["fluke"].append(theirs[name])
            found[name]["ours"].append(accuracies(ours(each, name), each.test))
            if name in LIKE_FLUKE:
                found[name]["like fluke"].append(accuracies(LIKE_FLUKE[name](each), each.test))
    return found


def shown(values: list[list[float]]) -> str:
    """Mean over clients; deviation over seeds of that."""
    means = 100 * np.array(values).mean(1)
    return f"{means.mean():.1f} ± {means.std(ddof=1):.1f}" if len(means) > 1 else f"{means[0]:.1f}"


def difference(mine: list[list[float]], other: list[list[float]], comparisons: int) -> str:
    """Paired over clients and seeds; all true differences of a table lie in their brackets with 95 %."""
    found = paired((np.array(mine) - np.array(other)).T)
    low, high = found.interval(comparisons)
    return f"{100 * found.mean:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def table(deal: str, found: Found, seeds: Sequence[int]) -> Table:
    columns = ("algorithm", "ours", "fluke", "ours − fluke", "what fluke's code does", "that − fluke")
    made = Table(*columns, title=f"digits, {deal}: accuracy % after {ROUNDS} rounds, ten clients, seeds {[*seeds]}")
    for name, who in found.items():
        like = who["like fluke"]
        again = [shown(like), difference(like, who["fluke"], len(found))] if like else ["–", "–"]
        gap = difference(who["ours"], who["fluke"], len(found))
        made.add_row(name, shown(who["ours"]), shown(who["fluke"]), gap, *again)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deals", nargs="+", choices=list(DEALS), default=list(DEALS))
    parser.add_argument("--algorithms", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--out", type=Path, default=Path("out/crosscheck.json"))
    options = parser.parse_args()
    if not FLUKE.exists():
        sys.exit(f"{FLUKE.relative_to(ROOT)} is missing; `make .venv-fluke/installed` makes it")
    torch.set_num_threads(1)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    found: dict[str, Found] = {}
    for deal in options.deals:
        found[deal] = compare(deal, options.algorithms, options.seeds)
        options.out.write_text(json.dumps(found) + "\n")
        Console(width=130).print(table(deal, found[deal], options.seeds))


if __name__ == "__main__":
    main()
