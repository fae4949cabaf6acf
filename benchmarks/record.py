"""`python -m benchmarks.record`: what it costs to write down and report a run of many clients: disk, memory, time.

Nobody trains: weights are made up, of at most 64 partners each, all tables are told, and every round is another.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn import functional

from allforone.algorithms import Algorithm, Info, State
from allforone.fleet import Fleet, Round
from allforone.problems import Client, Problem
from allforone.runs import Given, execute, parse, prepare, training
from allforone.runs.tables_file import TablesFile

CASES = ((200, 250), (200, 1000), (2000, 100))
PARTNERS = 64


class MadeUp(Algorithm):
    """Trains nothing and tells new weights in every round."""

    def step(self, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
        n, random = len(fleet.roster), torch.Generator().manual_seed(round.number)
        table = torch.full((n, n), torch.nan, dtype=torch.float64)
        others = torch.randint(n, (n, PARTNERS - 1), generator=random)
        told = torch.rand(n, PARTNERS - 1, generator=random, dtype=torch.float64)
        weights = torch.eye(n, dtype=torch.float64).scatter(1, others, told)
        table = table.scatter(1, others, told)
        return state, Info(weights / weights.sum(1, keepdim=True), 1 - table, bias=table, noise=table, trust=table)


def measure(clients: int, rounds: int) -> dict[str, Any]:
    """One run, in this process."""
    data = (torch.zeros(2, 2), torch.zeros(2, 1))
    problem = Problem(nn.Linear(2, 1), functional.mse_loss, clients=[Client(data, data) for _ in range(clients)])
    config = parse({"problem": "python", "algorithm": "MadeUp", "rounds": rounds})
    spent = 0.0

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def work(*given: Any) -> Any:
            nonlocal spent
            start = time.perf_counter()
            found = function(*given)
            spent += time.perf_counter() - start
            return found

        return work

    training.Journal.save = timed(training.Journal.save)  # type: ignore[method-assign]
    TablesFile.append = timed(TablesFile.append)  # type: ignore[method-assign]
    peak, when = {}, {}

    def on_round(record: Any) -> None:
        peak[record.number] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        when[record.number] = time.perf_counter()

    with tempfile.TemporaryDirectory() as place:
        execute(prepare(config, Given(problem, MadeUp())), Path(place) / "run", on_round=on_round)
        taken = time.perf_counter() - when[0]
        size = sum(file.stat().st_size for file in (Path(place) / "run").iterdir()) / 1e6
        begun = time.perf_counter()
        command = [sys.executable, "-m", "allforone", "report", str(Path(place) / "run")]
        subprocess.run(command, check=True, capture_output=True)
        reporting = time.perf_counter() - begun
    return {
        "clients": clients,
        "rounds": rounds,
        "folder MB": size,
        "peak MB after a tenth": peak[rounds // 10],
        "after half": peak[rounds // 2],
        "at the end": peak[rounds],
        "seconds": taken,
        "share of time for weights and checkpoints": spent / taken,
        "seconds of allforone report": reporting,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", type=int, nargs=2, metavar=("CLIENTS", "ROUNDS"), help="only this, printed as JSON")
    case = parser.parse_args().case
    if case:
        print(json.dumps(measure(*case)))
        return
    rows = []
    for clients, rounds in CASES:  # each in a process of its own, whose memory is its own
        command = [sys.executable, "-m", "benchmarks.record", "--case", str(clients), str(rounds)]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*(f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
