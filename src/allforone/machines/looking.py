"""What sites say at each other's models, put together: each tells its mean gradients, and of the rest numbers only."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..fleet import Look, Models, Round
from .checking import finite_rows, is_count, is_like, variances

if TYPE_CHECKING:
    from .coordinator import Coordinator


def look_of_sites(fleet: "Coordinator", models: Models, round: Round, ids: Tensor, about: dict[str, Any]) -> Look:
    """First all at their own models, then at those of others: a distance needs the owner's gradient, and so no more
    than the N of owners are held."""
    table = Table(fleet, models, ids, about)
    present = round.present.nonzero().flatten()
    asked = {**about, "ask": "look", "round": round.number, "steps": [round.steps.start, round.steps.stop]}
    asked |= {"told": fleet.told}
    owners = fleet.roster.numbers.tolist()
    own = {k: torch.tensor([k]) for k in present.tolist()}
    others = {k: present[(ids[present] == k).any(1) & (present != k)] for k in present.tolist()}
    for rows in (own, {k: some for k, some in others.items() if len(some)}):
        for k, answer in fleet.answers(fleet.to_each(asked, models, rows, owners)):
            table.put(k, rows[k].tolist(), answer)
    return table.look()


class Table:
    """Rows of statistics as they arrive; NaN of what was not asked or is no gradient."""

    def __init__(self, fleet: "Coordinator", models: Models, ids: Tensor, about: dict[str, Any]) -> None:
        self.fleet, self.ids = fleet, ids
        size = sum(models[name][0].numel() for name in fleet.trained)
        self.width = min(fleet.told, size) if fleet.told else size
        self.parts, self.short = 1 if about["whole"] else 2, min(about["sketch"], size)
        nothing = torch.full(ids.shape, torch.nan, dtype=torch.float64)
        self.distance, self.norm, self.noise = nothing, nothing.clone(), nothing.clone()
        self.halves = nothing[..., None, None].repeat(1, 1, self.parts, self.short)
        self.read = torch.zeros(len(ids), dtype=torch.float64)
        self.added = torch.zeros(ids.shape, dtype=torch.float64)
        self.own: dict[int, Tensor] = {}  # the mean gradients of owners at their own models

    def put(self, k: int, rows: list[int], answer: dict[str, Any]) -> None:
        """What client k says at the models of these rows."""
        means: Any
        numbers: Any
        halves: Any
        means, numbers, halves = (answer.get(name) for name in ("means", "numbers", "halves"))
        fine = torch.ones(len(rows), dtype=torch.bool)
        if not self.fleet.trusting:
            shapes = ((means, (self.width,)), (numbers, (2,)), (halves, (self.parts, self.short)))
            if all(is_like(tensor, (len(rows), *shape)) for tensor, shape in shapes):
                for tensor, _ in shapes:
                    fine &= finite_rows(tensor)
            else:
                fine[:] = False
        if not fine.all():
            self.fleet.refuse(k, int((~fine).sum()))
        added = variances(answer.get("added"), len(rows))
        read: Any = answer.get("read")
        self.read[k] = read if is_count(read) else 0
        for place, i in enumerate(rows):
            if fine[place]:
                self._put(i, k, means[place], numbers[place], halves[place])
                self.added[i, self.ids[i] == k] = added[place]

    def _put(self, i: int, k: int, mean: Tensor, numbers: Tensor, halves: Tensor) -> None:
        if i == k:
            self.own[i] = mean
        column = (self.ids[i] == k).nonzero().flatten()
        if i in self.own:
            self.distance[i, column] = (mean - self.own[i]).square().sum().double()
        self.norm[i, column], self.noise[i, column] = numbers.double()
        self.halves[i, column] = halves.double()

    def look(self) -> Look:
        return Look(self.ids, self.distance, self.norm, self.noise, self.halves, self.read[self.ids], self.added)
