"""What stands in the middle: it asks sites, sums what they answer as it arrives, and keeps the ledger."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import notice
from ..fleet import Contact, Ledger, Member, Models, Participation, Roster, Round, pick
from ..fleet.batches import Tally
from ..fleet.models import stack, trained_names
from ..fleet.participation import check_participation, present
from ..problems import Task
from .agreement import check_agreement, common, is_description, model_of
from .asking import Asking
from .checking import drawn_by, fine_rows, is_spent
from .optimizers import Makes
from .presence import Patience
from .transport import Transport
from .wire import Message, encode


class Coordinator:
    """Sums in the order of the clients and never holds N² answers; checks what it is told.

    Args:
        task: what is learned, without anybody's data.
        transport: what carries questions to the sites.
        seed, batch_size, participation: as of every fleet.
        patience: how long is waited for whom.
        known: what sites have said of themselves, by their names: a run may go on without these.
        told: numbers by which sites tell the mean gradients that are compared, as a count sketch; 0: whole.
        makes: of optimizers that are code, where the sites share this process.
        trusting: take answers as they are, where all sites are this process's own.
    """

    left: tuple[str, ...] = ()  # there is no fast way here

    def __init__(
        self,
        task: Task,
        transport: Transport,
        *,
        seed: int,
        batch_size: int | None = None,
        participation: Participation = 1.0,
        patience: Patience | None = None,
        known: Mapping[str, Message] | None = None,
        told: int = 0,
        makes: Makes | None = None,
        trusting: bool = False,
    ) -> None:
        check_participation(participation)
        self.task, self.transport, self.seed, self.participation = task, transport, seed, participation
        self.told, self.makes, self.trusting = told, makes, trusting
        self.batch_size = batch_size or task.settings.batch_size
        self.smoothness = task.smoothness
        self.module = model_of(task, seed)
        self.trained = trained_names(self.module)
        self.asking = Asking(transport, patience or Patience())
        self.roster = self._meet(known or {})
        self.tally = Tally(len(self.roster))
        self._ledger = Ledger(self.tally.samples, torch.zeros(len(self.roster), dtype=torch.long))
        self._epsilon = torch.full((len(self.roster),), torch.nan, dtype=torch.float64)  # as sites tell it
        self._begun: tuple[int, Tally, Tensor] | None = None  # the round, and what was counted before it
        self._named: set[int] = set()  # whose answers were refused, and said so

    def _meet(self, known: Mapping[str, Message]) -> Roster:
        """Ask everybody who it is, and refuse to begin unless all agree."""
        names = self.asking.names
        self.descriptions = self.asking.everybody(known)
        check_agreement(common(self.task, self.module, self.seed, self.batch_size), names, self.descriptions)
        self.asking.returning = self._other
        return Roster(Member(**described["member"]) for described in self.descriptions)

    def _other(self, site: int, told: Message) -> str | None:
        same = is_description(told) and {**told, "drawn": None} == {**self.descriptions[site], "drawn": None}
        return None if same else "it is back with other data, another task or another version"

    @property
    def ledger(self) -> Ledger:
        told = None if self._epsilon.isnan().all() else self._epsilon.clone()
        samples, refused = self.tally.samples.clone(), self._ledger.refused.clone()
        return self._ledger._replace(samples=samples, refused=refused, epsilon=told)

    @ledger.setter
    def ledger(self, earlier: Ledger) -> None:
        self.tally.samples.copy_(earlier.samples)
        self._ledger = earlier._replace(refused=earlier.refused.clone())
        if earlier.epsilon is not None:
            self._epsilon = earlier.epsilon.clone()

    def initial(self) -> Models:
        return stack(self.module, len(self.roster))

    def begin(self, number: int, steps: range) -> Round:
        """Those who take part by the run's choice and can be asked. The same round begun again is without those who
        were lost in it, and what was counted in it is forgotten."""
        if self.asking.lost and self._begun and self._begun[0] == number:
            _, self.tally, refused = self._begun
            self._ledger = self._ledger._replace(refused=refused)
            self.asking.wait_for_enough()
        else:
            self.asking.begin()
        self.asking.lost = False
        self._begun = number, self.tally.copy(), self._ledger.refused.clone()
        here = present(self.participation, len(self.roster), self.seed, number, steps.start).clone()
        here[list(self.asking.presence.away)] = False
        return Round(number, steps, here)

    def contacts(self) -> list[Contact]:
        return self.asking.contacts()

    def close(self) -> None:
        self.transport.close()

    def answers(self, questions: dict[int, bytes]) -> Iterator[tuple[int, Message]]:
        for site, answer in self.asking.answers(questions) if questions else ():
            for purpose, steps, size in drawn_by(answer.get("drawn")):
                self.tally.count(site, steps, purpose, size)
            if is_spent(answer.get("epsilon")):
                self._epsilon[site] = answer["epsilon"]
            yield site, answer

    def refuse(self, site: int, answers: int) -> None:
        """Count what is no gradient, and name who sent it."""
        self._ledger.refused[site] += answers
        if site not in self._named:
            self._named.add(site)
            notice(
                f"site {self.asking.names[site]} sent what is no gradient (not finite, or of another shape): refused"
            )

    def mixed(self, models: Models, mix: Tensor, round: Round, step: int, owners: Tensor | None) -> Models:
        """Σ_k mix[m, k] g_k(θ_m): every k is sent the models that listen to it."""
        result = {name: torch.zeros_like(t) if name in self.trained else t.clone() for name, t in models.items()}
        listening = {k: mix[:, k].nonzero().flatten() for k in (mix != 0).any(0).nonzero().flatten().tolist()}
        whose = None if owners is None else owners.tolist()
        about = {"ask": "gradients", "round": round.number, "step": step}
        accepted = mix.clone()
        for k, answer in self.answers(self.to_each(about, models, listening, whose)):
            rows: list[int] = listening[k].tolist()
            found: Any = answer.get("gradients")
            fine = self.fine(found, models, self.trained, len(rows))
            for m, gradient, usable in zip(rows, range(len(rows)), fine, strict=True):
                if not usable:
                    accepted[m, k] = 0
                    continue
                for name in self.trained:
                    result[name][m] += float(mix[m, k]) * found[name][gradient]
            if not all(fine):
                self.refuse(k, len(fine) - sum(fine))
            self.put_buffers(result, answer.get("buffers"), [m for m in rows if whose and whose[m] == k])
        return self._renormalised(result, mix, accepted)

    def to_each(
        self, about: Message, models: Models, rows: dict[int, Tensor], owners: list[int] | None
    ) -> dict[int, bytes]:
        """A question to each site, with the models that it is asked about; those asked the same are sent the same."""
        made: dict[tuple[int, ...], bytes] = {}
        for some in rows.values():
            if (key := tuple(some.tolist())) not in made:
                whose = None if owners is None else [owners[m] for m in key]
                made[key] = encode({**about, "models": pick(models, some), "owners": whose})
        return {k: made[tuple(some.tolist())] for k, some in rows.items()}

    def fine(self, found: Message | None, models: Models, names: list[str], count: int) -> list[bool]:
        return [True] * count if self.trusting else fine_rows(found, models, names, count).tolist()

    def put_buffers(self, result: Models, found: Message | None, rows: list[int]) -> None:
        """What the owners of rows say that their buffers are now."""
        names = [name for name in result if name not in self.trained]
        if not rows or not names or not all(self.fine(found, result, names, len(rows))):
            return
        assert found is not None
        for name in names:  # and nothing else that it may have sent
            result[name][rows] = found[name]

    def _renormalised(self, result: Models, mix: Tensor, accepted: Tensor) -> Models:
        """Rows of which something was refused keep the sum of their weights."""
        for m in (accepted != mix).any(1).nonzero().flatten().tolist():
            if accepted[m].sum() != 0:
                share = float(mix[m].sum() / accepted[m].sum())
                for name in self.trained:
                    result[name][m] *= share
        return result
