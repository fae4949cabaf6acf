"""All sites in this process: the plain N² loop, the reference that every other fleet is held to."""

from collections.abc import Mapping
from functools import partial

from ..fleet import Ledger, Participation, Privacy, find_device
from ..fleet.in_process import checked_module
from ..problems import Client, Problem, Task
from .optimizers import Makes
from .site import Site, passes_of
from .sites import Sites
from .transport import Direct


class Loop(Sites):
    """`Sites` over `Direct`: one question after the other, one gradient at a time."""

    def __init__(
        self,
        problem: Problem,
        *,
        seed: int,
        batch_size: int | None = None,
        participation: Participation = 1.0,
        sketch: int = 0,
        device: str = "cpu",
        privacy: Privacy | None = None,
    ) -> None:
        where = find_device(device)
        makes: Makes = {}
        self.problem = problem
        checked_module(problem, seed)
        size, clients = batch_size or problem.settings.batch_size, dict(enumerate(problem.clients))
        self.sites = sites_of(problem, clients, seed, size, makes=makes, frank=True, privacy=privacy)
        self.passes = self.sites[0].passes
        self.passes.move(where)  # which all share; the coordinator, as everywhere, is on the CPU
        direct = Direct({str(k): site for k, site in self.sites.items()})
        super().__init__(
            problem,
            direct,
            seed=seed,
            batch_size=batch_size,
            participation=participation,
            told=sketch,
            makes=makes,
            trusting=True,
        )

    @property
    def ledger(self) -> Ledger:
        spent = [site.spending.counts[k] for k, site in self.sites.items() if site.spending]
        return super().ledger._replace(answered=[counts.clone() for counts in spent] or None)

    @ledger.setter
    def ledger(self, earlier: Ledger) -> None:
        Sites.ledger.fset(self, earlier)  # type: ignore[attr-defined]
        for site, counts in zip(self.sites.values(), earlier.answered or (), strict=False):
            if site.spending:
                site.spending.restore([counts])


def sites_of(
    task: Task,
    clients: Mapping[int, Client],
    seed: int,
    batch_size: int,
    *,
    makes: Makes | None = None,
    frank: bool = False,
    privacy: Privacy | None = None,
) -> dict[int, Site]:
    """A site for each of these clients in one process, where they share the module."""
    number = next(iter(clients))
    passes = passes_of(task, clients[number], number, seed, batch_size, privacy)
    make = partial(Site, seed=seed, batch_size=batch_size, passes=passes, makes=makes, frank=frank, privacy=privacy)
    return {k: make(task, client, k) for k, client in clients.items()}
