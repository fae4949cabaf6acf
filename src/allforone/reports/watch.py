"""The page from an address of this machine, with newer numbers for as long as runs go on."""

import json
import time
from contextlib import suppress
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from socket import SHUT_RDWR, socket
from threading import BoundedSemaphore, Lock, Timer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ..errors import InputError, explained, short
from ..runs import Folder, last_round, read_comparison, read_run
from ..runs.folder import WEIGHTS
from .page import page, page_json

#: Between two questions of the page, at least.
SECONDS = 2
#: And so many times what making the numbers takes, so that watching a crowd leaves its run most of a core.
PATIENCE = 3
#: Seconds after which a connection on which nothing moves is closed.
PATIENT = 10
#: Seconds after which any is, also one that is kept alive by a byte now and then.
LONGEST = 60
#: At once; a browser needs one or two.
CONNECTIONS = 32
WAITING = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="2"><title>allforone</title>'
    '<p style="font-family:system-ui;margin:3rem">Waiting for the first round …<br><small>{}</small></p>'
)


class Watched:
    """What a folder holds now, as the page's numbers; read anew only when its files have changed."""

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise InputError(f"{path}: no such folder; give one that `allforone run` or `compare` writes into")
        self.path, self.lock = path, Lock()
        self.version, self.numbers, self.taken = "", "", 0.0
        self.trouble = ""  #: why there is nothing newer to show

    def now(self) -> tuple[str, str]:
        """A name for the state of the files, and the numbers; both empty before the first round."""
        with self.lock:
            version = self._state()
            if version != self.version:
                start = time.monotonic()
                try:
                    self.numbers = page_json(read_comparison(self.path, unfinished=True), live=self._live(version))
                    self.version, self.taken = version, time.monotonic() - start
                    self.trouble = ""
                except InputError as error:  # nothing to show yet, or a file is just being written: ask again
                    self.trouble = str(error)
            return self.version, self.numbers

    def _runs(self) -> list[Folder]:
        if (self.path / "config.yaml").is_file():
            return [Folder(self.path)]
        return [Folder(file.parent) for file in self.path.glob("runs/*/*/config.yaml")]

    def _state(self) -> str:
        files = [run.path / name for run in self._runs() for name in ("metrics.csv", WEIGHTS, "models.safetensors")]
        files.append(self.path / "summary.json")
        seen = [file.stat() for file in files if file.exists()]
        return f"{len(seen)}-{sum(stat.st_size for stat in seen)}-{max((stat.st_mtime_ns for stat in seen), default=0)}"

    def _live(self, version: str) -> dict[str, object]:
        runs = self._runs()
        finished, single = sum(run.finished for run in runs), runs[0].path == self.path
        done = finished == len(runs) and (single or (self.path / "summary.json").exists())
        if single:
            said = f"round {last_round(read_run(self.path))} of {runs[0].config.get('rounds', '?')}"
        else:
            said = f"{len(runs)} runs began, {finished} of them finished"
        return {"version": version, "done": done, "said": said, "seconds": max(SECONDS, PATIENCE * self.taken)}


class Server(ThreadingHTTPServer):
    """A thread for each of a few connections; the others are closed."""

    daemon_threads = True

    def __init__(self, *given: Any) -> None:
        self.free = BoundedSemaphore(CONNECTIONS)
        super().__init__(*given)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        ending = Timer(LONGEST, _hang_up, [request])
        ending.daemon = True
        ending.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            ending.cancel()
            self.free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asks and leaves before the answer is no news."""


def _hang_up(connection: socket) -> None:
    with suppress(OSError):  # it may be over
        connection.shutdown(SHUT_RDWR)


def server(path: Path, host: str = "127.0.0.1", port: int = 0) -> ThreadingHTTPServer:
    """Ready to serve; port 0 is any that is free."""
    if not host:  # which to the system is every address of this machine
        raise InputError("the host is empty: give 127.0.0.1, or 0.0.0.0 if everybody who can reach it may look")
    watched, local = Watched(path), _is_loopback(host)

    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENT  # also with whoever begins a question and never ends it

        def do_GET(self) -> None:
            try:
                asked = urlsplit(self.path)
                name = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
            except ValueError:
                return self._answer(400, "text/plain", "this is no address")
            if local and not _is_loopback(name):  # a web site that points its own name here may not read
                return self._answer(403, "text/plain", f"this address is {host}, not {name}")
            try:
                return self._tell(asked.path, asked.query)
            except Exception as error:  # whoever watches is told, and may ask again
                return self._answer(500, "text/plain", explained(error))

        def _tell(self, path: str, query: str) -> None:
            if path not in ("/", "/data.json"):
                return self._answer(404, "text/plain", "here are / and /data.json")
            version, numbers = watched.now()
            if path == "/":
                waiting = WAITING.format(escape(watched.trouble))
                return self._answer(200, "text/html", page(numbers, live=True) if version else waiting)
            news = version not in parse_qs(query).get("after", [])
            return self._answer(200 if news else 204, "application/json", (numbers or json.dumps(None)) if news else "")

        def _answer(self, status: int, kind: str, text: str) -> None:
            body = text.encode(errors="replace")
            self.send_response(status)
            for header, value in (
                ("Content-Type", f"{kind}; charset=utf-8"),
                ("Cache-Control", "no-store"),
                ("X-Content-Type-Options", "nosniff"),
                ("Content-Length", str(len(body))),
            ):
                self.send_header(header, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    try:
        made = Server((host, port), Handler)
    except (OSError, OverflowError, UnicodeError, TypeError) as error:  # the last of a name that is none
        raise InputError(f"cannot serve at {short(host)}:{port} ({error}); choose another --port or --host") from error
    return made


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
