"""Several algorithms on one problem, from Python: a table, and which differences are sure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars

from ..algorithms import Algorithm
from ..catalogue import label, split_options
from ..describe import described
from ..errors import InputError, suggest
from ..problems import Problem
from ..reports import write_report
from ..runs import PYTHON, Choice, Comparison, Given, load_algorithm, pairs, parse, parse_seeds
from ..runs.config import OF_EVERY_ALGORITHM, refuse_two_step_sizes
from ..runs.quantities import Quantity
from .again import carry_out
from .paired import holm, paired
from .trained import Trained


@dataclass(frozen=True)
class Compared:
    """What several algorithms gave on one problem, seed by seed."""

    results: Mapping[tuple[str, int], Trained]  #: by the algorithm's name and the seed

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(name for name, _ in self.results))

    @property
    def seeds(self) -> list[int]:
        return list(dict.fromkeys(seed for _, seed in self.results))

    @property
    def comparison(self) -> Comparison:
        """The same as reports read it."""
        first = next(iter(self.results.values()))
        runs = [result.finished for result in self.results.values()]
        return Comparison(first.config.title or first.problem.name, runs, first.roster.clusters)

    def report(self, path: str | Path) -> Path:
        """Write a page that shows them all; one file that works offline."""
        return write_report(self.comparison, Path(path))

    def values(self, metric: str | None = None) -> polars.DataFrame:
        """How each site ended: algorithm, seed, client, site, metric, value."""
        quantity, frames = self._quantity(metric), []
        for (name, seed), result in self.results.items():
            last = result.finished.metrics.filter(polars.col("round") == polars.col("round").max()).sort("client")
            frames.append(
                polars.DataFrame(
                    {
                        **{"algorithm": [name] * last.height, "seed": [seed] * last.height, "client": last["client"]},
                        "site": [result.names[k] or str(k) for k in last["client"]],
                        **{"metric": [quantity.name] * last.height, "value": quantity.values(last)},
                    }
                )
            )
        return polars.concat(frames)

    def table(self, metric: str | None = None) -> polars.DataFrame:
        """Of each algorithm the mean and standard deviation over sites and seeds, and the mean of the worst site."""
        worst = self._quantity(metric).worst
        by_seed = self.values(metric).group_by("algorithm", "seed", maintain_order=True)
        edges = by_seed.agg(getattr(polars.col("value"), worst)()).group_by("algorithm").agg(worst=polars.mean("value"))
        spread = self.values(metric).group_by("algorithm", maintain_order=True)
        means = spread.agg(mean=polars.mean("value"), std=polars.col("value").std(ddof=0))
        return means.join(edges, on="algorithm", maintain_order="left")

    def tests(self, baseline: str | None = None, metric: str | None = None) -> polars.DataFrame:
        """By how much each algorithm is better than `baseline`, by default the first, paired over sites and seeds.

        From `low` to `high` are intervals in which all true differences lie with 95 %; `p_holm` is corrected for their
        number by Holm's procedure. Both count other sites and other seeds as the chance that is there.
        """
        baseline = self.names[0] if baseline is None else baseline
        if baseline not in self.names:
            raise InputError(f"baseline '{baseline}'; {suggest(baseline, self.names)}")
        others, quantity = [name for name in self.names if name != baseline], self._quantity(metric)
        if not others:
            raise InputError("there is nothing to compare with: give two algorithms or more")
        sign = -1 if quantity.lower_is_better else 1
        found = [paired(sign * (self._matrix(name, quantity) - self._matrix(baseline, quantity))) for name in others]
        lows, highs = zip(*(difference.interval(len(found)) for difference in found), strict=True)
        corrected = holm([difference.p for difference in found])
        return polars.DataFrame(
            {
                **{"algorithm": others, "baseline": [baseline] * len(others), "metric": [quantity.name] * len(others)},
                **{"difference": [difference.mean for difference in found], "low": lows, "high": highs},
                **{"p": [difference.p for difference in found], "p_holm": corrected},
            }
        )

    def _matrix(self, name: str, quantity: Quantity) -> Any:
        """[sites, seeds]; NaN where it is not known. What spans orders of magnitude, as powers of ten."""
        rows = self.values(quantity.name).filter(polars.col("algorithm") == name)
        values = rows["value"].clip(1e-28).log10() if quantity.powers else rows["value"]
        return values.cast(polars.Float64).fill_null(float("nan")).to_numpy().reshape(len(self.seeds), -1).T.copy()

    def _quantity(self, metric: str | None) -> Quantity:
        known = self.comparison.quantities
        found = [quantity for quantity in known if metric in (None, quantity.name)]
        if not found:
            raise InputError(f"metric '{metric}'; {suggest(str(metric), [quantity.name for quantity in known])}")
        return found[0]


def compare(
    problem: Problem | Callable[[int], Problem],
    algorithms: Sequence[Algorithm | str] | Mapping[str, Algorithm],
    seeds: int | Sequence[int] = 3,
    *,
    progress: bool | None = None,
    **settings: Any,
) -> Compared:
    """Several algorithms on one problem with several seeds.

    Args:
        problem: an `afo.Problem`, or a function from a seed to one, where data are drawn anew.
        algorithms: such as `[afo.AllForOne(), afo.Local(), "ditto:penalty=1"]`, or by names of yours as a dict.
        seeds: how many, or which; they decide initial models and batches.
        progress: by default on a terminal only.
        settings: of all runs: rounds, inner, batch_size, schedule, fleet, participation, guard, private, alternate,
            evaluate_every, and lr. Of one alone, `"fedavg:private=head.*"`.

    Example:
        >>> import allforone as afo
        >>> found = afo.compare(afo.digits(clients=4), [afo.AllForOne(), afo.Local()], seeds=2, rounds=2)
        >>> found.tests()["algorithm"].to_list()
        ['local']
    """
    named = _named(algorithms)
    # a comma behind the last: a list of one is that seed, not how many
    wanted = parse_seeds(str(seeds) if isinstance(seeds, int) else ",".join([*map(str, seeds), ""]))
    refuse_two_step_sizes(settings.get("lr"), settings.get("schedule"))
    if "lr" in settings:
        settings["optimizer"] = {"lr": settings.pop("lr")}
    results = {}
    for name, (algorithm, own) in named.items():
        for seed in wanted:
            made = problem if isinstance(problem, Problem) else problem(seed)
            told = {"problem": PYTHON, "algorithm": described(algorithm), "seed": seed, "label": name}
            told |= {**settings, **own}
            results[name, seed] = carry_out(parse(told, "compare"), Given(made, algorithm), progress=progress)
    return Compared(results)


def _named(
    algorithms: Sequence[Algorithm | str] | Mapping[str, Algorithm],
) -> dict[str, tuple[Algorithm, dict[str, Any]]]:
    """By name, each algorithm and those of its settings that every one has."""
    if isinstance(algorithms, str | Algorithm):
        raise InputError("algorithms: give a list of them")
    if isinstance(algorithms, Mapping):
        given: list[tuple[str, Algorithm | str]] = list(algorithms.items())
    else:
        given = [(label(each) if isinstance(each, str) else getattr(each, "name", ""), each) for each in algorithms]
    found: dict[str, tuple[Algorithm, dict[str, Any]]] = {}
    for name, each in given:
        own: dict[str, Any] = {}
        if isinstance(each, str):
            spoken, written = split_options(each)
            options = pairs(written, "algorithms")
            own = {key: options.pop(key) for key in OF_EVERY_ALGORITHM & options.keys()}
            each = load_algorithm(Choice(name=spoken, **options))
        if not isinstance(each, Algorithm):
            raise InputError(f"algorithms: {each!r} is none: give an object such as afo.Local(), or a name")
        if name in found:
            raise InputError(f"algorithms: two are called {name}; tell them apart as in {{'a': …, 'b': …}}")
        found[name] = each, own
    if not found:
        raise InputError("algorithms: give at least one")
    return found
