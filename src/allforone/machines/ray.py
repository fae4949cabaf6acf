"""Sites in the processes of Ray: all cores of this machine, or a cluster that one owner has."""

import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from ..errors import InputError, blaming, short
from ..files import load_file, loaded_files
from ..fleet import Participation
from ..fleet.in_process import checked_module
from ..problems import Problem, Task
from .loop import sites_of
from .presence import Patience
from .sites import Sites
from .transport import Absent, Reply
from .wire import decode, encode

#: Seconds in which Ray may start a process and send it its clients; whoever needs longer is absent until then.
STARTING = 120.0
#: Seconds in which somebody must answer at the address of a cluster.
KNOCKING = 10.0


class Host:
    """Some sites in one process of Ray's."""

    def __init__(self, files: list[str]) -> None:
        for file in files:  # before anything made by them arrives
            load_file(Path(file))

    def settle(self, task: Task, clients: dict[int, Any], seed: int, batch_size: int) -> None:
        self.sites = {str(k): site for k, site in sites_of(task, clients, seed, batch_size).items()}

    def answer(self, name: str, question: np.ndarray) -> tuple[np.ndarray, float]:
        """Its answer, and the seconds that it took."""
        begun = time.monotonic()
        return _array(self.sites[name].answer(question.tobytes())), time.monotonic() - begun


class Processes:
    """A transport: actors with some sites each. Ray starts one that died again, and it settles anew."""

    def __init__(self, problem: Problem, seed: int, batch_size: int, address: str | None, actors: int | None) -> None:
        self.ray = started(address)
        self.names: Sequence[str] = [str(k) for k in range(len(problem.clients))]
        cores = int(self.ray.cluster_resources().get("CPU", 1))
        count = max(1, min(actors or cores, len(self.names)))
        task = replace(problem.task, model=checked_module(problem, seed))
        host = self.ray.remote(max_restarts=-1, max_task_retries=0)(Host)
        self.actors: list[Any] = []
        self._settling: list[tuple[Any, ...]] = []
        self._actor_of: dict[str, int] = {}
        for number in range(count):
            clients = {k: problem.clients[k] for k in range(number, len(self.names), count)}
            self.actors.append(host.remote(loaded_files()))
            self._settling.append((self.ray.put(task), self.ray.put(clients), seed, batch_size))
            self._actor_of |= {str(k): number for k in clients}
        settling = [self._settle(number) for number in range(count)]
        ready, _ = self.ray.wait(settling, num_returns=count, timeout=STARTING)  # the others are absent until they are
        with blaming("the clients cannot be sent to the processes of Ray"):
            self.ray.get(ready)

    def _settle(self, number: int) -> Any:
        return self.actors[number].settle.remote(*self._settling[number])

    def ask(self, questions: Mapping[str, bytes], deadline: float) -> Iterator[Reply]:
        end = time.monotonic() + deadline
        put: dict[int, Any] = {}  # the same question to many is put once
        asked = {}
        for name, question in questions.items():
            if id(question) not in put:
                put[id(question)] = self.ray.put(_array(question))
            actor = self.actors[self._actor_of[name]]
            asked[name] = actor.answer.remote(name, put[id(question)])
        for name, answer in asked.items():
            yield Reply(name, *self._get(name, answer, end, deadline))

    def _get(self, name: str, answer: Any, end: float, deadline: float) -> tuple[bytes | Absent, float]:
        try:
            found, seconds = self.ray.get(answer, timeout=max(0.0, end - time.monotonic()))
            return found.tobytes(), seconds
        except self.ray.exceptions.RayError as error:
            return self._absent(name, error, deadline), deadline - max(0.0, end - time.monotonic())

    def _absent(self, name: str, error: Exception, deadline: float) -> Absent:
        failed = self.ray.exceptions
        if isinstance(error, failed.GetTimeoutError):
            return Absent(f"no answer within {deadline:g} s")
        if isinstance(error, failed.ActorDiedError):
            return Absent("its process died")
        if isinstance(error, failed.RayTaskError):  # it came back with nothing in it
            self._settle(self._actor_of[name])
            return Absent("its process has just been started again")
        return Absent("its process cannot be reached")

    def stopped(self) -> bool:
        return not self.ray.is_initialized()

    def close(self) -> None:
        for actor in self.actors:
            with suppress(Exception):  # who is dead already need not be ended
                self.ray.kill(actor)
        self.actors = []


class Ray(Sites):
    """Clients in the processes of Ray.

    Args:
        problem: with everybody's data, which are sent to the processes once.
        address: of a cluster, as ray://host:10001; by default Ray is started on this machine.
        actors: processes, by default one for each core.
        least_sites: without which a run waits, then stops.
        deadline: seconds for an answer.
        sketch: numbers by which mean gradients are told when they are compared, as a count sketch; 0: whole.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        seed: int,
        batch_size: int | None = None,
        participation: Participation = 1.0,
        address: str | None = None,
        actors: int | None = None,
        least_sites: int = 1,
        deadline: float = 300.0,
        sketch: int = 0,
    ) -> None:
        patience = Patience(least=least_sites, deadline=deadline)
        if actors is not None and actors < 1:
            raise InputError(f"actors is {actors}: at least 1 process must be there")
        size = batch_size or problem.settings.batch_size
        sites = sites_of(problem.task, dict(enumerate(problem.clients)), seed, size)
        super().__init__(
            problem,
            Processes(problem, seed, size, address, actors),
            known={str(k): decode(site.answer(encode({"ask": "describe"}))) for k, site in sites.items()},
            seed=seed,
            batch_size=size,
            participation=participation,
            patience=patience,
            told=sketch,
        )


def started(address: str | None) -> Any:
    """Ray, joined at this address or, without one, started here for this machine alone."""
    if address is not None:
        _knock(address)
    if address is None:  # else it listens to all who can reach this machine; Ray reads it when it is imported
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        import ray
    except ImportError:
        raise InputError("fleet ray needs the package ray: pip install 'allforone[ray]'") from None
    if ray.is_initialized():
        return ray
    os.environ.setdefault("RAY_worker_niceness", "0")  # else its processes give way to all others
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # on a busy machine it takes longer than Ray allows
    with blaming("Ray cannot be started or joined", "Look at its address, and whether this machine is too busy"):
        if address is None:
            ray.init("local", log_to_driver=False, include_dashboard=False, _node_ip_address="127.0.0.1")
        else:
            ray.init(address, log_to_driver=False)
    return ray


def _knock(address: str) -> None:
    """Refuse an address where nobody answers, at once: Ray itself would try on for minutes."""
    scheme, _, rest = address.rpartition("://")
    if address in ("auto", "local") or scheme not in ("", "ray"):
        return  # which Ray alone understands
    try:
        place = urlsplit(f"//{rest}")
        host, port = place.hostname, place.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise InputError(f"fleet ray: address '{short(address)}': give a cluster's, as ray://host:10001, or auto")
    try:
        socket.create_connection((host, port), KNOCKING).close()
    except (OSError, UnicodeError) as error:
        raise InputError(f"fleet ray: nobody answers at {short(address)} ({error}); is the cluster up?") from error


def _array(content: bytes) -> np.ndarray:
    """Bytes as Ray passes them on without a copy."""
    return np.frombuffer(content, np.uint8)
