"""Progress with the current numbers, on a terminal; nothing elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .runs import Job, Record
from .runs import Progress as JobProgress

COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(bar_width=24),
    MofNCompleteColumn(),
    TimeElapsedColumn(),
    TimeRemainingColumn(),
    TextColumn("{task.fields[numbers]}"),
)


@contextmanager
def follow(rounds: int, shown: bool | None = None) -> Iterator[Callable[[Record], None]]:
    """The rounds of one run."""
    console = Console(stderr=True)
    with Progress(*COLUMNS, console=console, disable=not _visible(console, shown), transient=True) as bar:
        task = bar.add_task("rounds", total=rounds, numbers="")

        def on_round(round: Record) -> None:
            numbers = f"loss {float(round.evaluation.loss.nanmean()):.4g}"
            for name, values in round.evaluation.metrics.items():
                numbers += f"  {name} {float(values.nanmean()):.4g}"
            if round.info is not None:
                others = float((round.info.weights != 0).sum(1).double().mean()) - 1
                numbers += f"  collaborators {max(0.0, others):.1f}"
            bar.update(task, completed=round.number, numbers=numbers)

        yield on_round


@contextmanager
def follow_many(jobs: list[Job], shown: bool | None = None) -> Iterator[Callable[[JobProgress], None]]:
    """All runs of a comparison, and the one that reported last."""
    console = Console(stderr=True)
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
