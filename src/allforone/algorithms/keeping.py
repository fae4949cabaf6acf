"""Private parameters: any algorithm on a part of the models, while the other never leaves its owner.

θ_i = (s_i, p_i). The algorithm sees models of the shared names alone. Where it asks client k about s, that answers with
the s-part of g_k(s, p_k); p_i moves by g_i(s_i, p_i), once at each update.
"""

from dataclasses import dataclass
from typing import Any, TypedDict

from ..fleet import Fleet, Models, Optimizer, Privates, Round, Spliced
from .base import Algorithm, Around, Info, State
from .local import Local


class Own(TypedDict):
    inner: Any  #: what the algorithm remembers of each client
    optimizer: Optimizer  #: of the private parts


@dataclass(frozen=True)
class Keeping(Around):
    """names: of the parameters and buffers that are private. alternate: above 0, the private parts first take so many
    updates by themselves in each round and then stand still, while the shared ones take theirs (FedRep)."""

    names: tuple[str, ...]
    alternate: int = 0

    def init(self, models: Models, optimizer: Optimizer) -> State:
        return _whole(models, self.algorithm.init(self._shared(models), optimizer), {}, optimizer)

    def step(self, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
        own: Own = state.own
        before = State(self._shared(state.models), state.optimizer, own["inner"], state.common)
        kept = {name: state.models[name] for name in self.names}
        privates = Privates(kept, own["optimizer"], fleet.trained)
        spliced = Spliced(fleet, privates)
        if self.alternate:
            spliced.alternate(before.models, round, self.alternate)
        after, info = self.algorithm.step(before, spliced, round)
        return _whole(state.models, after, *privates.finish()), info

    def _shared(self, models: Models) -> Models:
        return {name: tensor for name, tensor in models.items() if name not in self.names}


def _whole(before: Models, shared: State, private: Models, optimizer: Optimizer) -> State:
    """The state of both parts together."""
    models = {**before, **shared.models, **private}
    return shared._replace(models=models, own=Own(inner=shared.own, optimizer=optimizer))


def keeping(algorithm: Algorithm, names: tuple[str, ...], trained: list[str], alternate: int = 0) -> Algorithm:
    """The algorithm with these names private. Where nothing that is trained is shared, nobody can help anybody."""
    if not names or isinstance(algorithm, Local):
        return algorithm
    return Keeping(algorithm, names, alternate) if {*trained} - {*names} else Local()
