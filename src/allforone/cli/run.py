"""`allforone run` and `allforone resume`."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..catalogue import ALGORITHMS, folder_name
from ..errors import InputError
from ..stopping import stoppable
from .machines import FLARE, resume_remotely, run_remotely
from .options import Settings, one_of, with_settings
from .report import show_run

if TYPE_CHECKING:
    from ..runs import Record
    from ..runs.quantities import Readings

TensorBoard = Annotated[
    bool, typer.Option("--tensorboard", help=r"Also write RUN/tensorboard; needs the extra allforone\[tensorboard].")
]


@with_settings
def run(
    *,
    algorithm: Annotated[
        str | None,
        typer.Option(
            help=f"One of {', '.join(ALGORITHMS)}, or your own as [bold]my_file.py:algorithm[/].",
            autocompletion=one_of(ALGORITHMS),
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Decides the data, the initial model and every batch.")] = None,
    out: Annotated[Path | None, typer.Option(help="A new folder; by default out/PROBLEM-ALGORITHM-SEED.")] = None,
    settings: Settings,
    tensorboard: TensorBoard = False,
) -> None:
    """One algorithm on one problem, into a run folder.

    Examples:

      allforone run digits

      allforone run synthetic --algorithm local -p dimension=10 --rounds 100

      allforone run my_sites.py:problem --config settings.yaml --out out/mine

      allforone run task.py:task --fleet flare:kit=kits/coordinator
    """
    from ..runs import execute, parse, prepare, refuse_begun
    from ..tensorboard import require_tensorboard

    given = settings.as_config(algorithm)
    if seed is not None:
        given["seed"] = seed
    checked = parse(given, settings.source)
    if tensorboard:
        require_tensorboard()
    path = out or Path("out") / f"{settings.problem_name}-{folder_name(str(checked.algorithm.name))}-{checked.seed}"
    refuse_begun(path)
    if checked.fleet.name == FLARE:
        run_remotely(checked, path)
    else:
        parts = prepare(checked)
        rounds, metrics = int(parts.config.rounds or 0), parts.config.metrics
        advice = parts.algorithm.advice(parts.clients)
        with stoppable(f"allforone resume {path}"), watched(path, rounds, metrics, tensorboard, advice) as on_round:
            execute(parts, path, on_round=on_round)
    show_run(path)


def resume(
    run: Annotated[Path, typer.Argument(help="The folder of a run that was interrupted.")],
    tensorboard: TensorBoard = False,
) -> None:
    """Go on with an interrupted run; the result is that of a run never interrupted.

    Example: allforone resume out/digits-all-for-one-binary-127
    """
    from ..runs import Folder, parse
    from ..runs import resume as resume_run

    folder = Folder.open(run)
    if folder.finished:
        raise InputError(f"{run}: this run is finished; see it with `allforone report {run}`")
    config = parse(folder.config, str(run / "config.yaml"))
    if config.fleet.name == FLARE:
        resume_remotely(folder)
    else:
        rounds, metrics = config.rounds or 0, config.metrics
        with stoppable(f"allforone resume {run}"), watched(run, rounds, metrics, tensorboard) as on_round:
            resume_run(run, on_round)
    show_run(run)


@contextmanager
def watched(
    run: Path, rounds: int, metrics: "Readings | None", tensorboard: bool, advice: str | None = None
) -> "Iterator[Callable[[Record], None]]":
    """Progress on the terminal and, if asked, scalars in RUN/tensorboard."""
    from ..progress import progress_of_run
    from ..tensorboard import scalars

    with ExitStack() as stack:
        watchers = [stack.enter_context(progress_of_run(rounds, metrics, advice=advice))]
        if tensorboard:
            watchers.append(stack.enter_context(scalars(run / "tensorboard", metrics)))

        def on_round(record: "Record") -> None:
            for watch in watchers:
                watch(record)

        yield on_round
