import signal
import sys

import pytest
import torch
from hypothesis import settings

settings.register_profile("fixed", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("fixed")

for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):  # as in the background of a shell, or under nohup:
    if signal.getsignal(ignored) is signal.SIG_IGN:  # commands that are tested would inherit it
        signal.signal(ignored, signal.default_int_handler if ignored == signal.SIGINT else signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def cli(monkeypatch, capsys):
    """Runs a command as the shell would: (exit code, standard output, standard error)."""
    from allforone import cli as command_line  # only where a test asks for it: it imports everything

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["allforone", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "100")
        code = 0
        try:
            command_line.main()
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return run
