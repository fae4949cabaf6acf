"""`allforone paper`: each figure and table of the paper from one command."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..catalogue import DATA_SETS, FORMATS
from ..errors import InputError, short
from ..opening import to_write
from ..stopping import stoppable
from . import theory
from .options import SEEDS, SeedList
from .screen import complain, say, screen, show

if TYPE_CHECKING:
    from ..reports.table import Table
    from ..runs import Comparison

app = typer.Typer(
    no_args_is_help=True,
    help=(
        "The paper's figures and tables. What is computed once is used again, and an interrupted command goes on "
        "where it was: give it again. At the paper's settings Mnist, Cifar10 and Ixi take many hours; --quick takes "
        "minutes."
    ),
)

Quick = Annotated[bool, typer.Option("--quick", help="A small version of each, in minutes, in OUT/quick.")]
Out = Annotated[Path, typer.Option(help="Where runs, figures and tables go.")]
Problems = Annotated[str, typer.Option(help=f"Of {', '.join(DATA_SETS)}, those to be shown, separated by commas.")]

OUT, ALL = Path("out/paper"), ",".join(DATA_SETS)
SUFFIXES = {"csv": "csv", "markdown": "md", "latex": "tex"}


@app.command()
def figure1(quick: Quick = False, out: Out = OUT) -> None:
    """The size of sufficient clusters by precision. Example: allforone paper figure1"""
    theory.sufficient_clusters(out=_place(out, quick) / "figure1", clients=8 if quick else 20)


@app.command()
def figure2(quick: Quick = False, seeds: SeedList = SEEDS, out: Out = OUT) -> None:
    """The synthetic problem in two and ten dimensions. Example: allforone paper figure2 --quick"""
    from ..paper import draw_synthetic

    place = _place(out, quick)
    found = _computed(["synthetic-2", "synthetic-10"], quick, seeds, place)
    _tell(draw_synthetic(found, place / "figure2"))


@app.command()
def figure3(quick: Quick = False, seeds: SeedList = SEEDS, problems: Problems = ALL, out: Out = OUT) -> None:
    """Loss and accuracy on the real data sets. Example: allforone paper figure3 --problems heart-disease"""
    from ..paper import draw_real

    place = _place(out, quick)
    _tell(draw_real(_computed(_chosen(problems), quick, seeds, place), place / "figure3"))


@app.command()
def table2(quick: Quick = False, seeds: SeedList = SEEDS, problems: Problems = ALL, out: Out = OUT) -> None:
    """Accuracy and loss: paper, ours, as published. Example: allforone paper table2 --problems heart-disease"""
    _table("table2", quick, seeds, problems, out, deviations=False)


@app.command()
def table3(quick: Quick = False, seeds: SeedList = SEEDS, problems: Problems = ALL, out: Out = OUT) -> None:
    """Standard deviations over clients and seeds. Example: allforone paper table3 --problems heart-disease"""
    _table("table3", quick, seeds, problems, out, deviations=True)


@app.command()
def settings(quick: Quick = False, out: Out = OUT) -> None:
    """The settings of all experiments, as the problems have them. Example: allforone paper settings"""
    from ..paper import settings_table
    from ..reports.table import Table, plain

    heads, *rows = settings_table(quick)
    table = Table(heads, plain(rows), "settings")
    show(table)
    _save("settings", table, _place(out, quick))


@app.command("all")
def everything(quick: Quick = False, seeds: SeedList = SEEDS, problems: Problems = ALL, out: Out = OUT) -> None:
    """All of them, one after another. Example: allforone paper all --quick --seeds 1"""
    figure1(quick, out)
    settings(quick, out)
    figure2(quick, seeds, out)
    figure3(quick, seeds, problems, out)
    table2(quick, seeds, problems, out)
    table3(quick, seeds, problems, out)


def _table(name: str, quick: bool, seeds: str, problems: str, out: Path, deviations: bool) -> None:
    from ..paper import by_authors, by_problem, scores, side_by_side

    place = _place(out, quick)
    computed = _computed(_chosen(problems), quick, seeds, place)
    with stoppable(" ".join(["allforone", *sys.argv[1:]])):
        found = {problem: scores(comparison, place / problem) for problem, comparison in computed.items()}
        theirs = {problem: scores(comparison, place / problem, by_authors) for problem, comparison in computed.items()}
    for title, table in side_by_side(found, deviations, theirs).items():
        for part in by_problem(table):
            show(part)
        _save(f"{name}-{title.split()[0]}", table, place)
    if quick:
        screen.print("The paper's columns are of its own settings, ours of a small version: they cannot agree.")


def _place(out: Path, quick: bool) -> Path:
    return out / "quick" if quick else out


def _chosen(problems: str) -> list[str]:
    names = [name.strip() for name in problems.split(",") if name.strip()]
    unknown = [name for name in names if name not in DATA_SETS]
    if unknown or not names:
        raise InputError(f"problems '{short(problems)}': give any of {', '.join(DATA_SETS)}, separated by commas")
    return names


def _computed(names: list[str], quick: bool, seeds: str, place: Path) -> "dict[str, Comparison]":
    """What could be computed; a data set that is not there is named and left out."""
    from ..paper import EXPERIMENTS, compute
    from ..progress import progress_of_comparison
    from ..runs import parse_seeds

    found, missing = {}, []
    for name in names:
        try:
            EXPERIMENTS[name].make(quick)
        except InputError as error:
            missing.append(str(error))
            continue
        screen.print(f"{EXPERIMENTS[name].title} …", highlight=False)
        with stoppable(" ".join(["allforone", *sys.argv[1:]])):
            found[name], failed = compute(name, parse_seeds(seeds), place, quick, progress_of_comparison)
        for job, reason in failed.items():
            complain(f"{job}: {reason}")
    if not found:
        raise InputError("; ".join(missing))
    for reason in missing:
        complain(f"left out: {reason}")
    return found


def _save(name: str, table: "Table", place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    paths = {form: place / f"{name}.{suffix}" for form, suffix in SUFFIXES.items()}
    for form, path in paths.items():
        to_write(path).write_text(FORMATS[form](table), encoding="utf-8")
    _tell(list(paths.values()))


def _tell(paths: list[Path]) -> None:
    say("written: " + ", ".join(map(str, paths)))
