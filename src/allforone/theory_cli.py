"""`allforone theory`: sufficient clusters, a run next to its bound, and what a client can expect of the others."""

import math
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from .collaboration import Criterion, binary, continuous
from .errors import InputError
from .problems import PROBLEMS, synthetic
from .runs import Choice, Folder, load_problem, pairs, parse, prepare
from .theory import (
    Constants,
    bounds,
    estimate,
    known_constants,
    largest_weight_sum,
    of_quadratics,
    printed,
    quadratics,
    sufficient_cluster,
    sufficient_variance,
    trajectory,
)

app = typer.Typer(no_args_is_help=True, help="Who can help whom, how far and how fast: the paper's theory, corrected.")
screen = Console()

CriterionName = Annotated[str, typer.Option("--criterion", help="continuous, or binary, or binary:0.2 for λ = 0.2.")]


def criterion_of(text: str) -> Criterion:
    name, _, threshold = text.partition(":")
    try:
        if name == "binary":
            return binary(float(threshold or 0.1))
    except ValueError as error:
        raise InputError(f"criterion '{text}': λ must be a number in (0, 1], as in binary:0.2") from error
    if text != "continuous":
        raise InputError(f"unknown criterion '{text}': give continuous, binary or binary:0.2")
    return continuous()


def plain_table(first: str, *others: str) -> Table:
    table = Table(first, box=box.SIMPLE_HEAD)
    for other in others:
        table.add_column(other, justify="right")
    return table


def show(table: Table, title: str) -> None:
    screen.print(title, soft_wrap=True, highlight=False)
    screen.print(table)


