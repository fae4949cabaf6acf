"""A run's files, fetched from the server: those that grow while it goes on, so that `allforone watch` shows it where it
was started, and all when it is done."""

import base64
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ...errors import InputError
from .desk import FILES

#: What a page is made of beside the settings, which are here already.
SHOWN = ("clients.json", "metrics.csv", "sites.csv", "weights.rounds")
#: Seconds between two looks for what is new.
EVERY = 2.0


class Fetching:
    """Files of one run into the folder `out`; `ask` is how its job is asked for a piece of one."""

    def __init__(self, ask: Callable[..., dict[str, Any] | None], out: Path) -> None:
        self.ask, self.out = ask, out
        self._not_before = 0.0
        self._had: dict[str, int] = {}  # bytes of each file, of this job: within one they only grow

    def look(self) -> None:
        """What is new since the last look, unless that was just now."""
        if time.monotonic() < self._not_before:
            return
        for name in SHOWN:
            had = self._had.get(name, 0)
            with (self.out / name).open("r+b" if had else "wb") as file:
                file.seek(had)
                for piece in self._pieces(name, had):
                    self._had[name] = self._had.get(name, 0) + file.write(piece)
        self._not_before = time.monotonic() + EVERY

    def all_of_it(self) -> None:
        """The run's folder as it lies at the server; what says that it is finished comes last."""
        for name in FILES:
            unfinished = self.out / f"{name}.unfinished"
            with unfinished.open("wb") as file:
                size = sum(file.write(piece) for piece in self._pieces(name, 0))
            if size:
                os.replace(unfinished, self.out / name)
            else:
                unfinished.unlink()

    def _pieces(self, name: str, at: int) -> Iterator[bytes]:
        while True:
            found = self.ask("file", name=name, at=at)
            if found is None:
                raise InputError(f"the files of {self.out.name} cannot be fetched; they are at the server")
            if found["size"] is None or at >= found["size"]:
                return
            piece = base64.b64decode(found["piece"])
            at += len(piece)
            yield piece
