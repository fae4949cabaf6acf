"""What `run` and `compare` can be told, as one value."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from ..catalogue import ATTACKS, FLEETS, LARGEST_SEED, PROBLEMS, absolute, split_options


def one_of(names: Iterable[str]) -> Callable[[str], list[str]]:
    """For the shell: the names that begin so."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


ProblemName = Annotated[
    str,
    typer.Argument(
        help=f"What is learned: {', '.join(PROBLEMS)}, or your own as [bold]my_file.py:problem[/].",
        show_default=False,
        autocompletion=one_of(PROBLEMS),
    ),
]
ProblemOptions = Annotated[
    list[str] | None,
    typer.Option("-p", "--problem-option", help="An option of the problem, as [bold]dimension=10[/]; may be repeated."),
]
Seed = Annotated[int, typer.Option(min=-LARGEST_SEED, max=LARGEST_SEED, help="As of a run.")]
SeedList = Annotated[str, typer.Option(help="Seeds such as 127,496,1729; a lone number up to 20 is how many.")]
SEEDS = "127,496,1729"
#: Options that are keys of a config file as they are.
PLAIN = (
    *("rounds", "inner", "batch_size", "clip", "precision", "device"),
    *("participation", "least_sites", "sketch", "attack", "guard", "alternate"),
)


@dataclass(frozen=True)
class Settings:
    """Every field is an argument or option of the command; what is None is taken from the YAML file or the problem."""

    problem: ProblemName
    config: Annotated[Path | None, typer.Option(help="A YAML file with any of these settings.")] = None
    rounds: Annotated[int | None, typer.Option(help="Rounds; by default the problem's.")] = None
    inner: Annotated[int | None, typer.Option(help="Updates per round with the same weights.")] = None
    batch_size: Annotated[int | None, typer.Option(help="Samples per client and update.")] = None
    lr: Annotated[float | None, typer.Option(help="Step size.")] = None
    optimizer: Annotated[str | None, typer.Option(help="SGD, Adam, … : any of torch.optim.")] = None
    clip: Annotated[
        float | None,
        typer.Option(help="The norm to which each client shortens every gradient, before it is weighted."),
    ] = None
    precision: Annotated[
        str | None,
        typer.Option(
            help="float32 (the default), or bf16: passes of training under torch.autocast, updates in float32.",
            autocompletion=one_of(("float32", "bf16")),
        ),
    ] = None
    device: Annotated[
        str | None,
        typer.Option(
            help="Where models are computed: cpu (the default), cuda, cuda:1, mps, or auto, the fastest that is there.",
            autocompletion=one_of(("auto", "cpu", "cuda", "mps")),
        ),
    ] = None
    privacy: Annotated[
        str | None,
        typer.Option(
            help="Clip every sample's gradient and add noise to all that clients answer: as clip=1.0,noise=1.0; "
            r"needs the extra allforone\[privacy]."
        ),
    ] = None
    private: Annotated[
        list[str] | None,
        typer.Option(
            help="Parameters that never leave their owner, by name or pattern, as [bold]head.*[/], or batchnorm, "
            "or statistics; may be repeated."
        ),
    ] = None
    alternate: Annotated[
        int | None,
        typer.Option(help="Updates of private parameters by themselves at the beginning of a round; then they rest."),
    ] = None
    schedule: Annotated[
        str | None,
        typer.Option(
            help="A step size of the theory: constant, horizon or decreasing; constants that are not known are "
            "given as decreasing:convexity=0.1:smoothness=4.",
        ),
    ] = None
    fleet: Annotated[
        str | None,
        typer.Option(
            help="stacked (fast), compiled (faster for small models, after a warm-up), loop (plain), ray (processes of "
            "Ray) or [bold]flare:kit=kits/coordinator[/] (parties that keep their data); a fleet's options as "
            "ray:address=ray://host:10001.",
            autocompletion=one_of(FLEETS),
        ),
    ] = None
    participation: Annotated[
        float | None,
        typer.Option(help="With which probability a client takes part in a round, as 0.3; by default all always do."),
    ] = None
    least_sites: Annotated[
        int | None,
        typer.Option(help="Of clients on machines, how many must answer: with fewer the run waits, then stops."),
    ] = None
    sketch: Annotated[
        int | None,
        typer.Option(
            help="Of clients on machines: tell the mean gradients that are compared by so many numbers, as 1024."
        ),
    ] = None
    attack: Annotated[
        str | None,
        typer.Option(help=f"For experiments: how many clients lie, and how, as flip:4. Known: {', '.join(ATTACKS)}."),
    ] = None
    guard: Annotated[
        bool | None,
        typer.Option(
            "--guard",
            help="Train every client alone as well, on four fifths of its data, and give it that model where "
            "collaboration hurts by the held-out fifth.",
            show_default=False,
        ),
    ] = None
    problem_option: ProblemOptions = None
    algorithm_option: Annotated[
        list[str] | None,
        typer.Option(
            "-a",
            "--algorithm-option",
            help="An option of the algorithm, as [bold]weighting=normalised[/]; may be repeated.",
        ),
    ] = None

    @property
    def problem_name(self) -> str:
        """As in the name of a folder: of the user's own file, without its folder and the name in it."""
        return Path(self.problem.rpartition(":")[0]).stem if ":" in self.problem else self.problem

    @property
    def source(self) -> str:
        return str(self.config or "options")

    def as_config(self, algorithm: str | None = None) -> dict[str, Any]:
        """The YAML file, overridden by the options. Files of the user are named from the root, for a later resume."""
        from ..runs import pairs, read_yaml
        from ..runs.config import refuse_two_step_sizes

        given = read_yaml(self.config) if self.config else {}
        for key in PLAIN:
            if (value := getattr(self, key)) is not None:
                given[key] = value
        _choose(given, "problem", {"name": self.problem}, "title")
        given["problem"] |= pairs(self.problem_option or [], "-p")
        if algorithm or self.algorithm_option or isinstance(given.get("algorithm"), str | dict):
            _choose(given, "algorithm", _named(algorithm, "--algorithm"), "label")
            given["algorithm"] |= pairs(self.algorithm_option or [], "-a")
        if self.private:
            given["private"] = self.private
        if self.privacy:
            given["privacy"] = pairs(self.privacy.split(","), "--privacy")
        if self.schedule:
            given["schedule"] = _named(self.schedule, "--schedule")
            given.pop("scheduler", None)
        if self.fleet:
            fleet = _named(self.fleet, "--fleet")
            given["fleet"] = fleet if len(fleet) > 1 else self.fleet
        if self.optimizer:
            given["optimizer"] = {"name": self.optimizer}
        if self.lr is not None:
            given["optimizer"] = {**_choice(given.get("optimizer")), "lr": self.lr}
        if self.lr is not None or not (self.schedule or "identity" in given):  # a resolved file has both
            refuse_two_step_sizes(_choice(given.get("optimizer")).get("lr"), given.get("schedule"))
        return given


