"""No process outlives the test that started it."""

import pytest

from .commands import STARTED


@pytest.fixture(autouse=True)
def _ends_what_it_started():
    yield
    for command in STARTED:
        command.close()
    STARTED.clear()
