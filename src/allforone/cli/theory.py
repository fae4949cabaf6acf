"""`allforone theory`: sufficient clusters, a run next to its bound, and what a client can expect of the others."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..catalogue import MOST_ROUNDS, MOST_UPDATES
from ..errors import InputError, short
from .options import ProblemName, ProblemOptions, Seed
from .screen import say, screen, show

if TYPE_CHECKING:
    from ..collaboration import Criterion
    from ..theory import Constants

app = typer.Typer(no_args_is_help=True, help="Who can help whom, how far and how fast: the paper's theory, corrected.")

CriterionName = Annotated[str, typer.Option("--criterion", help="continuous, or binary, or binary:0.2 for λ = 0.2.")]


def criterion_of(text: str) -> "Criterion":
    from ..collaboration import binary, continuous

    name, _, threshold = text.partition(":")
    try:
        if name == "binary":
            return binary(float(threshold or 0.1))
    except ValueError as error:
        raise InputError(f"criterion '{short(text)}': λ must be a number in (0, 1], as in binary:0.2") from error
    if text != "continuous":
        raise InputError(f"unknown criterion '{short(text)}': give continuous, binary or binary:0.2")
    return continuous()


def numbers(text: str, what: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        found = []
    if not found or not all(0 < number < math.inf for number in found):
        raise InputError(f"{what} '{short(text)}': give numbers above 0, separated by commas, such as 1,0.1")
    return found


@app.command("sufficient-clusters")
def sufficient_clusters(
    spreads: Annotated[str, typer.Option(help="v, how far the clients' optima lie apart.")] = "0.001,0.01,0.1,1",
    criterion: CriterionName = "binary",
    clients: Annotated[int, typer.Option(min=2, help="N")] = 20,
    dimension: Annotated[int, typer.Option(min=1, help="d")] = 2,
    seed: Seed = 127,
    out: Annotated[Path, typer.Option(help="The figure, written as .png and .pdf.")] = Path("out/sufficient-clusters"),
) -> None:
    """Figure 1: the size of client 1's sufficient cluster by precision ε, corrected and as printed in the paper.

    Example: allforone theory sufficient-clusters --out out/figure1
    """
    import torch

    from ..problems import synthetic
    from ..reports.theory_figures import draw_cluster_sizes
    from ..reports.theory_tables import cluster_sizes_table
    from ..theory import of_quadratics, printed, quadratics, sufficient_cluster

    chosen, epsilon = criterion_of(criterion), torch.logspace(4, -8, 481, dtype=torch.float64)
    sizes: dict[str, dict[float, torch.Tensor]] = {"corrected (b² in the condition)": {}, "as printed (b)": {}}
    corrected, original = sizes.values()
    for spread in numbers(spreads, "spreads"):
        known = quadratics(synthetic(seed, dimension, clients, clusters=1, spread=spread))
        assert known is not None
        ours, theirs = (of(known.matrices, known.optima) for of in (of_quadratics, printed.of_quadratics))
        corrected[spread] = torch.stack(
            [sufficient_cluster(ours, chosen, known.convexity, float(e))[0].sum() for e in epsilon]
        )
        original[spread] = torch.stack(
            [printed.sufficient_cluster(theirs, chosen, known.convexity, float(e))[0].sum() for e in epsilon]
        )
    show(cluster_sizes_table(epsilon, sizes, clients))
    say(f"figure: {', '.join(map(str, draw_cluster_sizes(epsilon, sizes, clients, out)))}")


@app.command()
def bound(
    run: Annotated[Path, typer.Argument(help="The folder of a run on a problem with known constants (synthetic).")],
    out: Annotated[Path | None, typer.Option(help="The figure; by default RUN/bound.png and .pdf.")] = None,
) -> None:
    """Theorem 1 along a run, over what was measured. The run is done again, to know every gradient exactly.

    `sharper` is the same by the direction of the step, before lemma 1 bounds its bias client by client.

    Example: allforone run synthetic -p noise=1 --out out/noisy && allforone theory bound out/noisy
    """
    from ..reports.theory_figures import draw_bound
    from ..reports.theory_tables import bound_table
    from ..runs import PYTHON, Folder, load_problem, parse, prepare
    from ..theory import quadratics, trajectory

    folder = Folder.open(run)
    config = parse(folder.config, str(folder.path / "config.yaml"))
    if config.problem.name == PYTHON:
        raise InputError(f"{run}: started from Python, so its problem cannot be made again; use `allforone run`")
    if quadratics(load_problem(config.problem, config.seed)) is None:
        raise InputError(
            f"{run}: the constants of {config.problem.name} are not known, so there is no exact bound; it "
            "needs least squares on Gaussian streams, as `synthetic`. Estimates: `allforone theory plan`"
        )
    parts = prepare(config)
    fleet, algorithm = parts.assemble(), parts.guarded()
    found = trajectory(fleet, algorithm, parts.optimizer, int(parts.config.rounds or 1), int(parts.config.inner or 1))
    title = f"{config.title or Path(str(config.problem.name)).name}, {config.shown}, seed {config.seed}"
    show(bound_table(found, title))
    say(f"figure: {', '.join(map(str, draw_bound(found, title, out or run / 'bound')))}")


@app.command()
def plan(
    problem: ProblemName,
    epsilon: Annotated[str, typer.Option(help="Excess losses to reach, as 1,0.1.")] = "1,0.1",
    criterion: CriterionName = "continuous",
    problem_option: ProblemOptions = None,
    seed: Seed = 127,
    batch_size: Annotated[
        int | None, typer.Option(min=1, max=MOST_UPDATES, help="Samples per client and update.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, max=MOST_ROUNDS, help="For estimates: how long each client trains alone.")
    ] = None,
    points: Annotated[
        int, typer.Option(min=3, max=MOST_UPDATES, help="For estimates: points on each client's path.")
    ] = 24,
    samples: Annotated[
        int, typer.Option(min=2, max=MOST_UPDATES, help="For estimates: samples that stand for a client's data.")
    ] = 512,
) -> None:
    """With whom each client can collaborate, down to which precision, and how many samples that saves it.

    Examples:

      allforone theory plan synthetic -p noise=1 -p spread=0.1 --epsilon 1,0.1

      allforone theory plan digits --epsilon 0.5
    """
    from ..reports.theory_tables import partners_table, savings_table
    from ..runs import Choice, load_problem, pairs
    from ..theory import estimate, known_constants

    levels = sorted(numbers(epsilon, "epsilon"), reverse=True)
    chosen = criterion_of(criterion)
    made = load_problem(Choice(name=problem, **pairs(problem_option or [], "-p")), seed)
    constants = known_constants(made, seed, batch_size) or estimate(
        made, seed, batch_size=batch_size, rounds=rounds, points=points, samples=samples
    )
    names = [client.name or str(number) for number, client in enumerate(made.clients)]
    say_constants(constants)
    title = f"With whom each client could collaborate (criterion {criterion})"
    show(partners_table(constants, chosen, names, title))
    for level in levels:
        show(savings_table(constants, chosen, names, level))


def say_constants(constants: "Constants") -> None:
    found = constants.for_schedule()
    say("Constants: " + ", ".join(f"{name} {value:.3g}" for name, value in found.items()))
    if constants.estimated is None:
        say("They are exact, for models between the start and the optima.")
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
    say(f"To use them in a run: --schedule {schedule}")
