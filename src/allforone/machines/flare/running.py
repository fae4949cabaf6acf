"""The training loop of a run whose sites are behind a transport: at the server, into its folder, resumed if need be."""

import fcntl
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...errors import AllForOneError, InputError, Notice
from ...progress import numbers
from ...runs import Folder, Given, Record, execute, parse, prepare
from ..presence import Ended, Patience
from ..sites import Sites
from ..transport import Transport
from .desk import Desk
from .keeper import Intent, check_run_name, intent_of
from .meeting import met_before, remember
from .own import OwnFiles, load_task_of

#: Seconds between two looks whether another job of the same run has ended.
GLANCE = 0.5


def run_for(settings: dict[str, Any], own: OwnFiles, transport: Transport, desk: Desk) -> None:
    """Do the rounds that are left, and write down beside the run's folder whether it is to go on."""
    runs, name = Path(own.runs), str(settings["run"])
    try:
        check_run_name(name)
        _check_same_run(intent_of(runs, name), settings)
    except InputError as error:
        desk.end("stopped", str(error))
        return
    with _alone(runs / f"{name}.lock", transport) as alone:
        if alone:
            _run(Intent(settings), own, transport, desk, runs / name)


def _check_same_run(intent: Path, settings: dict[str, Any]) -> None:
    if intent.exists() and Intent.read(intent).settings.get("token") != settings["token"]:
        raise InputError(f"the server has another run named {settings['run']} already; choose another --out")


@contextmanager
def _alone(lock: Path, transport: Transport) -> Iterator[bool]:
    """Whether this is the only job of the run: one before it may be about to end."""
    with lock.open("a+") as file:
        while not transport.stopped():
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(GLANCE)
            else:
                yield True
                return
        yield False


def _run(intent: Intent, own: OwnFiles, transport: Transport, desk: Desk, path: Path) -> None:
    place = intent_of(path.parent, path.name)
    intent.write(place)
    try:
        with _notices(desk.note):
            _train(intent.settings, own, transport, desk, path)
        intent.state = "finished"
    except Ended:
        return  # whoever keeps the server's runs goes on with it
    except Exception as error:
        if transport.stopped():
            return
        intent.state = "stopped"
        intent.why = str(error) if isinstance(error, AllForOneError) else f"{type(error).__name__}: {error}"
        if not isinstance(error, AllForOneError):
            raise
    finally:
        intent.write(place)
        if intent.state != "running":
            desk.end(intent.state, intent.why)


def _train(settings: dict[str, Any], own: OwnFiles, transport: Transport, desk: Desk, path: Path) -> None:
    here = {"problem": {"name": own.task}, "fleet": {"name": "flare"}}
    given = {**settings["config"], **here}
    run = prepare(parse(given, "the job"), Given(problem=load_task_of(own.task, int(given["seed"]))))
    desk.begin(path)
    if Folder(path).finished:
        return  # who comes late only wants its files
    patience = Patience(least=int(settings["least_sites"]), deadline=float(settings["deadline"]))
    met = path.parent / f"{path.name}.met"
    fleet = Sites(
        run.problem,
        transport,
        seed=run.config.seed,
        batch_size=run.config.batch_size,
        participation=run.participation,
        patience=patience,
        known=met_before(met),
        told=run.config.sketch or 0,
    )
    remember(met, transport.names, fleet.descriptions)

    def on_round(record: Record) -> None:
        desk.add(record.number, numbers(record, run.config.metrics))

    execute(run, path, resume=(path / "config.yaml").exists(), on_round=on_round, fleet=fleet)


@contextmanager
def _notices(tell: Callable[[str], None]) -> Iterator[None]:
    """What the user should know though the run goes on is told to those who follow it."""
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, Notice):
            tell(str(message))
        usual(message, category, *place, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("always", Notice)
        warnings.showwarning = show
        yield
