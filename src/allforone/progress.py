"""Progress with the current numbers, on a terminal or in a notebook; elsewhere nothing but advice."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from . import notebook
from .runs import Job, Record
from .runs import Progress as JobProgress
from .runs.quantities import LOSS, Readings, judged

COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(bar_width=24),
    MofNCompleteColumn(),
    TimeElapsedColumn(),
    TimeRemainingColumn(),
    TextColumn("{task.fields[numbers]}", markup=False),
)


class Unbroken:
    """Standard error; a terminal that is closed, or a full disk behind it, does not end a run."""

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


def _console() -> Console:
    return Console(file=cast(IO[str], Unbroken()))


@contextmanager
def progress_of_run(
    rounds: int, metrics: Readings | None, shown: bool | None = None, advice: str | None = None
) -> Iterator[Callable[[Record], None]]:
    """The rounds of one run; `metrics` says how its own are read. Advice is given before it, not on terminals only."""
    if advice and shown is not False:
        _console().print(advice, soft_wrap=True, highlight=False, markup=False)
    with progress_of_rounds(rounds, shown) as show:
        yield lambda record: show(record.number, numbers(record, metrics))


@contextmanager
def progress_of_rounds(
    rounds: int | None, shown: bool | None = None, called: str = "rounds"
) -> Iterator[Callable[[int, str], None]]:
    """Takes the number of a round that is done, and its numbers in words; of what else has steps, likewise."""
    if shown is not False and notebook.is_one():
        yield notebook.bar(rounds)
        return
    console = _console()
    with Progress(*COLUMNS, console=console, disable=not _visible(console, shown), transient=True) as bar:
        task = bar.add_task(called, total=rounds, numbers="")
        yield lambda number, numbers: bar.update(task, completed=number, numbers=numbers)


def numbers(record: Record, metrics: Readings | None) -> str:
    """Means over the clients of which they are known."""
    means = {quantity: float(values.nanmean()) for quantity, values in judged(record.evaluation, metrics).items()}
    said = [f"loss {means[LOSS]:.4g}"] if LOSS in means else []
    said += [
        f"{quantity.name} {quantity.shown(mean)}{' %' if quantity.percent else ''}"
        for quantity, mean in means.items()
        if not quantity.logs
    ]
    if record.info is not None:
        others = float((record.info.weights != 0).sum(1).double().mean()) - 1
        said.append(f"collaborators {max(0.0, others):.1f}")
    return "  ".join(said)


@contextmanager
def progress_of_comparison(jobs: list[Job], shown: bool | None = None) -> Iterator[Callable[[JobProgress], None]]:
    """All runs of a comparison, and the one that reported last."""
    console = _console()
    totals = {number: job.config.rounds or 1 for number, job in enumerate(jobs)}
    done = dict.fromkeys(totals, 0)
    with Progress(*COLUMNS, console=console, disable=not _visible(console, shown), transient=True) as bar:
        task = bar.add_task("rounds", total=sum(totals.values()), numbers="")

        def watch(seen: JobProgress) -> None:
            done[seen.job] = seen.round
            over = sum(done[number] == totals[number] for number in totals)
            numbers = f"runs {over}/{len(jobs)}  {jobs[seen.job].name}: loss {seen.loss:.4g}"
            bar.update(task, completed=sum(done.values()), numbers=numbers)

        yield watch


def _visible(console: Console, shown: bool | None) -> bool:
    return console.is_terminal if shown is None else shown
