import io
import os
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest
import torch
from hypothesis import settings

settings.register_profile("fixed", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("fixed")

for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):  # as in the background of a shell, or under nohup:
    if signal.getsignal(ignored) is signal.SIG_IGN:  # commands that are tested would inherit it
        signal.signal(ignored, signal.default_int_handler if ignored == signal.SIGINT else signal.SIG_DFL)


@pytest.fixture(autouse=True, scope="session")
def _no_power_cut():
    """Nobody pulls the plug of a test, so none waits for the disk: what is written is there for every process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # which refuses what is no open file, too
        yield


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def _command(patch, arguments):
    """Its exit code."""
    from allforone import cli as command_line  # only where a test asks for it: it imports everything

    patch.setattr(sys, "argv", ["allforone", *map(str, arguments)])
    patch.setenv("COLUMNS", "100")
    try:
        command_line.main()
    except SystemExit as stop:
        return stop.code or 0
    return 0


@pytest.fixture
def cli(monkeypatch, capsys):
    """Runs a command as the shell would: (exit code, standard output, standard error)."""

    def run(*arguments):
        return _command(monkeypatch, arguments), *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def shared_cli():
    """As `cli`, for what a module's tests have in common."""

    def run(*arguments):
        torch.set_num_threads(1)
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            return _command(patch, arguments), out.getvalue(), err.getvalue()

    return run
