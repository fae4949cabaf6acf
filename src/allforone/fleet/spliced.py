"""A fleet for the part of the models that is shared: whoever is asked puts in its own private part before it answers.

θ_i = (s_i, p_i). Asked at s_i, client k answers with the s-part of g_k(s_i, p_k). No other client is told p_k, and it
moves by g_k(s_k, p_k) alone. Every model of a question is made for the one client that answers it, so this is as slow
as the plain loop, but for small models, of which many pass at once.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from ..errors import Diverged
from .base import (
    Contact,
    Direction,
    Evaluation,
    Fleet,
    Ledger,
    Look,
    NewLosses,
    PairStatistics,
    Round,
    Walks,
    among_present,
    everybody,
)
from .models import Models, by_row
from .optimizer import Optimizer
from .pairs import look_at
from .privates import Privates, columns
from .sketch import sketch as sketch_of

#: Numbers in the models of pairs that are held at once.
HELD_NUMBERS = 2**24


class Spliced:
    """Of one round. Models that it is given and gives hold what is shared, and nothing else."""

    def __init__(self, fleet: Fleet, privates: Privates) -> None:
        self.fleet, self.privates = fleet, privates
        self.roster, self.smoothness, self.batch_size = fleet.roster, fleet.smoothness, fleet.batch_size
        self.trained = [name for name in fleet.trained if name not in privates.models]

    @property
    def ledger(self) -> Ledger:
        return self.fleet.ledger

    @ledger.setter
    def ledger(self, earlier: Ledger) -> None:
        self.fleet.ledger = earlier

    @property
    def left(self) -> tuple[str, ...]:
        return self.fleet.left

    @left.setter
    def left(self, earlier: tuple[str, ...]) -> None:
        self.fleet.left = earlier

    def initial(self) -> Models:
        return {name: tensor for name, tensor in self.fleet.initial().items() if name not in self.privates.models}

    def begin(self, number: int, steps: range) -> Round:
        return self.fleet.begin(number, steps)

    def contacts(self) -> list[Contact]:
        return self.fleet.contacts()

    def close(self) -> None:
        self.fleet.close()

    def alternate(self, models: Models, round: Round, updates: int) -> None:
        """So many updates of the private parts with `models` standing still, on the batches of the round, again and
        again; then they stand still."""
        itself = torch.eye(len(self.roster), dtype=torch.float64)
        for number in range(updates if len(round.steps) else 0):
            step = round.steps[number % len(round.steps)]
            whole = {**models, **self.privates.models}
            found = self.fleet.gradients(whole, itself, round, step, self.roster.numbers)
            self.privates.move({name: found[name] for name in self.privates.models})
        self.privates.stand_still()

    def gradients(self, models: Models, mix: Tensor, round: Round, step: int, owners: Tensor | None) -> Models:
        """The first time that an update asks about everybody's own model, the private parts move, too."""
        self.privates.settle(step)
        mix = among_present(mix, round.present, owners)
        own = owners is not None and torch.equal(owners, self.roster.numbers) and self.privates.move_at(step)
        asked = (mix != 0) | torch.diag(round.present) if own else mix != 0
        result = {name: torch.zeros_like(t) if name in self.trained else t.clone() for name, t in models.items()}
        moves = self.privates.at_rest()
        for m, k in self._pairs(models, asked):
            whose = None if owners is None else owners[m]
            found = self._gradient_of_each(models, (m, k), round, step, whose)
            for name in self.trained:
                told = found[name] * by_row(mix[m, k], found[name])
                result[name].index_add_(0, m.to(told.device), told)
            itself = torch.zeros_like(m, dtype=torch.bool) if whose is None else whose == k
            for name in result.keys() - {*self.trained}:  # of who was not asked, it stays
                heard = itself & (mix[m, k] != 0)
                result[name][m[heard]] = found[name][heard]
            for name in moves if own else ():
                moves[name][k[itself]] = found[name][itself]
        if own:
            self.privates.move_after(step, moves)
        return result

    def _pairs(self, models: Models, asked: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows and the clients that are asked about them, as many at a time as memory allows."""
        size = sum(t.shape[1:].numel() for t in {**models, **self.privates.models}.values())
        both = (side.split(max(1, HELD_NUMBERS // size)) for side in asked.nonzero().unbind(1))
        return ((m, k) for m, k in zip(*both, strict=True) if len(m))

    def _gradient_of_each(
        self, models: Models, pairs: tuple[Tensor, Tensor], round: Round, step: int, owners: Tensor | None
    ) -> Models:
        """At every row of a pair, the gradient of its client."""
        rows, clients = pairs
        whole = {name: tensor[rows] for name, tensor in models.items()}
        whole |= {name: tensor[clients] for name, tensor in self.privates.models.items()}
        only = torch.nn.functional.one_hot(clients, len(self.roster)).double()
        return self.fleet.gradients(whole, only, round, step, owners)

    def descend(
        self, models: Models, mix: Tensor, optimizer: Optimizer, round: Round, direction: Direction | None = None
    ) -> tuple[Models, Optimizer]:
        running = optimizer.start(models, self.trained)
        for step in round.steps:
            gradients = self.gradients(running.models, mix, round, step, self.roster.numbers)
            running.apply(direction(running.models, gradients) if direction else gradients)
        self.privates.settle()
        return running.finish()

    def compare(self, models: Models, round: Round, samples: int) -> PairStatistics:
        look = self.look(models, round, everybody(len(self.roster)), samples, 0, apart=True)
        return PairStatistics(look.distance, look.norm)

    def look(self, models: Models, round: Round, ids: Tensor, samples: int, sketch: int, apart: bool = False) -> Look:
        """Row by row: all whom it asks are shown its model, each with its own private part, as if it were theirs."""
        self.privates.settle()
        shared, numbers = self._shared(models), self.roster.numbers
        looks = []
        for i, whom in enumerate(ids):
            here = self._here(round, i, whom)
            told = torch.full((len(numbers), 1 if apart else 2, int(shared.sum())), torch.nan, dtype=torch.float64)
            read, added = torch.zeros(2, len(numbers), dtype=torch.float64)
            if here.present.any():
                whole = self._for_each(models, i, self.privates.models)
                try:
                    found = self.fleet.look(whole, here, numbers[:, None], samples, len(shared), apart)
                except Diverged as error:
                    raise Diverged(i, error.client, error.step) from None
                told, read = found.halves[:, 0][..., shared], found.read[:, 0]
                added = found.added[:, 0] * shared.double().mean()  # the same on every number
            vectors = told[whom].masked_fill((whom < 0)[:, None, None], torch.nan)
            short = sketch_of(int(shared.sum()), sketch)
            itself, seen, noise = (whom == i)[None], read[whom][None], added[whom][None]
            looks.append(look_at(vectors[None], whom[None], itself, seen, noise, short))
        return Look(*(torch.cat(tables) for tables in zip(*looks, strict=True)))

    def walks(self, models: Models, ids: Tensor, optimizer: Optimizer, round: Round, parts: int) -> Iterator[Walks]:
        """Walkers take their private part along, a copy of it: what stays is the way of the owner by whole batches."""
        self.privates.settle()
        before = self.privates.copy()
        if self.privates.move_at(round.steps.start):
            itself = torch.eye(len(self.roster), dtype=torch.float64)
            self.descend(models, itself, optimizer.fresh(), round)
        fresh = optimizer.anew({**models, **before}, self.fleet.trained)
        for i in round.present.nonzero().flatten().tolist():
            yield self._walked(models, i, before, ids[i], fresh, round, parts)

    def _walked(
        self, models: Models, i: int, privates: Models, whom: Tensor, optimizer: Optimizer, round: Round, parts: int
    ) -> Walks:
        """From the model of client i."""
        whole, shared = self._for_each(models, i, privates), self._shared(models)
        ways = models[self.trained[0]].new_full((len(whom), parts, int(shared.sum())), torch.nan)
        read, added = torch.zeros(2, len(whom), dtype=torch.float64)
        first = torch.full_like(read, torch.nan)
        buffers = {name: tensor[i : i + 1].clone() for name, tensor in models.items() if name not in self.trained}
        for walks in self._walks(whole, i, optimizer, self._here(round, i, whom), parts):
            for r, k in enumerate(walks.rows.tolist()):
                ways[whom == k], read[whom == k] = walks.ways[r, 0][:, shared], walks.read[r, 0]
                added[whom == k], first[whom == k] = walks.added[r, 0] * shared.double().mean(), walks.first[r, 0]
                if k == i:
                    buffers = {name: walks.buffers[name][r : r + 1] for name in buffers}
        return Walks(torch.tensor([i]), ways[None], buffers, read[None], added[None], first[None])

    def _walks(self, whole: Models, i: int, optimizer: Optimizer, here: Round, parts: int) -> list[Walks]:
        """Each from its own row; without those, but for client i, who came nowhere."""
        while True:
            try:
                return list(self.fleet.walks(whole, self.roster.numbers[:, None], optimizer, here, parts))
            except Diverged as error:
                if error.client == i:
                    raise
                here = here._replace(present=here.present & (self.roster.numbers != error.client))

    def losses(self, models: Models, round: Round) -> Tensor:
        self.privates.settle()
        count = len(models[self.trained[0]])
        found = torch.full((count, len(self.roster)), torch.nan, dtype=torch.float64)
        for k in round.present.nonzero().flatten().tolist():
            own = {name: t[k].expand(count, *t.shape[1:]) for name, t in self.privates.models.items()}
            here = round._replace(present=self.roster.numbers == k)
            found[:, k] = self.fleet.losses({**models, **own}, here)[:, k]
        return found

    def new_losses(self, models: Models, round: Round) -> NewLosses:
        self.privates.settle()
        return self.fleet.new_losses({**models, **self.privates.models}, round)

    def evaluate(self, models: Models, round: Round) -> Evaluation:
        self.privates.settle()
        return self.fleet.evaluate({**models, **self.privates.models}, round)

    def _shared(self, models: Models) -> Tensor:
        """[P], which numbers of a whole gradient are told."""
        return columns({**models, **self.privates.models}, self.fleet.trained, self.trained)

    def _here(self, round: Round, i: int, whom: Tensor) -> Round:
        """With those alone whom client i asks; nobody if it is absent."""
        return round._replace(present=round.present & torch.isin(self.roster.numbers, whom) & round.present[i])

    def _for_each(self, models: Models, i: int, privates: Models) -> Models:
        """Model i, with the private part of every client in its row."""
        n = len(self.roster)
        return {**{name: t[i].expand(n, *t.shape[1:]) for name, t in models.items()}, **privates}
