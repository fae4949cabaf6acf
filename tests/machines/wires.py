"""Transports with faults, for tests: sites that are cut off, slow, lying or broken at chosen questions."""

from allforone.machines.loop import sites_of
from allforone.machines.presence import Patience
from allforone.machines.sites import Sites
from allforone.machines.transport import Absent, Direct, Reply
from allforone.machines.wire import decode, encode
from allforone.testing import small_problem, with_batch_norm

SEED = 127
AT_ONCE = Patience(pause=0.0, wait=0.0)


class Faulty(Direct):
    """`fault(name, asked, question)` gives what arrives in the place of an answer, or None: the answer itself."""

    def __init__(self, sites, fault=lambda name, asked, number: None):
        super().__init__(sites)
        self.fault, self.number, self.pings, self.ended = fault, 0, [], False

    def ask(self, questions, deadline):
        self.number += 1
        for name, question in questions.items():
            asked = decode(question)
            if asked["ask"] == "ping":
                self.pings.append((name, deadline))
            said = self.fault(name, asked, self.number)
            answer = said if isinstance(said, bytes | Absent) else self.sites[name].answer(question)
            yield Reply(name, said(answer) if callable(said) else answer, 0.001)

    def stopped(self):
        return self.ended


def changed(change):
    """An answer that was readable and has been changed."""

    def lie(answer):
        message = decode(answer)
        change(message)
        return encode(message)

    return lie


def fleet_with(fault, patience=AT_ONCE, problem=None):
    problem = problem or small_problem(with_batch_norm)
    sites = {f"site-{k}": site for k, site in sites_of(problem, dict(enumerate(problem.clients)), SEED, 5).items()}
    return Sites(problem.task, Faulty(sites, fault), seed=SEED, batch_size=5, patience=patience)
