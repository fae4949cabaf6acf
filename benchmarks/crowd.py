"""What a round costs as clients become many: processor time, and the memory of a process of its own.

python -m benchmarks growth                       # the table
python -m benchmarks.crowd --case few 10000 2     # one row of it, of so many clients and rounds
python -m benchmarks.crowd --run 2000 100         # a whole run, with its folder
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from allforone.algorithms import Algorithm, AllForOne, Local, advance
from allforone.fleet import Stacked
from allforone.runs import PYTHON, Given, execute, parse, prepare

from .contestants import SGD, vectors

FEW = partial(AllForOne, partners=16, candidates=32)
RULES: dict[str, Callable[[], Algorithm]] = {"few": FEW, "all": AllForOne, "local": Local}
CLIENTS = (100, 200, 400, 1000, 2000)
#: More clients than these are not made to ask all others.
MOST_FOR_ALL = 200
UPDATES, ROUNDS = 10, 4


def case(rule: str, clients: int, rounds: int = ROUNDS) -> dict[str, Any]:
    """Rounds of ten updates, in this process, on one core; the first, which warms up, is not counted."""
    torch.set_num_threads(1)
    fleet, algorithm, taken = Stacked(vectors(clients), seed=0, batch_size=16), RULES[rule](), []
    state = algorithm.init(fleet.initial(), SGD)
    for number in range(rounds):
        start = time.process_time()
        round = fleet.begin(number + 1, range(number * UPDATES, (number + 1) * UPDATES))
        state = advance(algorithm, state, fleet, round)[0]  # what the round tells is let go, as training does
        taken.append(time.process_time() - start)
    seconds = statistics.median(taken[1:])
    return {
        "algorithm": {"few": "16 partners, 32 candidates", "all": "all partners", "local": "Local"}[rule],
        "clients": clients,
        "seconds_per_round": seconds,
        "milliseconds_per_client": 1000 * seconds / clients,
        "peak_mb": peak(),
    }


def growth() -> Iterator[dict[str, Any]]:
    """Every case in a process of its own, whose memory is its own."""
    for rule in RULES:
        for clients in CLIENTS:
            if rule != "all" or clients <= MOST_FOR_ALL:
                command = [sys.executable, "-m", "benchmarks.crowd", "--case", rule, str(clients), str(ROUNDS)]
                yield json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def whole_run(clients: int, rounds: int, inner: int) -> dict[str, Any]:
    """Through the training loop into a folder, evaluated every ten rounds: the most memory so far, by round."""
    torch.set_num_threads(1)
    config = parse({"problem": PYTHON, "rounds": rounds, "inner": inner, "batch_size": 16, "evaluate_every": 10})
    most, start = {}, time.process_time()

    def on_round(record: Any) -> None:
        most[record.number] = peak()

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        execute(prepare(config, Given(vectors(clients), FEW())), folder, on_round=on_round)
        sizes = {file.name: file.stat().st_size / 1e6 for file in folder.iterdir()}
    return {
        "clients": clients,
        "rounds": rounds,
        "updates_per_round": inner,
        "seconds": time.process_time() - start,
        "peak_mb": most,
        "folder_mb": sum(sizes.values()),
        "files_mb": sizes,
    }


def peak() -> int:
    """The most memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs=3, metavar=("RULE", "CLIENTS", "ROUNDS"), help=f"of {', '.join(RULES)}")
    parser.add_argument("--run", type=int, nargs=2, metavar=("CLIENTS", "ROUNDS"))
    parser.add_argument("--inner", type=int, default=UPDATES, help="updates of a round of --run")
    options = parser.parse_args()
    if options.case:
        rule, clients, rounds = options.case
        print(json.dumps(case(rule, int(clients), int(rounds))))
    if options.run:
        print(json.dumps(whole_run(*options.run, options.inner), indent=1))


if __name__ == "__main__":
    main()