def numbers(text: str, what: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        found = []
    if not found or not all(0 < number < math.inf for number in found):
        raise InputError(f"{what} '{text}': give numbers above 0, separated by commas, such as 1,0.1")
    return found


@app.command("sufficient-clusters")
def sufficient_clusters(
    spreads: Annotated[str, typer.Option(help="v, how far the clients' optima lie apart.")] = "0.001,0.01,0.1,1",
    criterion: CriterionName = "binary",
    clients: Annotated[int, typer.Option(min=2, help="N")] = 20,
    dimension: Annotated[int, typer.Option(min=1, help="d")] = 2,
    seed: Annotated[int, typer.Option(help="Decides the optima.")] = 127,
    out: Annotated[Path, typer.Option(help="The figure, written as .png and .pdf.")] = Path("out/sufficient-clusters"),
) -> None:
    """Figure 1: the size of client 1's sufficient cluster by precision ε, corrected and as printed in the paper.

    Example: allforone theory sufficient-clusters --out out/figure1
    """
    from .reports.theory_figures import draw_cluster_sizes

    chosen, epsilon = criterion_of(criterion), torch.logspace(4, -8, 481, dtype=torch.float64)
    sizes: dict[str, dict[float, Tensor]] = {"corrected (b² in the condition)": {}, "as printed (b)": {}}
    table = plain_table("v", "corrected: everybody", "alone", "as printed: everybody", "alone")
    for spread in numbers(spreads, "spreads"):
        known = quadratics(synthetic(seed, dimension, clients, clusters=1, spread=spread))
        assert known is not None
        ours, theirs = (of(known.matrices, known.optima) for of in (of_quadratics, printed.of_quadratics))
        corrected, original = sizes.values()
        corrected[spread] = torch.stack(
            [sufficient_cluster(ours, chosen, known.convexity, float(e))[0].sum() for e in epsilon]
        )
        original[spread] = torch.stack(
            [printed.sufficient_cluster(theirs, chosen, known.convexity, float(e))[0].sum() for e in epsilon]
        )
        cells = []
        for size in (corrected[spread], original[spread]):
            everybody, alone = epsilon[size == clients], epsilon[size == 1]
            cells += [
                f"{float(everybody.min()):.1e}" if len(everybody) else "never",
                f"{float(alone.max()):.1e}" if len(alone) else "never",
            ]
        table.add_row(f"{spread:g}", *cells)
    show(table, f"Client 1 of {clients}: ε down to which its sufficient cluster is everybody, and where it is alone")
    paths = draw_cluster_sizes(epsilon, sizes, clients, out)
    screen.print(f"figure: {', '.join(map(str, paths))}", soft_wrap=True, highlight=False)


@app.command()
def bound(
    run: Annotated[Path, typer.Argument(help="The folder of a run on a problem with known constants (synthetic).")],
    out: Annotated[Path | None, typer.Option(help="The figure; by default RUN/bound.png and .pdf.")] = None,
) -> None:
    """Theorem 1 along a run, over what was measured. The run is done again, to know every gradient exactly.

    `sharper` is the same by the direction of the step, before lemma 1 bounds its bias client by client.

    Example: allforone run synthetic -p noise=1 --out out/noisy && allforone theory bound out/noisy
    """
    from .reports.theory_figures import draw_bound

    folder = Folder.open(run)
    if folder.config["problem"]["name"] == "python":
        raise InputError(f"{run}: started from Python, so its problem cannot be made again; use `allforone run`")
    config = parse(folder.config, str(folder.path / "config.yaml"))
    if quadratics(load_problem(config.problem, config.seed)) is None:
        raise InputError(
            f"{run}: the constants of {config.problem.name} are not known, so there is no exact bound; it "
            "needs least squares on Gaussian streams, as `synthetic`. Estimates: `allforone theory plan`"
        )
    parts = prepare(config)
    fleet, algorithm = parts.assemble()
    found = trajectory(fleet, algorithm, parts.optimizer, int(parts.config.rounds or 1), int(parts.config.inner or 1))
    table = plain_table("update", "measured", "theorem 1", "sharper", "noise / alone")
    last = len(found.excess) - 1
    for update in sorted({round(last * part / 5) for part in range(6)}):
        means = [f"{float(values[update].mean()):.2e}" for values in (found.excess, found.bound, found.sharper)]
        left = float((found.remaining / found.alone)[max(0, update - 1)].median())
        table.add_row(str(update), *means, f"{left:.2f}")
    title = f"{Path(str(config.problem.name)).name}, {config.shown}, seed {config.seed}"
    show(table, f"{title}: excess loss and its bounds, means over clients; noise at equal progress, median")
    paths = draw_bound(found, title, out or run / "bound")
    screen.print(f"figure: {', '.join(map(str, paths))}", soft_wrap=True, highlight=False)


@app.command()
def plan(
    problem: Annotated[str, typer.Argument(help=f"{', '.join(PROBLEMS)}, or your own as my_file.py:problem.")],
    epsilon: Annotated[str, typer.Option(help="Excess losses to reach, as 1,0.1.")] = "1,0.1",
    criterion: CriterionName = "continuous",
    problem_option: Annotated[
        list[str] | None,
        typer.Option("-p", "--problem-option", help="An option of the problem, as noise=1; may be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option(help="As of a run.")] = 127,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Samples per client and update.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="For estimates: how long each client trains alone.")] = None,
    points: Annotated[int, typer.Option(min=3, help="For estimates: points on each client's path.")] = 24,
    samples: Annotated[int, typer.Option(min=2, help="For estimates: samples that stand for a client's data.")] = 512,
) -> None:
    """With whom each client can collaborate, down to which precision, and how many samples that saves it.

    Examples:

      allforone theory plan synthetic -p noise=1 -p spread=0.1 --epsilon 1,0.1

      allforone theory plan digits --epsilon 0.5
    """
    levels = sorted(numbers(epsilon, "epsilon"), reverse=True)
    chosen = criterion_of(criterion)
    made = load_problem(Choice(name=problem, **pairs(problem_option or [], "-p")), seed)
    constants = known_constants(made, seed, batch_size) or estimate(
        made, seed, batch_size=batch_size, rounds=rounds, points=points, samples=samples
    )
    names = [escape(client.name or str(number)) for number, client in enumerate(made.clients)]
    say_constants(constants)
    show(partners_table(constants, chosen, names), f"With whom each client could collaborate (criterion {criterion})")
    for level in levels:
        table = savings_table(constants, chosen, names, level)
        show(table, f"To reach an excess loss of {level:g}: samples of each client that the bound asks for")


def say_constants(constants: Constants) -> None:
    found = constants.for_schedule()
    screen.print(
        "Constants: " + ", ".join(f"{name} {value:.3g}" for name, value in found.items()),
        highlight=False,
        soft_wrap=True,
    )
    if constants.estimated is None:
        screen.print("They are exact, for models between the start and the optima.", highlight=False)
        return
    told = constants.estimated
    curvature = (
        "the least eigenvalue seen"
        if told.convex
        else "the least ‖∇R‖²/(2(R − least R)) seen, for some Hessians are not positive definite"
    )
    screen.print(
        f"[bold]These are estimates[/], from {told.seen.own.shape[-1]} random points on the path of each client "
        f"training alone: what was not seen may be worse. Convexity: {curvature}. Eigenvalues: ± "
        f"{100 * told.error:.1g} %. Excess: above the least loss seen. Heterogeneity: with 95 % confidence at most "
        f"{100 * told.share_above:.0f} % of a path's points break the line that a pair was given.",
        highlight=False,
        soft_wrap=True,
    )
    schedule = ":".join(["horizon", *(f"{name}={value:.3g}" for name, value in found.items())])
    screen.print(f"To use them in a run: --schedule {schedule}", highlight=False, soft_wrap=True)


def partners_table(constants: Constants, criterion: Criterion, names: list[str]) -> Table:
    """Who is a partner until which excess loss: as the constants promise and, where they are estimates, as was seen."""
    known = {"partners promised, until its excess loss is": constants.least_precision(criterion)}
    if constants.estimated:
        known["partners seen on its path, until"] = constants.estimated.seen.least_excess(criterion)
    table = Table("client", *known, box=box.SIMPLE_HEAD)

    def partners(i: int, least: Tensor) -> str:
        groups: dict[str, list[str]] = {}
        for k in sorted(range(len(names)), key=lambda k: float(least[k])):
            if k != i and least[k] < constants.excess[i]:
                how = "any" if least[k] == 0 else f"{float(least[k]):.2g}"
                groups.setdefault(how, []).append(names[k])
        return " · ".join(f"{', '.join(group)}: {how}" for how, group in groups.items()) or "none"

    for i, name in enumerate(names):
        table.add_row(name, *(partners(i, least[i]) for least in known.values()))
    return table


def savings_table(constants: Constants, criterion: Criterion, names: list[str], epsilon: float) -> Table:
    """T_ε in samples of one client, with the same decreasing step, C = 2: alone, and with the sufficient cluster."""
    heterogeneity, mu, beta = constants.heterogeneity(epsilon), constants.convexity, constants.smoothness
    variance = sufficient_variance(heterogeneity, criterion, constants.variance, mu, epsilon)
    members = sufficient_cluster(heterogeneity, criterion, mu, epsilon).sum(1) - 1
    weight_sum = largest_weight_sum(criterion, constants.variance)
    noises = {"alone": constants.variance, "together": torch.minimum(variance, constants.variance)}
    if constants.estimated:
        seen = constants.estimated.seen.effective_variance(criterion, constants.variance, epsilon)
        noises["as seen"] = torch.minimum(seen, constants.variance)
    samples = {
        title: constants.batch_size
        * bounds.updates_needed(epsilon, constants.excess, beta, mu, noise, weight_sum=weight_sum)
        for title, noise in noises.items()
    }
    table = plain_table(
        "client",
        "partners",
        *(column for title in samples for column in ((title,) if title == "alone" else (title, "saved %"))),
    )
    for i, name in enumerate(names):
        before, *others = (int(needed[i]) for needed in samples.values())
        cells = [cell for after in others for cell in (f"{after:,}", f"{100 * (before - after) / max(before, 1):.0f}")]
        table.add_row(name, str(int(members[i])), f"{before:,}", *cells)
    return table
