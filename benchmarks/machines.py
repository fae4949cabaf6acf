"""What it costs that clients are somewhere else: seconds and bytes of a round, against all clients in one process.

    python -m benchmarks.machines                            # in one process, and on Ray if it is there
    python -m benchmarks.machines --engines loop,flare --sites 4

A federation on FLARE is real processes of this machine: a server and, for each site, its part of FLARE and its code.
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

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import track
from torch import nn

import allforone as afo
from allforone.reports.table import Table, markdown, plain, terminal
from allforone.runs import Folder

#: Numbers of a model → its width between 13 inputs and two outputs; 0: none, a linear model.
WIDTHS = {28: 0, 62_002: 3875, 1_000_002: 62_500}
#: Rounds that are not measured, while everything warms up, and those that are.
WARM, MEASURED = 1, 4
INNER = 5
EXCHANGES = ("update", "round")


def model(width: int) -> nn.Module:
    """Of 16 · width + 2 numbers, or 28."""
    return nn.Sequential(nn.Linear(13, width), nn.ReLU(), nn.Linear(width, 2)) if width else nn.Linear(13, 2)


def task(width: int) -> afo.Task:
    settings = afo.Settings(rounds=WARM + MEASURED, inner=INNER, batch_size=16, optimizer={"name": "SGD", "lr": 0.05})
    return afo.Task(partial(model, width), F.cross_entropy, settings=settings, name="patients")


def client(number: int) -> afo.Client:
    """A hundred patients, thirteen numbers each."""
    random = torch.Generator().manual_seed(number)
    inputs = torch.randn(100, 13, generator=random)
    targets = (inputs @ torch.linspace(-1, 1, 13) > 0).long()
    return afo.Client((inputs[:80], targets[:80]), (inputs[80:], targets[80:]), name=f"site-{number}")


def in_process(engine: str, sites: int, width: int, exchange: str) -> tuple[float, float | None]:
    """Seconds of a round, and bytes of a round to and from all sites; None where nothing is sent."""
    learned = task(width)
    problem = afo.Problem(
        learned.model, learned.loss, settings=learned.settings, clients=[client(k) for k in range(sites)]
    )
    result = afo.train(problem, algorithm=afo.AllForOne(exchange=exchange), fleet=engine, progress=False)
    return per_round(result.metrics["round"].to_list(), result.metrics["seconds"].to_list()), sent(result.history.sites)


def per_round(rounds: list[int], seconds: list[float]) -> float:
    at = dict(zip(rounds, seconds, strict=True))
    return (at[WARM + MEASURED] - at[WARM]) / MEASURED


def sent(sites) -> float | None:  # type: ignore[no-untyped-def]
    """Bytes of a round, both ways."""
    return None if sites.is_empty() else (sites["sent"].sum() + sites["received"].sum()) / sites["round"].n_unique()


@contextmanager
def federation(sites: int, width: int, place: Path) -> Iterator[Callable[..., None]]:
    """A server and sites, once they have joined it; what is given runs commands of ours in its folder."""
    names = [f"site-{k}" for k in range(sites)]
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    here = Path(__file__).parent.parent
    (place / "task.py").write_text(
        f"import sys; sys.path.insert(0, {str(here)!r})\n"
        f"from benchmarks import machines\ntask = machines.task({width})\n"
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


def on_flare(sites: int, width: int) -> Iterator[tuple[float, float | None, float]]:
    """Of both exchanges: seconds and bytes of a round; and the seconds from `join` to the first round."""
    begun = time.time()
    with tempfile.TemporaryDirectory() as place, federation(sites, width, Path(place)) as command:
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
            first = (Path(place) / "runs" / exchange / "environment.json").stat().st_mtime - begun
            yield per_round(rounds, seconds), sent(folder.sites()), first


def measure(engines: list[str], counts: list[int], numbers: list[int]) -> list[list[str]]:
    rows = []
    for size, sites in track([(p, n) for p in numbers for n in counts], "measuring …", transient=True):
        found: dict[tuple[str, str], tuple[float, float | None]] = {}
        for engine in engines:
            if engine == "flare":
                for exchange, (seconds, amount, first) in zip(EXCHANGES, on_flare(sites, WIDTHS[size]), strict=True):
                    found[engine, exchange] = seconds, amount
                    if exchange == EXCHANGES[0]:
                        Console().print(
                            f"FLARE, {sites} sites, P = {size}: {first:.0f} s from join to the first round", style="dim"
                        )
                continue
            for exchange in EXCHANGES:
                found[engine, exchange] = in_process(engine, sites, WIDTHS[size], exchange)
        for exchange in EXCHANGES:
            plain_seconds = found[engines[0], exchange][0]
            for engine in engines:
                seconds, amount = found[engine, exchange]
                told = "–" if amount is None else f"{amount / 1e6:.3g} MB"
                rows.append(
                    [
                        f"{size:,}",
                        str(sites),
                        exchange,
                        engine,
                        f"{seconds:.3g}",
                        f"{seconds / plain_seconds:.2g}",
                        told,
                    ]
                )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="stacked,loop,ray", help="of stacked, loop, ray, flare")
    parser.add_argument("--sites", default="4,20")
    parser.add_argument("--numbers", default=",".join(map(str, WIDTHS)), help="P, of " + ", ".join(map(str, WIDTHS)))
    parser.add_argument("--markdown", action="store_true", help="a table for a document")
    options = parser.parse_args()
    counts, numbers = ([int(part) for part in text.split(",")] for text in (options.sites, options.numbers))
    rows = measure(options.engines.split(","), counts, numbers)
    heads = ["P", "sites", "exchange", "fleet", "seconds a round", "× the first", "sent a round"]
    table = Table(heads, plain(rows))
    if options.markdown:
        print(markdown(table))
    else:
        Console().print(terminal(table))


if __name__ == "__main__":
    main()
