"""A federation of real processes on this machine, for tests: one server and four sites, ended in any case."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

SITES = ["geneva", "basel", "bern", "zurich"]

TASK = """
from torch import nn
import allforone as afo

def model():
    return nn.Sequential(nn.Linear(13, 8), nn.ReLU(), nn.Linear(8, 2))

optimizer = {"name": "SGD", "lr": 0.1}
settings = afo.Settings(rounds=6, inner=3, batch_size=16, optimizer=optimizer)
metrics = {"accuracy": afo.accuracy}
task = afo.Task(model, nn.CrossEntropyLoss(), metrics=metrics, settings=settings, name="hearts")
"""

#: Thirteen numbers about each patient, as of the heart disease data; two hospitals agree, the two others differ.
DATA = """
import torch
import allforone as afo
from task import task

SITES = ["geneva", "basel", "bern", "zurich"]

def client_of(name, **more):
    number = SITES.index(name)
    generator = torch.Generator().manual_seed(100 + number)
    patients = [60, 45, 30, 50][number]
    inputs = torch.randn(patients, 13, generator=generator)
    truth = torch.linspace(-1, 1, 13) * (1 if number < 2 else -1)
    targets = (inputs @ truth + 0.5 * torch.randn(patients, generator=generator) > 0).long()
    train = patients * 2 // 3
    return afo.Client((inputs[:train], targets[:train]), (inputs[train:], targets[train:]), name=name, **more)

def problem():
    clients = [client_of(name) for name in SITES]
    return afo.Problem(task.model, task.loss, metrics=task.metrics, settings=task.settings, clients=clients)
"""

#: A site whose code does what a file beside it says: nothing, take its time, be too slow, or lie.
SITE = """
import time
from contextlib import suppress
from pathlib import Path
import torch
from allforone.machines import site, wire
from data import client_of

client = client_of({name!r})
mood = Path(__file__).with_suffix(".mood")
honest = site.Site.answer

def answer(self, question):
    now = mood.read_text() if mood.exists() else ""
    asked = wire.decode(question)["ask"]
    if now == "slow" and asked != "ping":
        time.sleep(30)
    if now == "steady":
        time.sleep(0.25)
    told = honest(self, question)
    if now == "lying" and asked == "gradients":
        found = wire.decode(told)
        found["gradients"] = {{key: torch.full_like(value, torch.nan) for key, value in found["gradients"].items()}}
        return wire.encode(found)
    return told

site.Site.answer = answer
"""


#: Seconds for which a test waits for something before it fails: seconds on a machine that is free, many on a busy one.
PATIENCE = 400.0


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


class Federation:
    """Its files in `work`, and its processes by the name of the party."""

    def __init__(self, work: Path) -> None:
        self.work, self.kits, self.runs = work, work / "kits", work / "runs"
        self.processes: dict[str, subprocess.Popen] = {}
        work.mkdir(parents=True, exist_ok=True)
        (work / "task.py").write_text(TASK)
        (work / "data.py").write_text(DATA)
        for site in SITES:
            (work / f"{site}.py").write_text(SITE.format(name=site))
        lines = ["name: heart", "host: 127.0.0.1", f"port: {free_port()}", f"sites: {json.dumps(SITES)}"]
        (work / "federation.yaml").write_text("\n".join(lines))
        self.command("provision", "federation.yaml", "--out", "kits")

    def start(self, *parties: str) -> None:
        for party in parties:
            if party == "server":
                arguments = ["serve", "kits/server", "--task", "task.py:task", "--runs", "runs"]
            else:
                arguments = ["join", f"kits/{party}", "--client", f"{party}.py:client", "--task", "task.py:task"]
            with (self.work / f"{party}.log").open("ab") as log:
                self.processes[party] = subprocess.Popen(
                    [sys.executable, "-m", "allforone", *arguments],
                    cwd=self.work,
                    env=environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # as if each were alone on its machine
                )

    def said(self, party: str) -> str:
        return (self.work / f"{party}.log").read_text()

    def until(self, what, seconds: float = PATIENCE, of: str = "something") -> None:
        """Wait until `what` gives something true."""
        end = time.monotonic() + seconds
        while not what():
            logs = "\n".join(f"--- {party}\n{self.said(party)[-600:]}" for party in self.processes)
            assert time.monotonic() < end, f"no {of} within {seconds} s\n{logs}"
            time.sleep(0.2)

    def together(self) -> "Federation":
        self.start("server", *SITES)
        for site in SITES:
            self.until(lambda site=site: "connected; waiting" in self.said(site), of=f"connection of {site}")
        return self

    def command(self, *arguments: str, timeout: float = PATIENCE) -> subprocess.CompletedProcess:
        """A command of ours, to its end."""
        begun = self.begin(*arguments)
        try:
            said, _ = begun.communicate(timeout=timeout)
        finally:
            end(begun)
        return subprocess.CompletedProcess(begun.args, begun.returncode, said)

    def begin(self, *arguments: str) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-m", "allforone", *map(str, arguments)],
            cwd=self.work,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, name: str, *options: str) -> tuple[str, ...]:
        """The arguments of a run on this federation."""
        fleet = ":".join(["flare", "kit=kits/coordinator", *[option for option in options if option[0] != "-"]])
        return ("run", "task.py:task", "--fleet", fleet, "--out", f"out/{name}", *options_only(options))

    def round_of(self, name: str) -> int:
        """The last round of a run that the server has written down."""
        try:
            return int((self.runs / name / "metrics.csv").read_text().splitlines()[-1].split(",")[0])
        except (OSError, IndexError, ValueError):
            return -1

    def is_there(self, name: str, site: str) -> bool:
        """Whether a site took part in the last round of a run that the server has written down."""
        rounds = [line.split(",") for line in (self.runs / name / "metrics.csv").read_text().splitlines()]
        place, client = rounds[0].index("present"), str(SITES.index(site))
        present = [row[place] for row in rounds[1:] if len(row) == len(rounds[0]) and row[1] == client]
        return present[-1] == "1"

    def process_of(self, site: str, what: str) -> psutil.Process:
        """`what` of client_train (the site), worker_process (its part of a run) and flare.child (its own code)."""
        for process in psutil.Process(self.processes[site].pid).children(recursive=True):
            if what in " ".join(process.cmdline()):
                return process
        raise AssertionError(f"{site} has no process {what}")

    def kill(self, party: str) -> None:
        """With -9, all of it at once, as when its machine loses power."""
        end(self.processes.pop(party))

    def end(self) -> None:
        for party in list(self.processes):
            self.kill(party)


def options_only(options):
    return [part for option in options if option[0] == "-" for part in option.split("=", 1)]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}


def end(process: subprocess.Popen) -> None:
    """End a process that a test started, and all below it."""
    if process.poll() is None:
        all_of_it = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        for one in all_of_it:
            with suppress(psutil.NoSuchProcess):
                one.send_signal(signal.SIGKILL)
        psutil.wait_procs(all_of_it[1:], timeout=10)
    process.wait()
    if process.stdout:
        process.stdout.close()
