"""`allforone paper`: each figure and table of the paper from one command."""

import csv
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from . import paper, theory_cli
from .errors import InputError, stoppable
from .paper.tables import Table as Rows
from .progress import follow_many
from .reports.plain_table import escaped
from .runs import Comparison, parse_seeds

app = typer.Typer(
    no_args_is_help=True,
    help=(
        "The paper's figures and tables. What is computed once is used again, and an interrupted command goes on where it "
        "was: give it again. At the paper's settings Mnist, Cifar10 and Ixi take many hours; --quick takes minutes."
    ),
)
screen = Console()

Quick = Annotated[bool, typer.Option("--quick", help="A small version of each, in minutes, in OUT/quick.")]
Seeds = Annotated[str, typer.Option(help="Seeds such as 127,496,1729; a lone number up to 20 is how many.")]
Out = Annotated[Path, typer.Option(help="Where runs, figures and tables go.")]
Problems = Annotated[str, typer.Option(help=f"Of {', '.join(paper.REAL)}, those to be shown, separated by commas.")]

SEEDS, OUT, ALL = "127,496,1729", Path("out/paper"), ",".join(paper.REAL)


@app.command()
def figure1(quick: Quick = False, out: Out = OUT) -> None:
    """The size of sufficient clusters by precision. Example: allforone paper figure1"""
    theory_cli.sufficient_clusters(out=_place(out, quick) / "figure1", clients=8 if quick else 20)


@app.command()
def figure2(quick: Quick = False, seeds: Seeds = SEEDS, out: Out = OUT) -> None:
    """The synthetic problem in two and ten dimensions. Example: allforone paper figure2 --quick"""
    place = _place(out, quick)
    found = _computed(["synthetic-2", "synthetic-10"], quick, seeds, place)
    _tell(paper.draw_synthetic(found, place / "figure2"))


@app.command()
def figure3(quick: Quick = False, seeds: Seeds = SEEDS, problems: Problems = ALL, out: Out = OUT) -> None:
    """Loss and accuracy on the real data sets. Example: allforone paper figure3 --problems heart-disease"""
    place = _place(out, quick)
    _tell(paper.draw_real(_computed(_chosen(problems), quick, seeds, place), place / "figure3"))


@app.command()
def table2(quick: Quick = False, seeds: Seeds = SEEDS, problems: Problems = ALL, out: Out = OUT) -> None:
    """Accuracy and loss: paper, ours, as published. Example: allforone paper table2 --problems heart-disease"""
    _table("table2", quick, seeds, problems, out, deviations=False)


@app.command()
def table3(quick: Quick = False, seeds: Seeds = SEEDS, problems: Problems = ALL, out: Out = OUT) -> None:
    """Standard deviations over clients and seeds. Example: allforone paper table3 --problems heart-disease"""
    _table("table3", quick, seeds, problems, out, deviations=True)


@app.command()
def settings(quick: Quick = False, out: Out = OUT) -> None:
    """The settings of all experiments, as the problems have them. Example: allforone paper settings"""
    rows = paper.settings_table(quick)
    _show(rows, "settings")
    _save("settings", rows, _place(out, quick))


@app.command("all")
def everything(quick: Quick = False, seeds: Seeds = SEEDS, problems: Problems = ALL, out: Out = OUT) -> None:
    """All of them, one after another. Example: allforone paper all --quick --seeds 1"""
    figure1(quick, out)
    settings(quick, out)
    figure2(quick, seeds, out)
    figure3(quick, seeds, problems, out)
    table2(quick, seeds, problems, out)
    table3(quick, seeds, problems, out)


def _table(name: str, quick: bool, seeds: str, problems: str, out: Path, deviations: bool) -> None:
    place = _place(out, quick)
    computed = _computed(_chosen(problems), quick, seeds, place)
    with stoppable(" ".join(["allforone", *sys.argv[1:]])):
        found = {problem: paper.scores(comparison, place / problem) for problem, comparison in computed.items()}
    for title, rows in paper.side_by_side(found, deviations).items():
        for first in range(1, len(rows[0]), 3):  # one problem at a time, so that it fits a terminal
            problem = rows[0][first].partition(":")[0]
            heads = ["train / test", *(text.partition(": ")[2] for text in rows[0][first : first + 3])]
            part = [heads, *([row[0], *row[first : first + 3]] for row in rows[1:])]
            _show(part, f"{problem}: {title}" + (", standard deviation" if deviations else ""))
        _save(f"{name}-{title.split()[0]}", rows, place)
    if quick:
        screen.print("The paper's columns are of its own settings, ours of a small version: they cannot agree.")


def _place(out: Path, quick: bool) -> Path:
    return out / "quick" if quick else out


def _chosen(problems: str) -> list[str]:
    names = [name.strip() for name in problems.split(",") if name.strip()]
    unknown = [name for name in names if name not in paper.REAL]
    if unknown or not names:
        raise InputError(f"problems '{problems}': give any of {', '.join(paper.REAL)}, separated by commas")
    return names


def _computed(names: list[str], quick: bool, seeds: str, place: Path) -> dict[str, Comparison]:
    """What could be computed; a data set that is not there is named and left out."""
    found, missing = {}, []
    for name in names:
        try:
            paper.EXPERIMENTS[name].make(quick)
        except InputError as error:
            missing.append(str(error))
            continue
        screen.print(f"{paper.EXPERIMENTS[name].title} …", highlight=False)
        with stoppable(" ".join(["allforone", *sys.argv[1:]])):
            found[name], failed = paper.compute(name, parse_seeds(seeds), place, quick, follow_many)
        for job, reason in failed.items():
            print(f"allforone: {job}: {reason}", file=sys.stderr)
    if not found:
        raise InputError("; ".join(missing))
    for reason in missing:
        print(f"allforone: left out: {reason}", file=sys.stderr)
    return found


def _show(rows: Rows, title: str) -> None:
    table = Table(rows[0][0], title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for head in rows[0][1:]:
        table.add_column(head, justify="right")
    for row in rows[1:]:
        table.add_row(*row)
    screen.print(table)


def _save(name: str, rows: Rows, place: Path) -> None:
    """As CSV, Markdown and LaTeX."""
    place.mkdir(parents=True, exist_ok=True)
    with (place / f"{name}.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    (place / f"{name}.md").write_text("".join("| " + " | ".join(line) + " |\n" for line in lines))
    body = [" & ".join(map(escaped, row)) + " \\\\\n" for row in rows]
    (place / f"{name}.tex").write_text(
        f"\\begin{{tabular}}{{l{'r' * (len(rows[0]) - 1)}}}\n  \\toprule\n  {body[0]}  \\midrule\n  "
        + "  ".join(body[1:])
        + "  \\bottomrule\n\\end{tabular}\n"
    )
    _tell([place / f"{name}{suffix}" for suffix in (".csv", ".md", ".tex")])


def _tell(paths: list[Path]) -> None:
    screen.print("written: " + ", ".join(map(str, paths)), soft_wrap=True, highlight=False, markup=False)
