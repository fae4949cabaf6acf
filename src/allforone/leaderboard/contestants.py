"""Who is compared. A new contestant is one line of CONTESTANTS."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..catalogue import absolute, split_options
from ..catalogue import label as spoken_label
from ..reports.style import label as usual_label
from ..runs import Choice, Entry, load_algorithm, pairs
from .settings import Setting

#: With whom everybody is compared; always there.
ALONE = "local"


@dataclass(frozen=True)
class Contestant:
    """An algorithm with its options; what is private never leaves its owner."""

    name: str
    algorithm: str = ""  #: of the catalogue; by default that of the same name
    options: Mapping[str, Any] = field(default_factory=dict)
    private: str | None = None  #: "head" is the last layer, wherever a setting has one; else a pattern
    alternate: int | None = None  #: updates of what is private by itself, before those of a round
    together: float = 0.0  #: the share of a setting's rounds in which All-for-one has one model for all
    label: str = ""  #: in documents; by default the algorithm's

    def entry(self, setting: Setting) -> Entry | None:
        """As a comparison has it; None where the setting has no head that could be private."""
        algorithm = self.algorithm or self.name
        private = setting.head if self.private == "head" else self.private
        if self.private and private is None:
            return None
        kept = {"private": private, "alternate": self.alternate}
        more = {key: value for key, value in kept.items() if value}
        begins = {"together": int(self.together * setting.rounds)} if self.together else {}
        given = {**self.options, **begins, "name": algorithm}
        return Entry(given, self.name if self.name != algorithm else None, more or None)


CONTESTANTS = [
    Contestant(ALONE),
    Contestant("all-for-one"),
    Contestant("all-for-one-round"),
    Contestant("all-for-one-together", "all-for-one", together=0.5, label="All-for-one, half of it together"),
    Contestant("fedavg"),
    Contestant("fedavg-finetune"),
    Contestant("ditto"),
    Contestant("apfl"),
    Contestant("ifca"),
    Contestant("cobo"),
    Contestant("wga-bc"),
    Contestant("fedamp"),
    Contestant("fedfomo", options={"held": True}),
    Contestant("fedala"),
    Contestant("pfedgraph"),
    Contestant("cfl"),
    Contestant("pfedme"),
    Contestant("fedper", "fedavg", private="head", label="FedPer"),
    Contestant("fedrep", "fedavg", private="head", alternate=10, label="FedRep"),
    Contestant("all-for-one-head", "all-for-one", private="head", label="All-for-one, private head"),
    Contestant("oracle"),
]

#: Who runs with --quick where nobody is named: one of each kind, the cheap ones.
QUICK_ALGORITHMS = "all-for-one,fedavg,ditto,fedamp,fedper,oracle"


def label(name: str) -> str:
    """What a contestant is called in documents."""
    own = {contestant.name: contestant.label for contestant in CONTESTANTS}
    return own.get(name) or usual_label(name)


def chosen(algorithms: str | None) -> list[Contestant]:
    """Those of CONTESTANTS, or by the command line's names; of others, any of the catalogue: `ditto:penalty=1`."""
    if algorithms is None:
        return CONTESTANTS
    known = {contestant.name: contestant for contestant in CONTESTANTS}
    spoken = dict.fromkeys(name.strip() for name in algorithms.split(",") if name.strip())
    return [known.get(name) or _spoken(name) for name in dict.fromkeys([ALONE, *spoken])]


def _spoken(text: str) -> Contestant:
    name, options = split_options(absolute(text))
    given = pairs(options, "--algorithms")
    load_algorithm(Choice(name=name, **given))  # a mistake shows before any data are read
    return Contestant(spoken_label(text), name, given)
