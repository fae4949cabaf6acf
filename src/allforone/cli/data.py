"""`allforone data`: the real data sets, listed, fetched, checked and drawn."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from ..catalogue import DATA_SETS, PROBLEMS
from ..errors import InputError
from .options import one_of
from .screen import say, screen

app = typer.Typer(no_args_is_help=True, help="The real data sets: list, fetch, check and show them.")

Name = Annotated[str, typer.Argument(help=f"One of {', '.join(DATA_SETS)}.", autocompletion=one_of(DATA_SETS))]


@app.command("list")
def list_sets() -> None:
    """The data sets, where they lie, and whether they are there.

    Example: allforone data list
    """
    from ..problems import sources

    for name, source in sources.SOURCES.items():
        place = sources.folder(name)
        found = [file for file in source.files if (place / file.name).is_file()]
        there = f"{len(found)} of {len(source.files)} files" if found or not place.is_dir() else "another layout"
        screen.print(
            f"[bold]{name}[/]  {source.title}. Licence: {source.licence}\n    {there} in {place}",
            soft_wrap=True,
            highlight=False,
        )


class Bar:
    """A progress bar as pooch wants one."""

    def __init__(self, progress: Progress, name: str) -> None:
        self.progress, self.name, self.task = progress, name, progress.add_task(name, total=None)

    total: int = 0

    def __setattr__(self, key: str, value: Any) -> None:
        super().__setattr__(key, value)
        if key == "total":
            self.progress.update(self.task, total=value)

    def update(self, count: int) -> None:
        self.progress.update(self.task, advance=count)

    def reset(self) -> None:
        self.progress.update(self.task, completed=0)

    def close(self) -> None: ...


@app.command()
def fetch(name: Name) -> None:
    """Download a data set from its publisher; what is there and whole is not downloaded again.

    Example: allforone data fetch mnist
    """
    from ..problems import sources

    source = sources.source(name)
    say(f"{source.title}. Licence: {source.licence}. {source.page}")
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        place = sources.fetch(name, Bar(progress, name))
    say(f"{name} is whole in {place}")


@app.command()
def check(name: Name) -> None:
    """Compare the files of a data set with their published sizes and checksums.

    Example: allforone data check cifar10
    """
    from ..problems import sources

    findings = sources.check(name)
    for finding in findings:
        say(f"{finding.file}: {finding.state}")
    place, instead = sources.folder(name), sources.source(name).instead
    if all(finding.fine for finding in findings):
        return
    if all(finding.state == "missing" for finding in findings[:1]) and instead and place.is_dir():
        PROBLEMS[name]()  # reads the other layout whole, and says what is wrong with it
        say(f"{place} has another layout ({instead}), which reads well")
        return
    raise InputError(f"{name} in {place} is not whole: run `allforone data fetch {name}`")


@app.command()
def show(
    name: Annotated[str, typer.Argument(help=f"A problem: {', '.join(PROBLEMS)}.", autocompletion=one_of(PROBLEMS))],
    out: Annotated[Path, typer.Option(help="The picture to write.")] = Path("out/data.png"),
) -> None:
    """Draw what each client has: samples per label, or for Ixi a slice of a volume with its mask.

    Example: allforone data show digits --out digits.png
    """
    from ..reports.data_figures import draw_clients

    if name not in PROBLEMS:
        raise InputError(f"unknown problem '{name}': give one of {', '.join(PROBLEMS)}")
    say(f"picture: {draw_clients(PROBLEMS[name](), out)}")
