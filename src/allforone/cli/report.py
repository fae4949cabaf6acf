"""`allforone report`, `allforone watch` and `allforone export`: what a folder holds, shown, followed and taken away."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..catalogue import FORMATS
from ..errors import InputError, short, suggest
from ..opening import to_write
from .screen import say, show

if TYPE_CHECKING:
    from ..runs import Comparison

Weighted = Annotated[bool, typer.Option("--weighted", help="Weight clients by their data in the table.")]


def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a run or a comparison.")],
    weighted: Weighted = False,
    table: Annotated[
        str | None, typer.Option(help=f"Only print the table, as {', '.join(FORMATS)}; nothing is written.")
    ] = None,
) -> None:
    """Table, figures and report.html anew from what a folder holds.

    Examples:

      allforone report out/compare-digits

      allforone report out/compare-digits --table latex > table.tex
    """
    from ..reports import comparison_table
    from ..runs import read_comparison

    if table not in (None, *FORMATS):
        raise InputError(f"unknown table format '{short(str(table))}'; {suggest(str(table), FORMATS)}")
    comparison = read_comparison(folder)
    if table is None:
        show_comparison(comparison, folder, weighted)
    elif table == "terminal":
        show(comparison_table(comparison, weighted))
    else:
        print(FORMATS[table](comparison_table(comparison, weighted, table)), end="")


def watch(
    folder: Annotated[Path, typer.Argument(help="The folder of a run or a comparison that goes on.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any that is free.")] = 8420,
    host: Annotated[str, typer.Option(help="With 127.0.0.1 nobody else can look.")] = "127.0.0.1",
) -> None:
    """The page of a run while it trains, in the browser; Ctrl-C ends the watching, not the run.

    Example: allforone watch out/digits-all-for-one-127
    """
    from ..reports import server

    with server(folder, host, port) as serving:
        say(f"watching {folder} at http://{host}:{serving.server_port}/ (Ctrl-C ends it)")
        try:
            serving.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            say("no longer watching")


def export(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    client: Annotated[str, typer.Option(help="Its name or, where none is called so, its number from 0.")],
    out: Annotated[Path | None, typer.Option(help="A new folder; by default RUN/export/client-NUMBER.")] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help=r"Also as ONNX; needs the extra allforone\[onnx].")] = False,
) -> None:
    """One client's model to take away: its weights as safetensors, and a short script that loads them.

    Example: allforone export out/digits-all-for-one-127 --client 3 --onnx
    """
    from ..runs import export_client

    for path in export_client(run, client, out, onnx=onnx):
        say(str(path))


def show_run(path: Path) -> None:
    from ..reports import comparison_table, remarks, write_report
    from ..runs import Folder, read_comparison

    comparison = read_comparison(path)
    page = write_report(comparison, path / "report.html")
    show(comparison_table(comparison))
    folder = Folder(path)
    names = {number: client["name"] for number, client in enumerate(folder.clients)}
    for said in remarks(folder.metrics(), comparison.runs[0].liars, names):
        say(said)
    say(f"run: {path}\nreport: {page}")


def show_comparison(comparison: "Comparison", path: Path, weighted: bool) -> None:
    from ..reports import comparison_table, draw_figures, write_report
    from ..runs import summarise

    summary = json.dumps(summarise(comparison, weighted), indent=2) + "\n"
    to_write(path / "summary.json").write_text(summary, encoding="utf-8")
    figures = draw_figures(comparison, path)
    page = write_report(comparison, path / "report.html")
    show(comparison_table(comparison, weighted))
    say(f"summary: {path / 'summary.json'}\nfigures: {', '.join(map(str, figures))}\nreport:  {page}")