def _named(text: str | None, flag: str) -> dict[str, Any]:
    """`decreasing:convexity=0.1` as in YAML: {name: decreasing, convexity: 0.1}."""
    from ..runs import pairs

    if text is None:
        return {}
    name, options = split_options(text)
    return {**pairs(options, flag), "name": name}


def _choose(given: dict[str, Any], key: str, chosen: dict[str, Any], shown: str) -> None:
    """Override the file's choice; another name than the file's forgets its options, and what it was shown as."""
    before = _choice(given.get(key))
    name = absolute(str(chosen.get("name") or before.get("name") or "all-for-one"))
    if absolute(str(before.get("name") or name)) != name:
        before = {}
        given.pop(shown, None)
    given[key] = {**before, **chosen, "name": name}


def fleet_name(given: dict[str, Any]) -> str | None:
    """Of a config that is not checked yet."""
    return _choice(given.get("fleet")).get("name")


def _choice(value: Any) -> dict[str, Any]:
    return {"name": value} if isinstance(value, str) else dict(value) if isinstance(value, dict) else {}


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of `Settings` as arguments of its own, in the place of its argument `settings`."""
    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=field.type,
        )
        for field in fields(Settings)
    ]

    @wraps(command)
    def with_one_value(**given: Any) -> None:
        settings = Settings(**{field.name: given.pop(field.name) for field in fields(Settings)})
        command(settings=settings, **given)

    signature = inspect.signature(command)
    places = [shared if name == "settings" else [place] for name, place in signature.parameters.items()]
    signature = signature.replace(parameters=[place for group in places for place in group])
    with_one_value.__signature__ = signature  # type: ignore[attr-defined]
    return with_one_value
