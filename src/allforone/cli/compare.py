"""`allforone compare`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..catalogue import ALGORITHMS, PAPER_ALGORITHMS, absolute, split_options
from ..errors import InputError
from ..stopping import stoppable
from .machines import FLARE
from .options import SEEDS, SeedList, Settings, fleet_name, with_settings
from .report import Weighted, show_comparison
from .screen import complain


@with_settings
def compare(
    *,
    algorithms: Annotated[
        str,
        typer.Option(
            help=f"Names separated by commas, or all, the paper's. Known: {', '.join(ALGORITHMS)}; "
            "your own as [bold]my_file.py:algorithm[/]."
        ),
    ] = "all",
    seeds: SeedList = SEEDS,
    out: Annotated[Path | None, typer.Option(help="A new folder; by default out/compare-PROBLEM.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what --out holds already.")] = False,
    weighted: Weighted = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; by default as many as pay off.")] = None,
    settings: Settings,
) -> None:
    """Several algorithms on one problem: a table, figures and report.html.

    Examples:

      allforone compare synthetic --seeds 127,496,1729 --out out/synthetic

      allforone compare digits --algorithms all-for-one-binary,local,fedavg --seeds 3

      allforone compare digits --algorithms local,ditto,ditto:penalty=1,ditto-as-published

      allforone compare digits -p split=dirichlet --out out/dirichlet --resume
    """
    from ..progress import progress_of_comparison
    from ..runs import compare as run_comparison
    from ..runs import parse_seeds, plan, read_comparison, refuse_used

    path = out or Path("out") / f"compare-{settings.problem_name}"
    if not resume:
        refuse_used(path)
    named = [absolute(name.strip()) for name in algorithms.split(",") if name.strip()]
    names = PAPER_ALGORITHMS if algorithms == "all" else named
    given = settings.as_config(names[0] if len(names) == 1 else None)
    given.pop("seed", None)
    if fleet_name(given) == FLARE:
        raise InputError(
            "compare needs everybody's data at once, which in a federation are at the sites; there give "
            "`allforone run` once for each algorithm"
        )
    others = given.get("algorithm", {}).get("name") not in {split_options(name)[0] for name in names}
    if others and not settings.algorithm_option:  # the file's, which is not among those to compare
        given.pop("algorithm", None)
    jobs = plan(given, names, parse_seeds(seeds), path, skip_impossible=algorithms == "all")
    again = " ".join(["allforone", *(a for a in sys.argv[1:] if a != "--resume"), "--resume"])
    with stoppable(again), progress_of_comparison(jobs) as watch:
        failed = run_comparison(jobs, path, resumed=resume, workers=workers, watch=watch)
    for job, reason in failed.items():
        complain(f"{job}: {reason}")
    show_comparison(read_comparison(path), path, weighted)
    if failed:
        raise typer.Exit(1)
