"""Where a client's data are: a function from questions to answers, and nothing kept in between."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from ..errors import Diverged, InputError, within
from ..fleet import Models, Privacy, Proximal, row
from ..fleet.batches import Batches
from ..fleet.devices import on
from ..fleet.judge import Judge
from ..fleet.models import alone, flat, stack
from ..fleet.passes import Passes
from ..fleet.private_passes import PrivatePasses
from ..fleet.sketch import sketch
from ..fleet.spending import UNPROTECTED, Spending
from ..fleet.walks import Walked, walk
from ..problems import Client, Task
from ..problems.data import Batch, Finite, draw, generator
from ..problems.tree import length
from .agreement import describe, model_of
from .audit import Audit
from .optimizers import Makes, state_of, unpack
from .policy import ALWAYS, Door, Policy, Refused, question_of
from .wire import Message, Unreadable, decode, encode


class Drawn:
    """What an answer was made from, in the order in which it was drawn."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int, int]] = []  #: purpose, steps from and to, samples of each

    def count(self, client: int, steps: range, purpose: str, size: int) -> None:
        self.told.append((purpose, steps.start, steps.stop, size))


class Site:
    """One client, its copy of the task, and its answers. STATELESS: an answer is a function of the question and of the
    client's data. What is kept is how often it has answered, where its answers are private.

    Args:
        task: what is learned.
        client: whose data are here.
        number: of the client, by which its batches are drawn.
        seed: of the run.
        batch_size: samples of an update; by default the task's.
        passes: the model and the loss, where sites of one process share them.
        makes: of optimizers that are code, where coordinator and site share a process.
        frank: raise errors as they are, where one owner has all data in one process. Else what leaves is a sentence of
            ours and the error's type, since an error's own text may quote data.
        held_out: the share of the training data by which a guard judges; 0 where the client holds out its own, or no
            guard watches.
        audit: the log of what is answered.
        privacy: of its answers; a policy has its own.
        policy: the site's own rules, by default none.
        spent: the file in which what is spent of its privacy is kept.
    """

    def __init__(
        self,
        task: Task,
        client: Client,
        number: int,
        *,
        seed: int,
        batch_size: int | None = None,
        passes: Passes | None = None,
        makes: Makes | None = None,
        frank: bool = False,
        held_out: float = 0.0,
        audit: Audit | None = None,
        privacy: Privacy | None = None,
        policy: Policy | None = None,
        spent: Path | None = None,
    ) -> None:
        privacy = policy.privacy if policy else privacy
        if held_out and privacy:
            raise InputError(f"its answers are private, and a guard asks for losses: {UNPROTECTED}")
        if held_out:
            client = client.hold_out(held_out, generator(seed, number, "held out"))
        self.task, self.client, self.number, self.seed = task, client, number, seed
        self.batch_size = batch_size or task.settings.batch_size
        self.passes = passes or passes_of(task, client, number, seed, self.batch_size, privacy)
        self.spending = Spending({number: client}, seed, self.batch_size, privacy) if privacy else None
        self.door = Door(client, number, self.spending, policy, spent)
        self.makes, self.frank, self.audit = makes, frank, audit
        self._own_forms = forms(stack(self.passes.module, 1))
        self._alone = torch.arange(number + 1) == number  # who is asked of those that are here

    def answer(self, question: bytes) -> bytes:
        """The answer to a question; of what fails, that it failed. An answer that cannot be logged does not leave."""
        asked: Message = {}
        try:
            asked = decode(question)
            told = self._reply(self._here(asked))
        except Exception as error:
            if self.frank:
                raise
            told = _failure(error)
        answer = encode(told)
        if self.audit:
            try:
                self.audit.write(asked, told, len(question), len(answer))
            except OSError as error:
                return encode({"error": type(error).__name__, "why": "its audit log cannot be written"})
        return answer

    def _here(self, asked: Message) -> Message:
        """A question with its models where they are computed."""
        return {**asked, "models": on(self.passes.device, asked["models"])} if "models" in asked else asked

    def _reply(self, asked: Message) -> Message:
        questions: dict[str, Callable[[Message, Batches], Message]] = {
            "describe": self._describe,
            "ping": lambda asked, batches: {},
            "gradients": self._gradients,
            "descend": self._descend,
            "look": self._look,
            "walk": self._walk,
            "losses": self._losses,
            "new_losses": self._new_losses,
            "evaluate": self._evaluate,
        }
        reply = questions[asked["ask"]]
        if self.spending and "models" in asked:
            self._check_models(asked["models"])
        self.door.open(asked, self._alone, self.batch_size)
        if isinstance(self.passes, PrivatePasses) and "models" in asked:
            self.passes.question = question_of(asked, self._alone)
        drawn = Drawn()
        batches = Batches({self.number: self.client}, self.seed, self.batch_size, drawn, self.passes.device)
        found = reply(asked, batches)
        private = self.spending is not None and asked["ask"] not in ALWAYS  # what it says of itself stays the same
        return {**found, "drawn": drawn.told, **({"epsilon": self._epsilon()} if private else {})}

    def _check_models(self, models: Models) -> None:
        """Noise is drawn by what is asked: it must be the task's model, and nothing beside it."""
        if forms(models) != self._own_forms or len({len(tensor) for tensor in models.values()}) != 1:
            raise Refused("what it is asked about is no model of its task")

    def _epsilon(self) -> float | None:
        """What is spent; None where there is no noise, and so no bound."""
        spent = math.inf if self.spending is None else self.spending.epsilon(self.number)
        return spent if math.isfinite(spent) else None

    def _describe(self, asked: Message, batches: Batches) -> Message:
        return describe(self.task, self.passes, self.client, self.number, self.seed, self.batch_size)

    def _gradients(self, asked: Message, batches: Batches) -> Message:
        """g_k(θ_m) for every model m that was sent, and the buffers after the passes of the client's own."""
        step, owners, models = asked["step"], asked["owners"], asked["models"]
        batch = batches.of(self._alone, step)[self.number]
        gradients, buffers = [], []
        for m in range(_count(models)):
            owner = self.number if owners is None else owners[m]
            gradient, after = self._gradient(alone(models, m), owner, batch, step)
            gradients.append(gradient)
            if owners is not None and owner == self.number:
                buffers.append(after)
        return {"gradients": _stacked(gradients), "buffers": _stacked(buffers)}

    def _gradient(
        self, model: Models, owner: int, batch: Batch, step: int, purpose: str = "update"
    ) -> tuple[Models, Models]:
        """At another's model on which the loss is not finite, a gradient that is not either: that is the other's to
        refuse."""
        try:
            return self.passes.gradient(model, owner, self.number, batch, step, purpose)
        except Diverged:
            if self.frank or owner == self.number:
                raise
            return {name: torch.full_like(model[name], torch.nan) for name in self.passes.trained}, {}

    def _descend(self, asked: Message, batches: Batches) -> Message:
        """All updates of a round by the client's own gradients, times `scale`."""
        steps, scale = range(*asked["steps"]), asked["scale"]
        running = unpack(asked["optimizer"], self.makes).start(asked["models"], self.passes.trained)
        near = None
        if asked["near"]:
            near = Proximal(asked["near"]["strength"], on(self.passes.device, asked["near"]["centre"]))
        for step in steps:
            batch = batches.of(self._alone, step)[self.number]
            gradient, buffers = self._gradient(row(running.models, 0), self.number, batch, step)
            found = {name: torch.zeros_like(t)[None] + scale * t for name, t in gradient.items()}  # summed as others'
            found |= {name: tensor[None] for name, tensor in buffers.items()}
            running.apply(near(running.models, found) if near else found)
        state = state_of(running)
        return {"models": running.finish()[0], "state": state}

    def _look(self, asked: Message, batches: Batches) -> Message:
        """Of the gradients at every model that was sent: the mean of its parts, whole or sketched, its norm, the noise
        and the sketched parts."""
        steps, models, owners = range(*asked["steps"]), asked["models"], asked["owners"]
        if asked["whole"]:
            parts = [batches.of(self._alone, steps.start, purpose="compare", size=asked["samples"])[self.number]]
        else:
            least = 2 if self.passes.moves_buffers else 1
            parts = batches.to_look_at(self._alone, steps, asked["samples"], least)[self.number]
        means, numbers, halves = [], [], []
        for m in range(_count(models)):
            found = [
                flat(self._gradient(alone(models, m), owners[m], batch, steps.start, f"look {part}")[0].values())
                for part, batch in enumerate(parts)
            ]
            mean = torch.stack(found).mean(0)
            numbers.append(torch.stack([v.square().sum() for v in (mean, (found[0] - found[-1]) / 2)]))
            means.append(sketch(len(mean), asked["told"])(mean) if asked["told"] else mean)
            halves.append(sketch(len(mean), asked["sketch"])(torch.stack(found)))
        read = sum(map(length, parts))
        return {
            "means": torch.stack(means),
            "numbers": torch.stack(numbers),
            "halves": torch.stack(halves),
            "read": read,
            "added": self._added(owners, read, len(parts)),
        }

    def _added(self, owners: list[int], batch: int, parts: int) -> Tensor:
        """[M], what the mean of a batch was given for privacy, at each model of the question."""
        if not isinstance(self.passes, PrivatePasses) or not self.passes.question:
            return torch.zeros(len(owners), dtype=torch.float64)
        size = sum(self.passes.module.get_parameter(name).numel() for name in self.passes.trained)
        models = self.passes.question.of(torch.tensor(owners), torch.tensor(self.number))
        return self.passes.privacy.variance(size, models, torch.tensor(batch, dtype=torch.float64), parts)

    def _walk(self, asked: Message, batches: Batches) -> Message:
        """How far the client comes from every model that was sent in the updates of a round, part by part."""
        steps, models, owners, parts = range(*asked["steps"]), asked["models"], asked["owners"], asked["parts"]
        optimizer = unpack(asked["optimizer"], self.makes)
        least = 2 if self.passes.moves_buffers else 1
        drawn = batches.in_parts(self._alone, steps, parts, least)[self.number]
        ways, firsts, buffers = [], [], []
        for m, owner in enumerate(owners):

            def gradient(model: Models, batch: Batch, step: int, purpose: str, owner: int = owner) -> Models:
                found, after = self.passes.gradient(model, owner, self.number, batch, step, purpose)
                return {**found, **after}

            try:
                found = walk(gradient, alone(models, m), self.passes.trained, optimizer, drawn, steps)
            except Diverged:
                if owner == self.number:
                    raise
                size = sum(models[name][0].numel() for name in self.passes.trained)
                way = torch.full((parts, size), torch.nan, dtype=models[self.passes.trained[0]].dtype)
                found = Walked(way, torch.tensor(torch.nan, dtype=torch.float64), {})
            ways.append(found.ways)
            firsts.append(found.first)
            if owner == self.number:
                buffers.append(found.buffers)
        added = self._added(owners, self.client.batch(self.batch_size), parts)
        first = torch.stack(firsts)
        return {"ways": torch.stack(ways), "first": first, "buffers": _stacked(buffers), "added": added}

    def _losses(self, asked: Message, batches: Batches) -> Message:
        """The mean loss of every model that was sent on the batches of the round."""
        found = self._judge(batches).losses(asked["models"], self._alone, range(*asked["steps"]))
        return {"losses": found[:, self.number]}

    def _new_losses(self, asked: Message, batches: Batches) -> Message:
        model, coming = row(asked["models"], 0), range(*asked["coming"])
        losses = self._judge(batches).on_new_data(self.passes.module, self.number, model, coming)
        return {"losses": losses, "judged": 0 if self.client.held is None else len(self.client.held)}

    def _evaluate(self, asked: Message, batches: Batches) -> Message:
        model = row(asked["models"], 0)
        found = self._judge(batches).on_test_data(self.passes.module, self.number, model)
        samples = len(self.client.test) if isinstance(self.client.test, Finite) else 0
        names = list(found)
        values = torch.tensor([found[name] for name in names], dtype=torch.float64)
        return {"names": names, "values": values, "judged": samples}

    def _judge(self, batches: Batches) -> Judge:
        return Judge(self.task, {self.number: self.client}, batches, self.passes, partial(on, self.passes.device))


