"""The command line: `allforone run`, `compare`, `resume`, `report`, `watch`, `export`, `data`, `theory`, `paper`."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from . import data_cli, paper_cli, theory_cli
from .algorithms import ALGORITHMS, PAPER_ALGORITHMS
from .errors import AllForOneError, InputError, Stopped, stoppable
from .fleet import ATTACKS
from .problems import PROBLEMS
from .progress import follow, follow_many
from .reports import FORMATS, draw_figures, plain_table, remarks, server, terminal_table, write_report
from .runs import (
    Comparison,
    Folder,
    Record,
    execute,
    export_client,
    pairs,
    parse,
    parse_seeds,
    plan,
    prepare,
    read_comparison,
    read_yaml,
    refuse_used,
    summarise,
)
from .runs import compare as run_comparison
from .runs import resume as resume_run
from .tensorboard import require_tensorboard, scalars

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Personal models for many sites that borrow each other's gradients exactly as long as that helps.",
)
app.add_typer(data_cli.app, name="data")
app.add_typer(theory_cli.app, name="theory")
app.add_typer(paper_cli.app, name="paper")
screen = Console()

Problem = Annotated[
    str,
    typer.Argument(
        help=f"What is learned: {', '.join(PROBLEMS)}, or your own as [bold]my_file.py:problem[/].", show_default=False
    ),
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="A YAML file with any of these settings.")]
Rounds = Annotated[int | None, typer.Option(help="Rounds; by default the problem's.")]
Inner = Annotated[int | None, typer.Option(help="Updates per round with the same weights.")]
BatchSize = Annotated[int | None, typer.Option(help="Samples per client and update.")]
Lr = Annotated[float | None, typer.Option(help="Step size.")]
OptimizerName = Annotated[str | None, typer.Option("--optimizer", help="SGD, Adam, … : any of torch.optim.")]
ScheduleName = Annotated[
    str | None,
    typer.Option(
        "--schedule",
        help="A step size of the theory: constant, horizon or decreasing; constants that are not known are "
        "given as decreasing:convexity=0.1:smoothness=4.",
    ),
]
ParticipationShare = Annotated[
    float | None,
    typer.Option(help="With which probability a client takes part in a round, as 0.3; by default all always do."),
]
AttackName = Annotated[
    str | None,
    typer.Option(help=f"For experiments: how many clients lie, and how, as flip:4. Known: {', '.join(ATTACKS)}."),
]
Guard = Annotated[
    bool | None,
    typer.Option(
        "--guard",
        help="Train every client alone as well, on four fifths of its data, and give it that model where "
        "collaboration hurts by the held-out fifth.",
        show_default=False,
    ),
]
FleetName = Annotated[
    str | None,
    typer.Option(
        "--fleet", help="stacked (fast), compiled (faster for small models, after a warm-up) or loop (plain)."
    ),
]
ProblemOptions = Annotated[
    list[str] | None,
    typer.Option("-p", "--problem-option", help="An option of the problem, as [bold]dimension=10[/]; may be repeated."),
]
AlgorithmOptions = Annotated[
    list[str] | None,
    typer.Option(
        "-a",
        "--algorithm-option",
        help="An option of the algorithm, as [bold]weighting=normalised[/]; may be repeated.",
    ),
]

TensorBoard = Annotated[
    bool, typer.Option("--tensorboard", help="Also write RUN/tensorboard; needs the extra allforone[tensorboard].")
]


def settings(
    problem: str,
    config: Path | None,
    rounds: int | None,
    inner: int | None,
    batch_size: int | None,
    lr: float | None,
    optimizer: str | None,
    fleet: str | None,
    problem_options: list[str] | None,
    algorithm_options: list[str] | None,
    participation: float | None = None,
    attack: str | None = None,
    guard: bool | None = None,
    schedule: str | None = None,
) -> dict[str, Any]:
    """The YAML file, overridden by the options."""
    given = read_yaml(config) if config else {}
    for key, value in (
        ("rounds", rounds),
        ("inner", inner),
        ("batch_size", batch_size),
        ("fleet", fleet),
        ("participation", participation),
        ("attack", attack),
        ("guard", guard),
    ):
        if value is not None:
            given[key] = value
    if ":" in problem:  # so that the run can be resumed from another folder
        path, _, attribute = problem.rpartition(":")
        problem = f"{Path(path).resolve()}:{attribute}"
    given["problem"] = {**_choice(given.get("problem")), "name": problem, **pairs(problem_options or [], "-p")}
    if algorithm_options:
        given["algorithm"] = {**_choice(given.get("algorithm")), **pairs(algorithm_options, "-a")}
    if schedule:
        name, *constants = schedule.split(":")
        given["schedule"] = {**pairs(constants, "--schedule"), "name": name}
    if optimizer or lr is not None:
        chosen = {} if optimizer else _choice(given.get("optimizer"))
        given["optimizer"] = {
            **chosen,
            **({"name": optimizer} if optimizer else {}),
            **({"lr": lr} if lr is not None else {}),
        }
    return given


@contextmanager
def watched(run: Path, rounds: int, tensorboard: bool) -> Iterator[Callable[[Record], None]]:
    """Progress on the terminal and, if asked, scalars in RUN/tensorboard."""
    with ExitStack() as stack:
        watchers = [stack.enter_context(follow(rounds))]
        if tensorboard:
            watchers.append(stack.enter_context(scalars(run / "tensorboard")))

        def on_round(round: Record) -> None:
            for watch in watchers:
                watch(round)

        yield on_round


def _choice(value: Any) -> dict[str, Any]:
    return {"name": value} if isinstance(value, str) else dict(value) if isinstance(value, dict) else {}


@app.command()
def run(
    problem: Problem,
    algorithm: Annotated[str | None, typer.Option(help=f"One of {', '.join(ALGORITHMS)}.")] = None,
    seed: Annotated[int | None, typer.Option(help="Decides the data, the initial model and every batch.")] = None,
    out: Annotated[Path | None, typer.Option(help="A new folder; by default out/PROBLEM-ALGORITHM-SEED.")] = None,
    config: ConfigFile = None,
    rounds: Rounds = None,
    inner: Inner = None,
    batch_size: BatchSize = None,
    lr: Lr = None,
    optimizer: OptimizerName = None,
    schedule: ScheduleName = None,
    fleet: FleetName = None,
    participation: ParticipationShare = None,
    attack: AttackName = None,
    guard: Guard = None,
    problem_option: ProblemOptions = None,
    algorithm_option: AlgorithmOptions = None,
    tensorboard: TensorBoard = False,
) -> None:
    """One algorithm on one problem, into a run folder.

    Examples:

      allforone run digits

      allforone run synthetic --algorithm local -p dimension=10 --rounds 100

      allforone run my_sites.py:problem --config settings.yaml --out out/mine
    """
    given = settings(
        problem,
        config,
        rounds,
        inner,
        batch_size,
        lr,
        optimizer,
        fleet,
        problem_option,
        algorithm_option,
        participation,
        attack,
        guard,
        schedule,
    )
    if algorithm:
        given["algorithm"] = {**_choice(given.get("algorithm")), "name": algorithm}
    elif isinstance(given.get("algorithm"), dict):
        given["algorithm"].setdefault("name", "all-for-one")
    if seed is not None:
        given["seed"] = seed
    checked = parse(given, str(config) if config else "options")
    if tensorboard:
        require_tensorboard()
    name = Path(problem.rpartition(":")[0]).stem if ":" in problem else problem
    path = out or Path("out") / f"{name}-{checked.algorithm.name}-{checked.seed}"
    refuse_used(path)
    parts = prepare(checked)
    with stoppable(f"allforone resume {path}"), watched(path, int(parts.config.rounds or 0), tensorboard) as on_round:
        execute(parts, path, on_round=on_round)
    show_run(path)


@app.command()
def resume(
    run: Annotated[Path, typer.Argument(help="The folder of a run that was interrupted.")],
    tensorboard: TensorBoard = False,
) -> None:
    """Go on with an interrupted run; the result is that of a run never interrupted.

    Example: allforone resume out/digits-all-for-one-binary-127
    """
    folder = Folder.open(run)
    if folder.finished:
        raise InputError(f"{run}: this run is finished; see it with `allforone report {run}`")
    if folder.config["problem"]["name"] == "python":
        raise InputError(f"{run}: started from Python; go on there with train(..., out='{run}', resume=True)")
    with stoppable(f"allforone resume {run}"), watched(run, int(folder.config["rounds"]), tensorboard) as on_round:
        resume_run(run, on_round)
    show_run(run)


def show_run(path: Path) -> None:
    comparison = read_comparison(path)
    screen.print(terminal_table(summarise(comparison)))
    for said in remarks(Folder(path).metrics(), comparison.runs[0].liars):
        screen.print(said, highlight=False, markup=False)
    page = write_report(comparison, path / "report.html")
    screen.print(f"run: {path}\nreport: {page}", soft_wrap=True, highlight=False, markup=False)


@app.command()
def compare(
    problem: Problem,
    algorithms: Annotated[
        str, typer.Option(help=f"Names separated by commas, or all, the paper's. Known: {', '.join(ALGORITHMS)}.")
    ] = "all",
    seeds: Annotated[
        str, typer.Option(help="Seeds such as 127,496,1729; a lone number up to 20 is how many.")
    ] = "127,496,1729",
    out: Annotated[Path | None, typer.Option(help="A new folder; by default out/compare-PROBLEM.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what --out holds already.")] = False,
    weighted: Annotated[bool, typer.Option("--weighted", help="Weight clients by their data in the table.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; by default as many as pay off.")] = None,
    config: ConfigFile = None,
    rounds: Rounds = None,
    inner: Inner = None,
    batch_size: BatchSize = None,
    lr: Lr = None,
    optimizer: OptimizerName = None,
    schedule: ScheduleName = None,
    fleet: FleetName = None,
    participation: ParticipationShare = None,
    attack: AttackName = None,
    guard: Guard = None,
    problem_option: ProblemOptions = None,
    algorithm_option: AlgorithmOptions = None,
) -> None:
    """Several algorithms on one problem: a table, figures and report.html.

    Examples:

      allforone compare synthetic --seeds 127,496,1729 --out out/synthetic

      allforone compare digits --algorithms all-for-one-binary,local,fedavg --seeds 3

      allforone compare digits --algorithms local,ditto,ditto:penalty=1,ditto:as_published=true

      allforone compare digits -p split=dirichlet --out out/dirichlet --resume
    """
    given = settings(
        problem,
        config,
        rounds,
        inner,
        batch_size,
        lr,
        optimizer,
        fleet,
        problem_option,
        algorithm_option,
        participation,
        attack,
        guard,
        schedule,
    )
    given.pop("seed", None)
    name = Path(problem.rpartition(":")[0]).stem if ":" in problem else problem
    path = out or Path("out") / f"compare-{name}"
    if not resume:
        refuse_used(path)
    named = [name.strip() for name in algorithms.split(",") if name.strip()]
    names = PAPER_ALGORITHMS if algorithms == "all" else named
    jobs = plan(given, names, parse_seeds(seeds), path, skip_impossible=algorithms == "all")
    again = " ".join(["allforone", *(a for a in sys.argv[1:] if a != "--resume"), "--resume"])
    with stoppable(again), follow_many(jobs) as watch:
        failed = run_comparison(jobs, path, resumed=resume, workers=workers, watch=watch)
    for job, reason in failed.items():
        print(f"allforone: {job}: {reason}", file=sys.stderr)
    show_comparison(read_comparison(path), path, weighted)
    if failed:
        raise typer.Exit(1)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a run or a comparison.")],
    weighted: Annotated[bool, typer.Option("--weighted", help="Weight clients by their data in the table.")] = False,
    table: Annotated[
        str | None, typer.Option(help=f"Only print the table, as {', '.join(FORMATS)}; nothing is written.")
    ] = None,
) -> None:
    """Table, figures and report.html anew from what a folder holds.

    Examples:

      allforone report out/compare-digits

      allforone report out/compare-digits --table latex > table.tex
    """
    comparison = read_comparison(folder)
    if table is None:
        show_comparison(comparison, folder, weighted)
    elif table == "terminal":
        screen.print(terminal_table(summarise(comparison, weighted)))
    else:
        print(plain_table(summarise(comparison, weighted), table), end="")


@app.command()
def watch(
    folder: Annotated[Path, typer.Argument(help="The folder of a run or a comparison that goes on.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any that is free.")] = 8420,
    host: Annotated[str, typer.Option(help="With 127.0.0.1 nobody else can look.")] = "127.0.0.1",
) -> None:
    """The page of a run while it trains, in the browser; Ctrl-C ends the watching, not the run.

    Example: allforone watch out/digits-all-for-one-127
    """
    with server(folder, host, port) as serving:
        screen.print(
            f"watching {folder} at http://{host}:{serving.server_port}/ (Ctrl-C ends it)",
            soft_wrap=True,
            highlight=False,
            markup=False,
        )
        try:
            serving.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            screen.print("no longer watching")


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    client: Annotated[str, typer.Option(help="Its number, from 0, or its name.")],
    out: Annotated[Path | None, typer.Option(help="A new folder; by default RUN/export/client-NUMBER.")] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Also as ONNX; needs the extra allforone[onnx].")] = False,
) -> None:
    """One client's model to take away: its weights as safetensors, and a short script that loads them.

    Example: allforone export out/digits-all-for-one-127 --client 3 --onnx
    """
    for path in export_client(run, client, out, onnx=onnx):
        screen.print(str(path), soft_wrap=True, highlight=False, markup=False)


def show_comparison(comparison: Comparison, path: Path, weighted: bool) -> None:
    summary = summarise(comparison, weighted)
    (path / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    figures = draw_figures(comparison, path)
    page = write_report(comparison, path / "report.html")
    screen.print(terminal_table(summary))
    if any(run.config.get("guard") for run in comparison.runs):
        screen.print(
            "Guarded: all trained on four fifths of their data, and a client whom collaboration hurt has its "
            "local model.",
            highlight=False,
        )
    screen.print(
        f"summary: {path / 'summary.json'}\nfigures: {', '.join(map(str, figures))}\nreport:  {page}",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )


def main() -> None:
    try:
        app()
    except AllForOneError as error:
        print("allforone: " + " ".join(str(error).split()), file=sys.stderr)
        sys.exit(130 if isinstance(error, Stopped) else 2)
