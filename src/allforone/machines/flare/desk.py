"""What those who follow a run on FLARE can ask it: how far it is, its files, and to begin anew."""

import base64
import threading
import time
from pathlib import Path
from typing import Any

#: Bytes of a file in one answer.
PIECE = 1 << 20
#: Seconds that a finished run waits for one who has just asked to ask once more.
LAST_CALL = 15.0
#: Seconds that a site may take to start its part of a run.
STARTING = 120.0
#: The files of a run that the coordinator may have: all that a run in one process leaves behind.
FILES = (
    "config.yaml",
    "environment.json",
    "clients.json",
    "metrics.csv",
    "sites.csv",
    "weights.rounds",
    "checkpoint.safetensors",
    "models.safetensors",
)


class Desk:
    """Answers of a run in progress, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rounds: list[dict[str, Any]] = []
        self._notes: list[str] = []
        self._state, self._why = "starting", ""
        self._folder: Path | None = None
        self._asked, self._served = time.monotonic(), threading.Event()  # who started it is about to ask
        self.anew = threading.Event()  #: whether the run is to end here and be started again
        self.unreachable: dict[str, float] = {}  #: who could not be reached when last asked, and since when
        self._heard: set[str] = set()

    def begin(self, folder: Path) -> None:
        with self._lock:
            self._folder, self._state = folder, "running"

    def add(self, number: int, numbers: str) -> None:
        with self._lock:
            self._rounds.append({"round": number, "numbers": numbers})

    def note(self, text: str) -> None:
        with self._lock:
            self._notes.append(text)

    def end(self, state: str, why: str = "") -> None:
        """Say how it ended, and wait a little for those who follow to hear it and take its files."""
        with self._lock:
            self._state, self._why = state, why
        while time.monotonic() - self._asked < LAST_CALL and not self._served.wait(0.1):
            pass

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        if question.get("what") == "gone":  # the server's own keeper: nobody to wait for
            return {"unreachable": dict(self.unreachable)}
        self._asked = time.monotonic()
        match question.get("what"):
            case "news":
                return self._news(int(question.get("since", -1)), int(question.get("notes", 0)))
            case "file":
                return self._file(str(question.get("name")), int(question.get("at", 0)))
            case "anew":
                self.anew.set()
                return {}
            case "thanks":
                self._served.set()
                return {}
        return {"error": "not a question"}

    def _news(self, since: int, notes: int) -> dict[str, Any]:
        with self._lock:
            news = [item for item in self._rounds if item["round"] > since]
            return {"rounds": news, "notes": self._notes[notes:], "state": self._state, "why": self._why}

    def heard(self, site: str) -> None:
        self._heard.add(site)
        self.unreachable.pop(site, None)

    def not_reached(self, site: str, takes_part: bool) -> None:
        """A site that takes part and was never heard of is still starting, for a while."""
        starting = STARTING if takes_part and site not in self._heard else 0.0
        self.unreachable.setdefault(site, time.time() + starting)

    def _file(self, name: str, at: int) -> dict[str, Any]:
        if self._folder is None or name not in FILES or not (self._folder / name).is_file():
            return {"size": None}
        with (self._folder / name).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(at)
            return {"size": size, "piece": base64.b64encode(file.read(PIECE)).decode()}
