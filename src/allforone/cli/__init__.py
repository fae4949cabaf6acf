"""The command line: `allforone run`, `compare`, `resume`, `report`, `watch`, `export`, `data`, `theory`, `paper`.

The modules here import only what help and completion need; a command imports the rest when it runs.
"""

import sys
import warnings
from typing import Annotated

import typer

from .. import __version__
from ..errors import AllForOneError, Notice, Stopped
from . import compare, data, paper, report, run, theory

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Personal models for many sites that borrow each other's gradients exactly as long as that helps.",
)
for command in (run.run, run.resume, compare.compare, report.report, report.watch, report.export):
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
    return f"allforone: {message}\n" if issubclass(category, Notice) else _usual_line(message, category, *place)  # type: ignore[arg-type]


_usual_line = warnings.formatwarning


def main() -> None:
    warnings.formatwarning = _one_line  # type: ignore[assignment]
    try:
        app()
    except AllForOneError as error:
        print("allforone: " + " ".join(str(error).split()), file=sys.stderr)
        sys.exit(130 if isinstance(error, Stopped) else 2)
