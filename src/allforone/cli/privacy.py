"""`allforone privacy`: what a site's answers tell of its samples, by attacking them."""

import math
from typing import TYPE_CHECKING, Annotated

import typer

from ..catalogue import MOST_UPDATES
from ..errors import InputError, short
from .options import ProblemName, ProblemOptions, Seed
from .screen import say, show

if TYPE_CHECKING:
    from ..leakage import Leak
    from ..reports.table import Table


def privacy(
    problem: ProblemName,
    batch_size: Annotated[str, typer.Option(help="Samples of an answer: one or several numbers.")] = "1,8,32",
    client: Annotated[int | None, typer.Option(help="Whose answers; by default the first with finite data.")] = None,
    answers: Annotated[int, typer.Option(max=MOST_UPDATES, help="How many are attacked of each batch size.")] = 4,
    clip: Annotated[
        float | None, typer.Option(help="As DP-SGD would send it: shorten each sample's gradient to this norm.")
    ] = None,
    noise: Annotated[
        float, typer.Option(help="And add noise to their mean, of standard deviation noise·clip/batch.")
    ] = 0.0,
    analytic: Annotated[
        bool, typer.Option("--analytic", help="Read off the first layer or refuse; no search.")
    ] = False,
    steps: Annotated[int, typer.Option(max=MOST_UPDATES, help="Of the search, for each answer.")] = 300,
    seconds: Annotated[float, typer.Option(help="Of the search, in all.")] = 60.0,
    problem_option: ProblemOptions = None,
    seed: Seed = 127,
) -> None:
    """What a site's answers tell of its samples: gradients at the initial model are turned back into samples.

    Where the first layer is linear, samples are read off it; else inputs are searched whose gradient is the same.

    Examples:

      allforone privacy digits --batch-size 1,8,32

      allforone privacy heart-disease --batch-size 1 --clip 1 --noise 1

      allforone privacy my_file.py:problem --client 2 --seconds 300
    """
    sizes = whole_numbers(batch_size)
    from ..errors import called
    from ..leakage import attacked, measure
    from ..progress import progress_of_rounds
    from ..runs import Choice, load_problem, pairs

    made = load_problem(Choice(name=problem, **pairs(problem_option or [], "-p")), seed)
    number = attacked(made.clients, client)
    with progress_of_rounds(len(sizes) * answers * steps, called="steps of the attack") as bar:
        found = measure(
            made,
            sizes,
            client=number,
            answers=answers,
            clip=clip,
            noise=noise,
            analytic=analytic,
            steps=steps,
            seconds=seconds,
            seed=seed,
            watch=lambda done, of: bar(done, ""),
        )
    sent = "" if clip is None else f", sent as by DP-SGD with clip {clip:g} and noise {noise:g}"
    who = called(number, made.clients[number].name)
    show(table(found, f"{answers} answers of {who} at the initial model of {made.name}{sent}"))
    if not all(leak.whole for leak in found):
        say(f"The search ran out of its {seconds:g} seconds: --seconds gives it more, and it may find more.")
    say("This is a lower bound: who sees more answers, sends models made for it, or tries harder, recovers more.")


def table(leaks: "list[Leak]", title: str) -> "Table":
    from ..reports.table import Table, plain

    heads = ("batch size", "attack", "samples", "exact", "correlation", "chance", "labels")
    rows = [
        (
            str(leak.batch_size),
            leak.attack,
            str(leak.samples),
            str(leak.exact),
            _known(leak.correlation),
            _known(leak.chance),
            "–" if leak.labels is None else str(leak.labels),
        )
        for leak in leaks
    ]
    caption = (
        "exact: samples recovered within a thousandth. correlation: of a sample and the recovered one most like it, "
        "mean. chance: the same for samples that were not in the answer. labels: targets read off, in any order."
    )
    return Table(heads, plain(rows), title, caption)


def _known(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"


def whole_numbers(text: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise InputError(f"batch size '{short(text)}': give whole numbers from 1, separated by commas, such as 1,8,32")
    return found
