"""`allforone paper`: each figure and table of the paper from one command."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
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
    from ..paper.scores import Summary
    from ..reports.table import Table

app = typer.Typer(
    no_args_is_help=True,
    help=(
        "The paper's figures and tables. What is computed once is used again, and an interrupted command goes on "
        "where it was: give it again. At the paper's settings Mnist, Cifar10 and Ixi take many hours; --quick takes "
        "minutes."
    ),
)

SYNTHETIC = ["synthetic-2", "synthetic-10"]
OUT, ALL = Path("out/paper"), ",".join(DATA_SETS)
#: What a figure may have along its axis.
BY = ("rounds", "samples", "bytes")
SUFFIXES = {"csv": "csv", "markdown": "md", "latex": "tex"}

Quick = Annotated[bool, typer.Option("--quick", help="A small version of each, in minutes, in OUT/quick.")]
Out = Annotated[Path, typer.Option(help="Where runs, figures and tables go.")]
Problems = Annotated[str, typer.Option(help=f"Of {', '.join(DATA_SETS)}, those to be shown, separated by commas.")]
Algorithms = Annotated[
    str, typer.Option(help="Names separated by commas, as local,local-as-published; by default all of the paper's.")
]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes; by default as many as pay off.")]
By = Annotated[str, typer.Option(help=f"What figures have along their axis: {', '.join(BY)}.")]
Publish = Annotated[
    Path | None, typer.Option(help="A folder that gets a small summary of every run, without models, to be kept.")
]
From = Annotated[
    Path | None, typer.Option("--from", help="Run nothing: what is shown is made of the summaries in this folder.")
]


@dataclass(frozen=True)
class Asked:
    """What of the paper is wanted, and where it comes from and goes."""

    out: Path
    quick: bool
    seeds: str
    algorithms: str = ""
    workers: int | None = None
    publish: Path | None = None
    published: Path | None = None

    @property
    def place(self) -> Path:
        return _place(self.out, self.quick)


@app.command()
def figure1(quick: Quick = False, out: Out = OUT) -> None:
    """The size of sufficient clusters by precision. Example: allforone paper figure1"""
    theory.sufficient_clusters(out=_place(out, quick) / "figure1", clients=8 if quick else 20)


@app.command()
def figure2(
    quick: Quick = False,
    seeds: SeedList = SEEDS,
    out: Out = OUT,
    algorithms: Algorithms = "",
    by: By = BY[0],
    workers: Workers = None,
    publish: Publish = None,
    published: From = None,
) -> None:
    """The synthetic problem in two and ten dimensions. Example: allforone paper figure2 --quick"""
    from ..paper import draw_synthetic

    asked = Asked(out, quick, seeds, algorithms, workers, publish, published)
    name = _figure("figure2", by)
    _tell(draw_synthetic(_found(SYNTHETIC, asked), asked.place / name, by))


@app.command()
def figure3(
    quick: Quick = False,
    seeds: SeedList = SEEDS,
    problems: Problems = ALL,
    out: Out = OUT,
    algorithms: Algorithms = "",
    by: By = BY[0],
    workers: Workers = None,
    publish: Publish = None,
    published: From = None,
) -> None:
    """Loss and accuracy on the real data sets. Example: allforone paper figure3 --problems heart-disease"""
    from ..paper import draw_real

    asked = Asked(out, quick, seeds, algorithms, workers, publish, published)
    name = _figure("figure3", by)
    _tell(draw_real(_found(_chosen(problems), asked), asked.place / name, by))


@app.command()
def table2(
    quick: Quick = False,
    seeds: SeedList = SEEDS,
    problems: Problems = ALL,
    out: Out = OUT,
    algorithms: Algorithms = "",
    workers: Workers = None,
    publish: Publish = None,
    published: From = None,
) -> None:
    """Accuracy and loss: paper, ours, as published. Example: allforone paper table2 --problems heart-disease"""
    _table("table2", Asked(out, quick, seeds, algorithms, workers, publish, published), problems)


@app.command()
def table3(
    quick: Quick = False,
    seeds: SeedList = SEEDS,
    problems: Problems = ALL,
    out: Out = OUT,
    algorithms: Algorithms = "",
    workers: Workers = None,
    publish: Publish = None,
    published: From = None,
) -> None:
    """Standard deviations over clients and seeds. Example: allforone paper table3 --problems heart-disease"""
    _table("table3", Asked(out, quick, seeds, algorithms, workers, publish, published), problems, deviations=True)


@app.command()
def costs(
    quick: Quick = False,
    seeds: SeedList = SEEDS,
    problems: Problems = ALL,
    out: Out = OUT,
    algorithms: Algorithms = "",
    workers: Workers = None,
    publish: Publish = None,
    published: From = None,
) -> None:
    """How far each came, and what that cost. Example: allforone paper costs --problems synthetic-2"""
    from ..paper import cost_tables

    asked = Asked(out, quick, seeds, algorithms, workers, publish, published)
    for name, table in cost_tables(_found(_chosen(problems, [*SYNTHETIC, *DATA_SETS]), asked)).items():
        show(table)
        _save(f"costs-{name}", table, asked.place)


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
def everything(
    quick: Quick = False,
    seeds: SeedList = SEEDS,
    problems: Problems = ALL,
    out: Out = OUT,
    workers: Workers = None,
    publish: Publish = None,
) -> None:
    """All of them, one after another. Example: allforone paper all --quick --seeds 1"""
    figure1(quick, out)
    settings(quick, out)
    figure2(quick, seeds, out, workers=workers, publish=publish)
    figure3(quick, seeds, problems, out, workers=workers, publish=publish)
    table2(quick, seeds, problems, out, workers=workers)
    table3(quick, seeds, problems, out, workers=workers)


def _figure(name: str, by: str) -> str:
    if by not in BY:
        raise InputError(f"by '{short(by)}': give one of {', '.join(BY)}")
    return name if by == BY[0] else f"{name}-{by}"


def _table(name: str, asked: Asked, problems: str, deviations: bool = False) -> None:
    from ..paper import by_authors, by_problem, scores, side_by_side

    runs = _found(_chosen(problems), asked)
    found, theirs = ({problem: scores(of, *by) for problem, of in runs.items()} for by in ((), (by_authors,)))
    for title, table in side_by_side(found, deviations, theirs).items():
        for part in by_problem(table):
            show(part)
        _save(f"{name}-{title.split()[0]}", table, asked.place)
    if asked.quick:
        screen.print("The paper's columns are of its own settings, ours of a small version: they cannot agree.")


def _place(out: Path, quick: bool) -> Path:
    return out / "quick" if quick else out


def _chosen(problems: str, known: Sequence[str] = DATA_SETS) -> list[str]:
    names = [name.strip() for name in problems.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise InputError(f"problems '{short(problems)}': give any of {', '.join(known)}, separated by commas")
    return names


def _found(names: list[str], asked: Asked) -> "dict[str, list[Summary]]":
    """Summaries of all runs that are wanted: those that are published, or of what is run now."""
    from ..paper import contenders
    from ..paper.summary import read, write
    from ..runs import parse_seeds

    only = [name.strip() for name in asked.algorithms.split(",") if name.strip()]
    known = {contender for name in names for contender in contenders(name)}
    if unknown := [name for name in only if name not in known]:
        raise InputError(f"algorithms '{short(unknown[0])}': not of the paper; it has {', '.join(sorted(known))}")
    if asked.published:
        seeds = parse_seeds(asked.seeds)
        found = {name: read(asked.published / name, [*contenders(name)]) for name in names}
        wanted = {
            name: [run for run in runs if run["seed"] in seeds and (not only or run["algorithm"] in only)]
            for name, runs in found.items()
        }
        if not any(wanted.values()):
            raise InputError(f"{asked.published}: no summary there of {', '.join(names)}; write some by --publish")
        return {name: runs for name, runs in wanted.items() if runs}
    computed = _computed(names, asked, only or None)
    if asked.publish:
        written = [write(run, asked.publish / name) for name, runs in computed.items() for run in runs]
        say(f"published: {len(written)} runs in {asked.publish}")
    return computed


def _computed(names: list[str], asked: Asked, only: list[str] | None) -> "dict[str, list[Summary]]":
    """What could be computed; a data set that is not there is named and left out."""
    from ..paper import EXPERIMENTS, Way, compute
    from ..progress import progress_of_comparison
    from ..runs import parse_seeds

    found, missing = {}, []
    way = Way(parse_seeds(asked.seeds), asked.quick, only, asked.workers)
    for name in names:
        try:
            EXPERIMENTS[name].make(asked.quick)
        except InputError as error:
            missing.append(str(error))
            continue
        screen.print(f"{EXPERIMENTS[name].title} …", highlight=False)
        with stoppable(" ".join(["allforone", *sys.argv[1:]])):
            found[name], failed = compute(name, way, asked.place, progress_of_comparison)
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
