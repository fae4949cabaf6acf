"""All-for-one: θ_i ← θ_i − η Σ_k w_ik g_k(θ_i), with the weights of least bias² + noise.

As good as the best of training alone, averaging and the true clusters, without being told which world it is.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ..collaboration import candidates, correction
from ..collaboration import least_error as rule
from ..collaboration.decision import Decision, by_client, decide
from ..collaboration.weights import normalised
from ..errors import InputError
from ..fleet import Direction, Fleet, Models, Optimizer, Round, everybody
from .base import Info, Memory, State, Weighted
from .looking import asked, bent, curvature, parameters
from .race import begin, race
from .walking import exchange, moved

#: Numbers of all differences between clients, N²P, above which correcting them is refused: they and a look take 2 GB.
MOST_DIFFERENCES = 2**26
#: Clients above which a round with all partners takes long enough to say so.
MANY = 100


@dataclass(frozen=True)
class AllForOne(Weighted):
    """look at each other → remember → weigh up bias and noise → least error → trust → step.

    Args:
        samples: what a client shows at each look, at least: of finite data drawn for it, of streams the round's own.
        sketch: numbers by which a gradient is remembered.
        every: rounds between two looks, each as dear as N² gradients of `samples` samples; the weights stay in between.
        correct: take known differences off partners' gradients, so that who differs still lowers the noise. Keeps a
            whole gradient for every pair of clients.
        exchange: "update" asks partners for a gradient at every update; "round" sends them the model once a round, and
            they answer with how far they came from it in the round's updates.
        partners: at most so many are asked, drawn anew every round by their weights; by default all with a weight.
        candidates: at most so many are looked at in a round, of whom partners are chosen; by default everybody. With
            exchange="round" one answer is both, so the smaller of the two counts.
        momentum: of the moves from round to round, with exchange="round"; by default what the optimizer's own loses by
            starting anew in every walk, none without one.
        together: rounds at the beginning in which the gradients of all that are asked count by data size, as if there
            were one model; by default none. It pays where labels are skewed and a common start teaches the first
            layers. Trust does not bound anybody's weight in these rounds, and who is absent keeps its model.

    Example:
        >>> import allforone as afo
        >>> afo.train(afo.digits(clients=4), algorithm=AllForOne(), rounds=2).weights[-1].sum(1).round(decimals=6)
        tensor([1., 1., 1., 1.], dtype=torch.float64)
    """

    samples: int = 16
    sketch: int = 64
    every: int = 1
    correct: bool = False
    exchange: Literal["update", "round"] = "update"
    partners: int | None = None
    candidates: int | None = None
    momentum: float | None = None
    together: int | None = None

    def __post_init__(self) -> None:
        for name in ("samples", "sketch", "every", "partners", "candidates", "together"):
            value = getattr(self, name)
            wrong = isinstance(value, bool) or not isinstance(value, int) or value < 1
            if wrong and not (value is None and name in ("partners", "candidates", "together")):
                raise InputError(f"{name} is {value!r}: must be a whole number, at least 1")
        if not isinstance(self.correct, bool):
            raise InputError(f"correct is {self.correct!r}: must be true or false")
        if self.exchange not in ("update", "round"):
            raise InputError(f"exchange is {self.exchange!r}: must be 'update' or 'round'")
        if self.momentum is not None and not 0 <= self.momentum < 1:
            raise InputError(f"momentum is {self.momentum!r}: must be from 0 to below 1")
        for clash, why in (
            (self.correct and self.every > 1, "every: with correct=True clients look at each other in every round"),
            (self.correct and self.candidates, "candidates: with correct=True everybody is looked at"),
            (self.correct and self.together, "correct: where all count by data size there is nothing to correct"),
            (self.exchange == "round" and self.every > 1, "every: with exchange='round' the answers are the look"),
            (self.exchange == "round" and self.correct, "correct: it is for exchange='update' only"),
            (self.exchange == "update" and self.momentum, "momentum: it is for exchange='round'; or give an optimizer"),
        ):
            if clash:
                raise InputError(f"not together with the rest: {why}")

    @property
    def name(self) -> str:
        return "all-for-one" if self.exchange == "update" else "all-for-one-round"

    @property
    def label(self) -> str:
        return "All-for-one" if self.exchange == "update" else "All-for-one, one exchange a round"

    def advice(self, clients: int) -> str | None:
        if clients <= MANY or self.partners or self.candidates or self.correct or self.exchange == "round":
            return None
        return (
            f"all {clients} clients look at each other: rounds are shorter with -a partners=16 -a candidates=32, "
            "in Python AllForOne(partners=16, candidates=32)"
        )

    def init(self, models: Models, optimizer: Optimizer) -> State:
        if self.exchange == "round":
            optimizer.check_fresh()
        return super().init(models, optimizer)

    def step(self, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
        """One round; streams, whose coming batches are new, also go on alone and take the better way."""
        after, info = (self._one_exchange if self.exchange == "round" else super().step)(state, fleet, round)
        if any(member.stream for member in fleet.roster):
            begun = state.own.get("race") or begin(state.models, state.optimizer, len(fleet.roster))
            after, raced = race(after, begun, fleet, round, self._momentum(state, round))
            after = after._replace(own={**after.own, "race": raced})
        return after, info

    def collaborate(self, state: State, fleet: Fleet, round: Round) -> tuple[Info, Memory]:
        if state.own and (round.number - 1) % self.every:
            return self._shared(Decision(**state.own["told"]), fleet, round), state.own
        seen, ids = self._whom(state, fleet, round)
        look = fleet.look(state.models, round, ids, self.samples, seen["difference"].shape[2])
        step = state.optimizer.step_size
        seen = seen if step is None else bent(seen, ids, look.halves, state, fleet, step)
        setting = rule.Setting.of(fleet.roster, fleet.batch_size, parameters(state, fleet), fleet.roster.numbers, ids)
        kappa = rule.or_first(curvature(seen, state, fleet), look, setting, step or 1.0)
        told, seen = decide(seen, look, setting, kappa, self.correct)
        return self._shared(told, fleet, round), {"seen": seen, "told": told._asdict()}

    def _one_exchange(self, state: State, fleet: Fleet, round: Round) -> tuple[State, Info]:
        """One round in which clients are asked one thing, how far they come from one's model: all that a look tells."""
        seen, ids = self._whom(state, fleet, round)
        found = exchange(state, fleet, round, seen, ids, self._by_size(ids, fleet, round))
        momentum = self._momentum(state, round)
        velocity = state.own.get("velocity")
        move = found.move if velocity is None else found.move + momentum * velocity
        own: dict[str, Any] = {"seen": found.seen, "told": found.told._asdict()}
        after = State(
            moved(state.models, move, found.buffers, fleet.trained),
            state.optimizer.after_walks(state.models, fleet.trained),
            {**own, "velocity": move} if momentum else own,
        )
        answers = asked(ids, round)
        info = self._info(found.told, found.told.weights)
        return after, info._replace(messages=2 * answers, gradients=answers)

    def _momentum(self, state: State, round: Round) -> float | None:
        """Of whole moves; None where there are none."""
        if self.exchange == "update":
            return None
        return state.optimizer.forgotten(len(round.steps)) if self.momentum is None else self.momentum

    def _whom(self, state: State, fleet: Fleet, round: Round) -> tuple[dict[str, Tensor], Tensor]:
        """What is known, and who is looked at in this round, [N, c]: those at the first places."""
        n, width = len(fleet.roster), parameters(state, fleet)
        if self.correct and n * n * width > MOST_DIFFERENCES:
            raise InputError(
                f"correct keeps {n}² gradients of {width} numbers: too many for this machine; train without it"
            )
        limits = [self.candidates, self.partners if self.exchange == "round" else None]
        count = min(limit for limit in (*limits, n - 1) if limit is not None)
        seen = state.own.get("seen")
        if not seen:
            places = candidates.places(n, count)
            width = width if self.correct else min(self.sketch, width)
            seen = {**rule.nothing(n, places, width), **candidates.nobody(n, places)}
            seen = {**seen, **correction.no_record(n, places)} if self.correct else seen
        if count == n - 1:
            return seen, everybody(n)
        ids = candidates.choose(seen, round.present, count, round.number)
        return candidates.arranged(seen, ids), ids

    def _shared(self, told: Decision, fleet: Fleet, round: Round) -> Info:
        """What a look has decided, with the weights of the partners to whom it falls in this round."""
        common = self._by_size(told.ids, fleet, round)
        weights = told.weights if common is None else common
        if not self.partners:
            return self._info(told, weights)
        itself = told.ids == torch.arange(len(told.ids))[:, None]
        return self._info(told, candidates.partners(weights, itself, self.partners, round.number))

    def _by_size(self, ids: Tensor, fleet: Fleet, round: Round) -> Tensor | None:
        """[N, c], the weights of a round in which all are together; None of the others."""
        if round.number > (self.together or 0):
            return None
        return normalised(torch.where((ids >= 0) & round.present[ids], fleet.roster.sizes.double()[ids], 0))

    def _info(self, told: Decision, weights: Tensor) -> Info:
        bias, noise, trust = (by_client(t, told.ids, torch.nan) for t in (told.bias, told.cost, told.trust))
        return Info(by_client(weights, told.ids, 0.0), (1 - bias).clamp(min=0), bias=bias, noise=noise, trust=trust)

    def direction(self, own: Memory, fleet: Fleet) -> Direction | None:
        if not self.correct:
            return None

        def corrected(models: Models, gradients: Models) -> Models:
            sizes = [models[name][0].numel() for name in fleet.trained]
            parts = dict(zip(fleet.trained, own["told"]["shift"].split(sizes, 1), strict=True))
            return {
                name: gradient - parts[name].reshape(gradient.shape).to(gradient) if name in parts else gradient
                for name, gradient in gradients.items()
            }

        return corrected

    def looking(self, round: Round, own: Memory, partners: int) -> int:
        """A gradient of everyone looked at, and the models that updates do not send."""
        if (round.number - 1) % self.every:
            return 0
        return 2 * asked(own["told"]["ids"], round) - partners


def all_for_one_round(
    samples: int = 16,
    sketch: int = 64,
    every: int = 1,
    correct: bool = False,
    exchange: Literal["update", "round"] = "round",
    partners: int | None = None,
    candidates: int | None = None,
    momentum: float | None = None,
    together: int | None = None,
) -> AllForOne:
    return AllForOne(samples, sketch, every, correct, exchange, partners, candidates, momentum, together)
