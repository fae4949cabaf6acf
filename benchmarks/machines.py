"""What it costs that clients are somewhere else: seconds and bytes of a round, against all clients in one process.

    python -m benchmarks.machines                            # in one process, and on Ray if it is there
    python -m benchmarks.machines --engines loop,flare --sites 4
    python -m benchmarks.machines --engines flare --sites 20 --numbers 999991 --rounds 1   # long: fewer rounds

What was measured once is kept in --out and not measured again. A federation on FLARE is real processes of this machine:
a server and, for each site, its part of FLARE and its code.
"""

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from rich.progress import track
from torch import nn

import allforone as afo
from allforone.reports.table import Table, plain
from allforone.runs import Folder

from .shown import show

#: Numbers of a model → its width between 13 inputs and one output; 0: none, a linear model.
WIDTHS = {14: 0, 61_996: 4133, 999_991: 66_666}
#: Rounds that are not measured, while everything warms up.
WARM = 1
INNER = 5
EXCHANGES = ("update", "round")


def model(width: int) -> nn.Module:
    """Of 15 · width + 1 numbers, or 14."""
    return nn.Sequential(nn.Linear(13, width), nn.ReLU(), nn.Linear(width, 1)) if width else nn.Linear(13, 1)


def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(outputs.squeeze(1), targets)


def task(width: int, measured: int) -> afo.Task:
    settings = afo.Settings(rounds=WARM + measured, inner=INNER, batch_size=16, optimizer={"name": "SGD", "lr": 0.05})
    return afo.Task(partial(model, width), loss, settings=settings, name="patients")


def client(number: int) -> afo.Client:
    """A hundred patients, thirteen numbers each."""
    random = torch.Generator().manual_seed(number)
    inputs = torch.randn(100, 13, generator=random)
    targets = (inputs @ torch.linspace(-1, 1, 13) > 0).float()
    return afo.Client((inputs[:80], targets[:80]), (inputs[80:], targets[80:]), name=f"site-{number}")


class Case(NamedTuple):
    engine: str
    sites: int
    size: int  #: P
    exchange: str
    seconds: float  #: of a round
    sent: float | None  #: bytes of a round to and from all sites; None where nothing is sent
    first: float | None  #: seconds from `join` to the first round, of sites that join


#: exchange, seconds, sent, first
Told = tuple[str, float, float | None, float | None]


def in_process(engine: str, sites: int, width: int, measured: int) -> Iterator[Told]:
    learned = task(width, measured)
    problem = afo.Problem(
        learned.model, learned.loss, settings=learned.settings, clients=[client(k) for k in range(sites)]
    )
    for exchange in EXCHANGES:
        result = afo.train(problem, algorithm=afo.AllForOne(exchange=exchange), fleet=engine, progress=False)
        rounds, seconds = result.metrics["round"].to_list(), result.metrics["seconds"].to_list()
        yield exchange, per_round(rounds, seconds), sent(result.history.sites), None


def per_round(rounds: list[int], seconds: list[float]) -> float:
    at = dict(zip(rounds, seconds, strict=True))
    return (at[max(at)] - at[WARM]) / (max(at) - WARM)


def sent(sites) -> float | None:  # type: ignore[no-untyped-def]
    """Bytes of a round, both ways."""
    return None if sites.is_empty() else (sites["sent"].sum() + sites["received"].sum()) / sites["round"].n_unique()


@contextmanager
def federation(sites: int, width: int, measured: int, place: Path) -> Iterator[Callable[..., None]]:
    """A server and sites, once they have joined it; what is given runs commands of ours in its folder."""
    names = [f"site-{k}" for k in range(sites)]
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    here = Path(__file__).parent.parent
    (place / "task.py").write_text(
        f"import sys; sys.path.insert(0, {str(here)!r})\n"
        f"from benchmarks import machines\ntask = machines.task({width}, {measured})\n"
    )
    for k, name in enumerate(names):
        (place / f"{name}.py").write_text(f"import task\nclient = task.machines.client({k})\n")
    lines = ["name: bench", "host: 127.0.0.1", f"port: {port}", f"sites: {json.dumps(names)}"]
    (place / "federation.yaml").write_text("\n".join(lines))

    def begin(*arguments: str) -> subprocess.Popen[bytes]:
        log = (place / "log").open("ab")
        return subprocess.Popen(
            [sys.executable, "-m", "allforone", *arguments], cwd=place, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )

    def command(*arguments: str) -> None:
        if begin(*arguments).wait():
            raise SystemExit((place / "log").read_text()[-2000:])

    command("provision", "federation.yaml", "--out", "kits")
    parties = [begin("serve", "kits/server", "--task", "task.py:task", "--runs", "runs")]
    parties += [
        begin("join", f"kits/{name}", "--client", f"{name}.py:client", "--task", "task.py:task") for name in names
    ]
    try:
        while (said := (place / "log").read_text()).count("connected; waiting") < sites or " is up at " not in said:
            if any(party.poll() is not None for party in parties):
                raise SystemExit(said[-2000:])
            time.sleep(0.2)
        yield command
    finally:
        for party in parties:
            party.terminate()
        for party in parties:
            party.wait()


