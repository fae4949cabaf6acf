"""What a long run of many clients takes: memory by rounds, the share of checkpoints, its files, and its report.

python -m benchmarks.load --clients 200 --rounds 1000
python -m benchmarks.load --partners 0           # everybody listens to everybody
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch

from allforone.reports import write_report
from allforone.runs import Record, execute, parse, prepare, read_comparison
from allforone.runs.writing import Writer, Written


def resident() -> float:
    """MB that this process has in memory now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * 4096 / 1e6


class Timed:
    """Seconds spent in a method, counted as it is called."""

    def __init__(self, owner: type, name: str) -> None:
        self.seconds, self.calls, method = 0.0, 0, getattr(owner, name)

        def timed(*given: object) -> object:
            start = time.perf_counter()
            try:
                return method(*given)
            finally:
                self.seconds, self.calls = self.seconds + time.perf_counter() - start, self.calls + 1

        setattr(owner, name, timed)


def measure(clients: int, rounds: int, partners: int, out: Path) -> dict[str, object]:
    few = {"partners": partners, "candidates": 2 * partners} if partners else {}
    algorithm = {"name": "all-for-one", **few}
    run = prepare(
        parse({"problem": {"name": "synthetic", "clients": clients}, "algorithm": algorithm, "rounds": rounds})
    )
    saves, flushes = Timed(Writer, "save"), Timed(Written, "flush")
    memory: dict[int, float] = {}

    def on_round(record: Record) -> None:
        if record.number in (rounds // 10, rounds // 2, rounds):
            memory[record.number] = round(resident(), 1)

    start = time.perf_counter()
    execute(run, out, on_round=on_round)
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    write_report(read_comparison(out), out / "report.html")
    return {
        "clients": clients,
        "rounds": rounds,
        "partners": partners or "all",
        "MB in memory after round": memory,
        "seconds": round(seconds, 1),
        "checkpoints": saves.calls,
        "% of the time in checkpoints": round(100 * (saves.seconds + flushes.seconds) / seconds, 2),
        "MB of weights.rounds": round((out / "weights.rounds").stat().st_size / 1e6, 1),
        "MB of metrics.csv": round((out / "metrics.csv").stat().st_size / 1e6, 1),
        "seconds of the report": round(time.perf_counter() - start, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--partners", type=int, default=16, help="to whom each listens at most; 0: all")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(given.clients, given.rounds, given.partners, Path(folder) / "run"), indent=1))


if __name__ == "__main__":
    main()
