"""What sites said of themselves when a run began, in a file at the server: so a run can go on without one of them."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from ..wire import Message


def met_before(file: Path) -> dict[str, Message]:
    """By the site's name; nothing, where the run has not begun or the file is not whole."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def remember(file: Path, names: Sequence[str], said: Sequence[Message]) -> None:
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(dict(zip(names, said, strict=True))), encoding="utf-8")
    os.replace(unfinished, file)
