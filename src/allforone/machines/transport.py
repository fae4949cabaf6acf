"""What carries questions to sites and brings their answers: the seam behind which an engine stands.

Nothing heavy is imported here, so that a relay without torch can use it.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol


class Absent(NamedTuple):
    """In the place of an answer."""

    why: str  #: our own sentence, never the data's: "no answer within 30 s", "its process died"


class Reply(NamedTuple):
    """What comes of a question to a site."""

    site: str
    answer: bytes | Absent
    seconds: float  #: that this site took, whoever else was waited for


class Answering(Protocol):
    """A site as an engine sees it: a function from bytes to bytes that never raises."""

    def answer(self, question: bytes) -> bytes: ...


class Transport(Protocol):
    """An engine: this process, Ray, FLARE."""

    names: Sequence[str]  #: the sites, in the order of their numbers

    def ask(self, questions: Mapping[str, bytes], deadline: float) -> Iterator[Reply]:
        """Every question is sent at once; the answers come in the order of the questions, each as soon as it and those
        before it are there, or after `deadline` seconds not at all. Never raises for a site."""
        ...

    def stopped(self) -> bool:
        """Whether the run was ended from outside: then absences mean nothing, and nothing may be recorded."""
        ...

    def close(self) -> None: ...


class Direct:
    """All sites in this process, asked one after the other: an answer is made when it is wanted, and never two held."""

    def __init__(self, sites: Mapping[str, Answering]) -> None:
        self.sites = sites
        self.names: Sequence[str] = list(sites)

    def ask(self, questions: Mapping[str, bytes], deadline: float) -> Iterator[Reply]:
        for name, question in questions.items():
            begun = time.monotonic()
            yield Reply(name, self.sites[name].answer(question), time.monotonic() - begun)

    def stopped(self) -> bool:
        return False

    def close(self) -> None: ...
