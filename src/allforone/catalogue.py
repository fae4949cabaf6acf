"""What everything is called: the names that the command line knows, and where each is imported from when it is used."""

import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from .algorithms import Algorithm
    from .problems import Problem
    from .reports.table import Table

Named = TypeVar("Named", covariant=True)


class Catalogue(Mapping[str, Named]):
    """name → what it stands for, imported at access; going over the names imports nothing."""

    def __init__(self, places: dict[str, str]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> Named:
        module, _, attribute = self._places[name].partition(":")
        found: Named = getattr(import_module(module), attribute)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __repr__(self) -> str:
        return f"Catalogue({self._places})"


#: A function from a seed and options to each problem.
PROBLEMS: Catalogue[Callable[..., "Problem"]] = Catalogue(
    {
        "synthetic": "allforone.problems:synthetic",
        "digits": "allforone.problems:digits",
        "mnist": "allforone.problems:mnist",
        "cifar10": "allforone.problems:cifar10",
        "heart-disease": "allforone.problems:heart_disease",
        "ixi": "allforone.problems:ixi",
    }
)

#: A function from options to each algorithm.
ALGORITHMS: Catalogue[Callable[..., "Algorithm"]] = Catalogue(
    {
        "all-for-one": "allforone.algorithms:AllForOne",
        "all-for-one-round": "allforone.algorithms:all_for_one_round",
        "all-for-one-binary": "allforone.algorithms:all_for_one_binary",
        "all-for-one-continuous": "allforone.algorithms:all_for_one_continuous",
        "oracle": "allforone.algorithms:Oracle",
        "local": "allforone.algorithms:Local",
        "fedavg": "allforone.algorithms:FedAvg",
        "ditto": "allforone.algorithms:Ditto",
        "cobo": "allforone.algorithms:CoBo",
        "wga-bc": "allforone.algorithms:WgaBc",
        "apfl": "allforone.algorithms:Apfl",
        "fedavg-finetune": "allforone.algorithms:fedavg_finetune",
        "ifca": "allforone.algorithms:Ifca",
        "fedamp": "allforone.algorithms:FedAMP",
        "fedfomo": "allforone.algorithms:FedFomo",
        "fedala": "allforone.algorithms:FedALA",
        "pfedgraph": "allforone.algorithms:PFedGraph",
        "cfl": "allforone.algorithms:CFL",
        "pfedme": "allforone.algorithms:PFedMe",
        "all-for-one-binary-as-published": "allforone.paper.as_published:all_for_one_binary",
        "all-for-one-continuous-as-published": "allforone.paper.as_published:all_for_one_continuous",
        "fedavg-as-published": "allforone.paper.as_published:FedAvg",
        "ditto-as-published": "allforone.paper.as_published:Ditto",
        "cobo-as-published": "allforone.paper.as_published:CoBo",
        "wga-bc-as-published": "allforone.paper.as_published:WgaBc",
        "apfl-as-published": "allforone.paper.as_published:Apfl",
    }
)

#: All-for-one, and what the paper compares it with.
PAPER_ALGORITHMS = [
    "all-for-one",
    "all-for-one-binary",
    "all-for-one-continuous",
    "oracle",
    "local",
    "fedavg",
    "ditto",
    "cobo",
    "wga-bc",
    "apfl",
]

#: The class of each fleet.
FLEETS: Catalogue[Callable[..., Any]] = Catalogue(
    {
        "stacked": "allforone.fleet:Stacked",
        "compiled": "allforone.fleet:Compiled",
        "loop": "allforone.machines.loop:Loop",
        "ray": "allforone.machines.ray:Ray",
    }
)

#: The data sets that are fetched from their publishers; the paper's tables are about them.
DATA_SETS = ["mnist", "cifar10", "heart-disease", "ixi"]

#: Seeds are at most so large, and at least its opposite.
LARGEST_SEED = 2**40
#: Rounds of a run, at most: a line for each client and round is kept.
MOST_ROUNDS = 10**7
#: Updates of a round and samples of a batch, at most: a crash costs a round, and a batch is held in memory.
MOST_UPDATES = 10**6

#: How clients may lie.
ATTACKS = ["flip", "flip10", "noise", "zeros", "stale", "mimicry", "cancelling", "nan", "inf", "short"]

#: A function from a table to what is printed in each format.
FORMATS: Catalogue[Callable[["Table"], Any]] = Catalogue(
    {
        "terminal": "allforone.reports.table:terminal",
        "markdown": "allforone.reports.table:markdown",
        "latex": "allforone.reports.table:latex",
        "csv": "allforone.reports.table:comma_separated",
    }
)


#: The user's own: a Python file, perhaps behind the letter of a drive, and a name in it.
FILE = r"(?:[A-Za-z]:[\\/])?[^:]*\.py:[^:]*"


def split_options(text: str) -> tuple[str, list[str]]:
    """A name and its options: `ditto:penalty=1`, `my_file.py:algorithm:penalty=1`, `ray:address=ray://host:10001`.

    A value may hold colons, for the next option begins at `:key=`.
    """
    name, rest = re.fullmatch(rf"({FILE}|[^:]*)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    return name, re.split(r":(?=\w+=)", rest[1:]) if rest else []


def absolute(text: str) -> str:
    """The same with the whole path of the user's file, so that it is found again from another folder."""
    name, options = split_options(text)
    if re.fullmatch(FILE, name):
        path, _, attribute = name.rpartition(":")
        name = f"{Path(path).resolve()}:{attribute}"
    return ":".join([name, *options])


def label(text: str) -> str:
    """What tables call it: the user's file without its folder."""
    name, options = split_options(text)
    return ":".join([Path(name).name, *options])


#: Characters of a folder's name; file systems take 255 bytes.
LONGEST_NAME = 100


def folder_name(text: str) -> str:
    """The label as the name of a folder, on any system."""
    name = re.sub(r"[^\w.=+,-]", "_", label(text))[:LONGEST_NAME]
    return name if name.strip(".") else f"_{name}"
