"""`allforone leaderboard`: algorithms side by side on named settings, with Local always among them."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..catalogue import FORMATS
from ..errors import InputError, MissingData, suggest
from ..leaderboard.settings import QUICK, SETTINGS
from ..leaderboard.settings import quick as quickly
from ..stopping import stoppable
from .options import one_of
from .screen import complain, say, show

if TYPE_CHECKING:
    from ..leaderboard.contestants import Contestant
    from ..leaderboard.settings import Setting
    from ..leaderboard.summary import Summary

#: What the data of settings are called; each stands for all settings on it.
GROUPS = list(dict.fromkeys(str(setting.problem["name"]) for setting in SETTINGS.values()))
#: The line of a page below which its tables stand.
MARK = "<!-- tables -->\n"
SUFFIXES = {"csv": "csv", "markdown": "md", "latex": "tex"}


def leaderboard(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help=f"Settings by their names (--list), or all of {', '.join(GROUPS)}; by default all.",
            show_default=False,
            autocompletion=one_of([*GROUPS, *SETTINGS]),
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Few rounds, one seed; if none is named, only digits and few contestants: in OUT/quick."
        ),
    ] = False,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds such as 127,496,1729; by default each setting's own.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where runs, pages and tables go, and what is there is used.")] = Path(
        "out/leaderboard"
    ),
    algorithms: Annotated[
        str | None,
        typer.Option(help="Contestants separated by commas; by default all (--list). Local is always among them."),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; by default as many as pay off.")] = None,
    publish: Annotated[
        Path | None,
        typer.Option(help="Also add to the small summaries in this folder, and write tables into the page FOLDER.md."),
    ] = None,
    table: Annotated[
        str | None, typer.Option(help=f"Only print what OUT holds, as {', '.join(FORMATS)}; nothing is run.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Name all settings and contestants, and exit.")] = False,
) -> None:
    """Algorithms side by side, with Local always among them: the last round, and the best by validation.

    What is computed once is used again, and an interrupted command goes on where it was: give it again.

    Examples:

      allforone leaderboard --quick

      allforone leaderboard mnist-iid-poor heart-disease --algorithms all-for-one,fedavg,ditto:penalty=1

      allforone leaderboard cifar10 --publish docs/leaderboard

      allforone leaderboard --out docs/leaderboard --table markdown
    """
    if listed:
        _list()
        return
    settings = _chosen(names, quick)
    place = out / "quick" if quick else out
    if table is not None:
        _print(table, place, settings if names else None)
        return
    from ..leaderboard.contestants import QUICK_ALGORITHMS, chosen

    contestants = chosen(QUICK_ALGORITHMS if quick and algorithms is None else algorithms)
    summaries, failed = _measured(settings, contestants, seeds, place, workers)
    _show(summaries, place, publish)
    if failed:
        raise typer.Exit(1)


def _chosen(names: list[str] | None, quick: bool) -> "list[Setting]":
    wanted = names or (QUICK if quick else [*SETTINGS])
    found: dict[str, Setting] = {}
    for name in wanted:
        if name not in SETTINGS and name not in GROUPS:
            raise InputError(f"unknown setting '{name}'; {suggest(name, dict.fromkeys([*GROUPS, *SETTINGS]))}")
        found |= {key: s for key, s in SETTINGS.items() if name in (key, s.problem["name"])}
    return [quickly(setting) if quick else setting for setting in found.values()]


def _measured(
    settings: "list[Setting]", contestants: "list[Contestant]", seeds: str | None, place: Path, workers: int | None
) -> "tuple[list[Summary], bool]":
    """The summaries of the settings whose data are there, each written as soon as it is known; and if a run failed."""
    from dataclasses import replace

    from ..leaderboard.measuring import measure
    from ..leaderboard.summary import summarise, write
    from ..progress import progress_of_comparison
    from ..reports import write_report
    from ..runs import parse_seeds

    found, missing, failed = [], [], False
    for setting in settings:
        if seeds is not None:
            setting = replace(setting, seeds=tuple(parse_seeds(seeds)))
        say(f"{setting.name} …")
        with stoppable(" ".join(["allforone", *sys.argv[1:]])):
            try:
                comparison, reasons = measure(
                    setting, contestants, place / setting.name, progress_of_comparison, workers
                )
            except MissingData as error:
                missing.append(str(error))
                continue
        for job, reason in reasons.items():
            complain(f"{setting.name}, {job}: {reason}")
        failed = failed or bool(reasons)
        write_report(comparison, place / setting.name / "report.html")
        found.append(summarise(setting, comparison))
        write(found[-1], place)
    if not found:
        raise InputError("; ".join(dict.fromkeys(missing)))
    for reason in dict.fromkeys(missing):
        complain(f"left out: {reason}")
    return found, failed


def _show(summaries: "list[Summary]", place: Path, publish: Path | None) -> None:
    from ..leaderboard.summary import read
    from ..leaderboard.table import written

    paths = [place / f"leaderboard.{suffix}" for suffix in SUFFIXES.values()]
    for form, path in zip(SUFFIXES, paths, strict=True):
        path.write_text(written(read(place), form), encoding="utf-8")
    if publish:
        paths += _publish(summaries, publish)
    _show_tables(summaries)
    say("written: " + ", ".join(map(str, paths)))
    say("pages:   " + ", ".join(str(place / summary["setting"] / "report.html") for summary in summaries))


def _publish(summaries: "list[Summary]", folder: Path) -> list[Path]:
    """Summaries, to which runs that are there already are added, and one CSV; below the mark of a page beside the
    folder, if there is one, the tables of all of them."""
    from ..leaderboard.summary import added, read, without_seconds, write
    from ..leaderboard.table import written

    there = {summary["setting"]: summary for summary in read(folder)}
    paths = [write(added(without_seconds(each), there.get(each["setting"])), folder) for each in summaries]
    paths.append(folder / "leaderboard.csv")
    paths[-1].write_text(written(read(folder), "csv"), encoding="utf-8")
    page = folder.with_suffix(".md")
    above, mark, _ = page.read_text(encoding="utf-8").partition(MARK) if page.is_file() else ("", "", "")
    if mark:
        page.write_text(f"{above}{mark}\n{written(read(folder), 'markdown')}", encoding="utf-8")
        paths.append(page)
    return paths


def _print(form: str, place: Path, settings: "list[Setting] | None") -> None:
    from ..leaderboard.summary import read
    from ..leaderboard.table import written

    if form not in FORMATS:
        raise InputError(f"unknown table format '{form}'; {suggest(form, FORMATS)}")
    wanted = None if settings is None else {setting.name for setting in settings}
    found = [summary for summary in read(place) if wanted is None or summary["setting"] in wanted]
    if not found:
        raise InputError(f"{place}: no summary of these settings there; run `allforone leaderboard` first")
    if form != "terminal":
        print(written(found, form), end="")
        return
    _show_tables(found)


def _show_tables(summaries: "list[Summary]") -> None:
    from ..leaderboard.table import OVERALL_RULE, groups, narrow, overall_table, rule, setting_table

    for summary in summaries:
        for part in narrow(setting_table(summary)):
            show(part)
    say(rule(summaries))
    for _, table in groups(summaries):
        show(table)
    if len(summaries) > 1:
        show(overall_table(summaries))
        say(OVERALL_RULE)


def _list() -> None:
    from ..leaderboard.contestants import CONTESTANTS
    from ..reports.table import Table, plain

    show(Table(["setting", "what"], plain([s.name, s.about] for s in SETTINGS.values()), prose=True))
    say("contestants: " + ", ".join(contestant.name for contestant in CONTESTANTS))