def _failure(error: Exception) -> Message:
    """What is told of an error: a sentence of ours and its type, never its text."""
    kind = type(error).__name__
    if isinstance(error, Unreadable):
        return {"error": kind, "why": "it could not read the question"}
    if isinstance(error, Refused):
        return {"error": kind, "why": str(error)}
    if isinstance(error, Diverged):
        return {"error": kind, "why": "the loss of its own model on its own data is not finite"}
    return {"error": kind, "why": f"its model, loss or data failed ({kind})"}


def passes_of(
    task: Task, client: Client, number: int, seed: int, batch_size: int, privacy: Privacy | None = None
) -> Passes:
    """The task's model and loss, tried on a batch of the client's."""
    with within(f"client {number}, train data"):
        first = draw(client.train, batch_size, seed=0, client=number, step=0, purpose="try")
    module, precision = model_of(task, seed), task.settings.precision
    if privacy:
        return PrivatePasses(module, task.loss, seed, first, precision, privacy)
    return Passes(module, task.loss, seed, first, task.settings.clip, precision)


def forms(models: Models) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """Shape and dtype of a model's tensors, by name."""
    return {name: (tensor.shape[1:], tensor.dtype) for name, tensor in models.items()}


def _count(models: Models) -> int:
    return len(next(iter(models.values())))


def _stacked(rows: list[Models]) -> Models:
    return {name: torch.stack([found[name] for found in rows]) for name in rows[0]} if rows else {}
