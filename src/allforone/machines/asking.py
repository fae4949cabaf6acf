"""Asking all sites at once: answers are read as they arrive, and whoever gives none is absent from here on."""

import time
from collections.abc import Callable, Iterator, Mapping

from ..errors import Gone, TooFew, notice, short
from ..fleet import Contact
from .presence import Ended, Patience, Presence
from .transport import Absent, Transport
from .wire import Message, Unreadable, decode, encode

#: Seconds between two looks whether the run was ended, while enough sites are waited for.
GLANCE = 1.0
#: Letters of a site's own reason that are kept; what could move a terminal's cursor is not.
LONGEST_REASON = 200


class Asking:
    """Sites by their numbers; `returning` says of one that is back why it may not take part, or None."""

    def __init__(self, transport: Transport, patience: Patience) -> None:
        self.transport, self.patience = transport, patience
        self.names = list(transport.names)
        self.presence = Presence(self.names, patience)
        self.returning: Callable[[int, Message], str | None] = lambda site, told: None
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self.lost = False  #: whether somebody was lost since this was last set
        self._costs = [(0.0, 0, 0)] * len(self.names)
        self._said = ""  # what those who follow the run were last told that it waits for

    def lose(self, site: int, why: str) -> None:
        """Leave a site alone for a while."""
        self.lost = True
        self.presence.lost(site, why)

    def everybody(self, known: Mapping[str, Message]) -> list[Message]:
        """What all say of themselves, however long that takes; of who is away and is known already, what is known."""
        found: dict[int, Message] = {}
        begun, everyone = time.monotonic(), range(len(self.names))
        while True:
            self.presence.away.clear()
            for site, reply in self._who([site for site in everyone if site not in found], self.patience.meeting):
                if isinstance(reply, Absent):
                    self.presence.lost(site, reply.why)
                else:
                    found[site] = reply
            strangers = [site for site in self.presence.away if self.names[site] not in known]
            if not strangers and (not self.presence.away or time.monotonic() >= begun + self.patience.returning):
                return [found.get(site) or known[self.names[site]] for site in everyone]
            if strangers:
                self._wait(begun, "not all sites answer, and none can be left out at the start")
            else:
                self._pause()

    def begin(self) -> None:
        """A new round: try again whom it is time to try, and wait until enough are there."""
        self.presence.proven()
        self._costs = [(0.0, 0, 0)] * len(self.names)
        self._try_again(self.presence.due())
        self.wait_for_enough()

    def wait_for_enough(self) -> None:
        """Return when as many sites as are needed can be asked; where that takes too long, stop."""
        begun = time.monotonic()
        while not self.presence.enough():
            there, least = len(self.names) - len(self.presence.away), self.patience.least
            self._wait(begun, f"{there} of {len(self.names)} sites answer, and the run needs {least} (--least-sites)")
            self._try_again(list(self.presence.away))
        self._said = ""

    def _wait(self, begun: float, what: str) -> None:
        """A moment, for sites that are away: it is said once for whom, and too long after it began the run stops."""
        said = f"{what}: {self.presence.said()}"
        if time.monotonic() >= begun + self.patience.wait:
            raise TooFew(f"{said}. All rounds before are kept; go on with `allforone resume` when they are back")
        if what != self._said:
            notice(f"{said}; waiting for them, for {self.patience.wait:g} s at most")
            self._said = what
        self._pause()

    def _pause(self) -> None:
        self.presence.sleep(min(GLANCE, self.presence.until_next()))
        self._check_not_ended()

    def answers(self, questions: Mapping[int, bytes], deadline: float | None = None) -> Iterator[tuple[int, Message]]:
        """(site, answer) in the order of the questions, each as soon as it is there.

        At its end Gone is raised if some gave none: so that all are known who must be left out.
        """
        for site, reply in self._replies(questions, deadline or self.patience.deadline):
            if isinstance(reply, Absent):
                self.lose(site, reply.why)
            else:
                yield site, reply
        if self.lost:
            raise Gone(f"sites are absent: {self.presence.said()}")

    def contacts(self) -> list[Contact]:
        """What each site took since the round began."""
        away = {site: absence.why for site, absence in self.presence.away.items()}
        return [Contact(name, away.get(site), *self._costs[site]) for site, name in enumerate(self.names)]

    def _replies(self, questions: Mapping[int, bytes], deadline: float) -> Iterator[tuple[int, Message | Absent]]:
        if not questions:
            return
        by_name = {self.names[site]: question for site, question in questions.items()}
        for name, reply, took in self.transport.ask(by_name, deadline):
            site = self._numbers[name]
            seconds, sent, received = self._costs[site]
            size = 0 if isinstance(reply, Absent) else len(reply)
            self._costs[site] = seconds + took, sent + len(by_name[name]), received + size
            yield site, reply if isinstance(reply, Absent) else _read(reply)
        self._check_not_ended()

    def _check_not_ended(self) -> None:
        if self.transport.stopped():
            raise Ended("the run was ended from outside; all rounds before are kept")

    def _try_again(self, sites: list[int]) -> None:
        """Who gives a sign of life, and is who it was, is back."""
        for site, reply in self._who(sites, self.patience.deadline):
            why = reply.why if isinstance(reply, Absent) else self.returning(site, reply)
            if why is None:
                self.presence.found(site)
            else:
                self.presence.lost(site, why)

    def _who(self, sites: list[int], deadline: float) -> Iterator[tuple[int, Message | Absent]]:
        """What sites say of themselves. First they are asked for a sign of life: one that is just starting may cost the
        whole time that it is given."""
        awake = []
        for site, reply in self._replies(dict.fromkeys(sites, encode({"ask": "ping"})), self.patience.ping):
            if isinstance(reply, Absent):
                yield site, reply
            else:
                awake.append(site)
        yield from self._replies(dict.fromkeys(awake, encode({"ask": "describe"})), deadline)


def _read(reply: bytes) -> Message | Absent:
    """What a site says, or that it cannot be used; of an error only whose it is and what we call it."""
    try:
        answer = decode(reply)
    except Unreadable:
        return Absent("its answer cannot be read")
    if "error" in answer:
        return Absent(short(str(answer.get("why", "it failed")), LONGEST_REASON))
    return answer
