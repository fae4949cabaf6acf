"""`make bench-peers`: FedAvg and Ditto by allforone, by fluke and by plain PyTorch, on the same clients and samples."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

# Neither torch nor allforone may be imported here: Linux lets a child's peak memory start at that of its parent.

ROOT = Path(__file__).resolve().parent.parent
FLUKE = ROOT / ".venv-fluke/bin/python"
ROUNDS = {"digits": 50, "mnist": 3}
ALGORITHMS = ("fedavg", "ditto")

Row = dict[str, Any]


def child(python: str | Path, *arguments: object) -> str:
    """The last line that one measurement prints, in a process of its own."""
    command = [str(python), "-m", "benchmarks.one_peer", *map(str, arguments)]
    said = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    return said.strip().rpartition("\n")[2]


def compare(problem: str, pythons: dict[str, str | Path], repetitions: int, threads: int) -> list[Row]:
    """Everyone in turn, again and again, so that a slow moment of the machine hits them all; then medians."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        task = Path(folder) / "task.pt"
        child(sys.executable, "prepare", task, problem)
        for _ in range(repetitions):
            for algorithm in ALGORITHMS:
                for who, python in pythons.items():
                    said = child(python, who, task, algorithm, "--rounds", ROUNDS[problem], "--threads", threads)
                    found[algorithm, who].append(json.loads(said))
    return [
        {
            "problem": problem,
            "algorithm": algorithm,
            "who": who,
            **{key: statistics.median(run[key] for run in runs) for key in runs[0]},
        }
        for (algorithm, who), runs in found.items()
    ]


def table(rows: list[Row], threads: int) -> Table:
    shown = Table(
        "problem",
        "algorithm",
        "who",
        "s / round",
        "samples / round",
        "samples / s",
        "peak MB",
        "accuracy %",
        title=f"{threads} thread{'s' * (threads > 1)}",
    )
    for row in rows:
        speed = row["samples_per_round"] / row["seconds_per_round"]
        shown.add_row(
            row["problem"],
            row["algorithm"],
            row["who"],
            f"{row['seconds_per_round']:.3g}",
            f"{row['samples_per_round']:.0f}",
            f"{speed:,.0f}",
            f"{row['peak_mb']:.0f}",
            f"{100 * row['accuracy']:.1f}",
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/bench-peers.json"))
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--threads", type=int, choices=(1, 2), default=2, help="of torch, for everyone")
    parser.add_argument("--problems", nargs="+", choices=list(ROUNDS), help="by default all whose data are here")
    options = parser.parse_args()
    console, rows = Console(), []
    pythons: dict[str, str | Path] = {"allforone": sys.executable, "fluke": FLUKE, "plain": sys.executable}
    if not FLUKE.exists():
        console.print(f"{FLUKE.relative_to(ROOT)} is missing: going on without fluke; `make bench-peers` installs it")
        del pythons["fluke"]
    here = ["digits", *(["mnist"] if "ALLFORONE_DATA" in os.environ else [])]
    for problem in options.problems or here:
        with console.status(f"measuring {problem} …"):
            rows += compare(problem, pythons, options.repetitions, options.threads)
    console.print(table(rows, options.threads))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(rows, indent=1) + "\n")
    console.print(f"written to {options.out}")


if __name__ == "__main__":
    main()