def on_flare(sites: int, width: int, measured: int) -> Iterator[Told]:
    begun = time.time()
    with tempfile.TemporaryDirectory() as place, federation(sites, width, measured, Path(place)) as command:
        for exchange in EXCHANGES:
            out = Path(place) / exchange
            kit = "flare:kit=kits/coordinator"
            command(
                *("run", "task.py:task", "--fleet", kit, "--least-sites", str(sites), "-a", f"exchange={exchange}"),
                *("--out", str(out)),
            )
            folder = Folder.open(out)
            metrics = folder.metrics()
            rounds, seconds = metrics["round"].to_list(), metrics["seconds"].to_list()
            started = (Path(place) / "runs" / exchange / "environment.json").stat().st_mtime
            first = started - begun if exchange == EXCHANGES[0] else None
            yield exchange, per_round(rounds, seconds), sent(folder.sites()), first


def measure(engines: list[str], counts: list[int], numbers: list[int], measured: int, kept: Path) -> list[Case]:
    """What the file holds, and what it does not, which it is given as it comes."""
    found = [Case(**json.loads(line)) for line in kept.read_text().splitlines()] if kept.exists() else []
    known = {(case.engine, case.sites, case.size) for case in found}
    wanted = [(engine, n, p) for p in numbers for n in counts for engine in engines]
    kept.parent.mkdir(parents=True, exist_ok=True)
    for engine, sites, size in track([w for w in wanted if w not in known], "measuring …", transient=True):
        ask = on_flare if engine == "flare" else partial(in_process, engine)
        cases = [Case(engine, sites, size, *told) for told in ask(sites, WIDTHS[size], measured)]
        with kept.open("a") as file:
            file.writelines(json.dumps(case._asdict()) + "\n" for case in cases)
        found += cases
    return [case for case in found if (case.engine, case.sites, case.size) in wanted]


def rounds_table(cases: list[Case], engines: list[str]) -> Table:
    """Seconds of a round by each engine, and what it sends where sites are apart."""
    found = {(c.size, c.sites, c.exchange, c.engine): c for c in cases}
    rows = []
    for size, sites, exchange in sorted({key[:3] for key in found}, key=lambda k: (*k[:2], k[2] == "round")):
        of = [found.get((size, sites, exchange, engine)) for engine in engines]
        sent = next((case.sent for case in of if case and case.sent is not None), None)
        seconds = ["–" if case is None else f"{case.seconds:.2f}" for case in of]
        rows.append([f"{size:,}", str(sites), exchange, *seconds, "–" if sent is None else f"{sent / 1e6:,.2f} MB"])
    return Table(["P", "sites", "exchange", *engines, "sent"], plain(rows), caption="Seconds of a round.")


def start_table(cases: list[Case]) -> Table:
    rows = [[f"{c.size:,}", str(c.sites), f"{c.first:.0f}"] for c in cases if c.first is not None]
    return Table(["P", "sites on FLARE", "seconds from join to the first round"], plain(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="stacked,loop,ray", help="of stacked, loop, ray, flare")
    parser.add_argument("--sites", default="4,20")
    parser.add_argument("--numbers", default=",".join(map(str, WIDTHS)), help="P, of " + ", ".join(map(str, WIDTHS)))
    parser.add_argument("--rounds", type=int, default=4, help="that are measured, after one that is not")
    parser.add_argument("--markdown", action="store_true", help="tables for a document")
    parser.add_argument("--out", type=Path, default=Path("out/machines.jsonl"), help="where what was measured is kept")
    options = parser.parse_args()
    counts, numbers = ([int(part) for part in text.split(",")] for text in (options.sites, options.numbers))
    engines = options.engines.split(",")
    cases = measure(engines, counts, numbers, options.rounds, options.out)
    show((rounds_table(cases, engines), start_table(cases)), options.markdown)


if __name__ == "__main__":
    main()
