"""Commands in processes of their own, bounded in time, for tests that end, damage and starve them.

They come from a process that has imported everything once, so that each begins in milliseconds.
"""

import multiprocessing
import os
import resource
import signal
import sys
import time
from pathlib import Path

#: Seconds that anything here may take, at most; nothing should come near.
PATIENCE = 300
#: By the test that runs.
STARTED = []

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch._dynamo", "polars", "allforone.cli", "allforone.api"])

SLOW = """
import time
import torch
import torch.nn.functional as F
from torch import nn
import allforone as afo


def loss(output, target):
    time.sleep({seconds})
    return F.mse_loss(output, target)


def problem():
    data = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(8, 1)
    settings = afo.Settings(optimizer={{"name": "SGD", "lr": 0.01}})
    return afo.Problem(nn.Linear(3, 1), loss, clients=[afo.Client(data, data) for _ in range(3)], settings=settings)
"""


def slow_problem(folder, seconds=0):
    """A problem in a file, each loss of which takes that long or longer."""
    path = folder / "slow.py"
    path.write_text(SLOW.format(seconds=seconds))
    return f"{path}:problem"


def _command(arguments, files, ignored, limits):
    """In the new process: the command line, as the shell would start it."""
    for number, name in enumerate(files, 1):
        os.dup2(os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT), number)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    for each in ignored:
        signal.signal(each, signal.SIG_IGN)
    for limit, value in limits.items():
        resource.setrlimit(limit, (value, value))
    import torch

    from allforone.cli import main

    torch.set_num_threads(1)
    sys.argv = ["allforone", *arguments]
    main()


class Command:
    """`allforone …`, begun."""

    def __init__(self, *arguments, out=None, ignored=(), limits=None):
        self.files = [out or f"{os.devnull}", f"/tmp/allforone-test-{os.getpid()}-{time.monotonic_ns()}"]
        given = [str(argument) for argument in arguments], self.files, ignored, limits or {}
        self.process = CONTEXT.Process(target=_command, args=given)
        self.process.start()
        STARTED.append(self)

    def send(self, number):
        os.kill(self.process.pid, number)

    @property
    def said(self):
        """On standard error, so far."""
        path = Path(self.files[1])
        return path.read_text() if path.exists() else ""

    def ended(self):
        """(exit code, standard error)"""
        self.process.join(PATIENCE)
        assert self.process.exitcode is not None, f"still running: {self.said}"
        return self.process.exitcode, self.said

    def close(self):
        self.process.kill()
        self.process.join()
        Path(self.files[1]).unlink(missing_ok=True)


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def rounds_done(run):
    """The last round of which metrics.csv has a whole line."""
    path = run / "metrics.csv"
    lines = path.read_text().splitlines()[1:-1] if path.exists() else []
    return max((int(line.split(",")[0]) for line in lines), default=-1)


def is_one_line(err):
    return err.startswith("allforone: ") and err.count("\n") == 1 and "Traceback" not in err
