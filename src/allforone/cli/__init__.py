"""The command line: `allforone run`, `compare`, `resume`, `report`, `watch`, `export`, `provision`, `join`, `serve`,
`audit`, `privacy`, `data`, `theory`, `paper`, `leaderboard`.

The modules here import only what help and completion need; a command imports the rest when it runs.
"""

import io
import os
import sys
import warnings
from contextlib import suppress
from signal import SIGINT
from typing import Annotated

import typer

from .. import __version__
from ..errors import Notice, Stopped, explained, printable
from ..stopping import asked, signals
from . import audit, compare, data, leaderboard, machines, paper, privacy, report, run, theory
from .screen import complain, printing

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Personal models for many sites that borrow each other's gradients exactly as long as that helps.",
)
for command in (
    run.run,
    run.resume,
    compare.compare,
    leaderboard.leaderboard,
    report.report,
    report.watch,
    report.export,
):
    app.command()(command)
for command in (machines.provision, machines.join, machines.serve, audit.audit, privacy.privacy):
    app.command()(command)
app.add_typer(data.app, name="data")
app.add_typer(theory.app, name="theory")
app.add_typer(paper.app, name="paper")


def _say_version(asked: bool) -> None:
    if asked:
        print(f"allforone {__version__}")
        raise typer.Exit


@app.callback()
def version(
    asked: Annotated[
        bool,
        typer.Option("--version", help="Say which version this is, and exit.", callback=_say_version, is_eager=True),
    ] = False,
) -> None: ...


def _one_line(message: Warning | str, category: type[Warning], *place: object) -> str:
    said = f"allforone: {printable(str(message))}\n"
    return said if issubclass(category, Notice) else _usual_line(message, category, *place)  # type: ignore[arg-type]


_usual_line = warnings.formatwarning


def main() -> None:
    warnings.formatwarning = _one_line  # type: ignore[assignment]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal of another encoding is no reason to fail
    with signals():
        code = _ended()
    sys.exit(code)


def _ended() -> int:
    """The exit code of the command that was given; whatever happens, one line says what and where."""
    try:
        try:
            app()
        except SystemExit as end:
            with printing():
                sys.stdout.flush()
            if (number := asked()) is not None and end.code == 128 + SIGINT:  # what typer makes of any interruption
                complain("stopped")
                return 128 + number
            return end.code if isinstance(end.code, int) else 0
    except Stopped as error:
        complain(explained(error))
        return error.code
    except BrokenPipeError:
        pass
    except KeyboardInterrupt:
        complain("stopped")
        return 128 + (asked() or SIGINT)
    except BaseException as error:  # a panic of compiled code is no Exception
        complain(explained(error))
        return 2
    finally:
        _let_go_of_output()
    return 0


def _let_go_of_output() -> None:
    """What cannot be written now cannot be when Python ends either, which would then complain in lines of its own."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
