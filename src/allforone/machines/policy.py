"""What a site lets out of its house: its own rules, which no job can change, and what it has spent of its privacy."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from ..errors import AllForOneError, InputError, short, suggest
from ..fleet import Privacy
from ..fleet.privacy import Question, as_number, different
from ..fleet.spending import UNPROTECTED, Spending
from ..opening import to_read
from ..problems import Client
from .wire import Message

#: What a site can be asked about its data, and with what each answers.
QUESTIONS = ("gradients", "descend", "look", "walk", "losses", "new_losses", "evaluate")
#: What every site answers, without which it cannot take part.
ALWAYS = ("describe", "ping")


class Refused(AllForOneError):  # noqa: N818  (a site's own will)
    """A site does not answer; the reason is a sentence of ours, which may leave it."""


@dataclass(frozen=True)
class Policy:
    """The rules of one site.

    Args:
        least_batch: samples over which the mean is taken in whatever is told, at least; of halves, in each.
        questions: which it answers, of gradients, descend, look, walk, losses, new_losses and evaluate.
        most_samples: that one question may touch, each counted as often as it is used; None: any number.
        privacy: clip, noise and delta of all that it answers; None: gradients leave as they are.
        budget: ε that it may spend in all; None: it only keeps count.
    """

    least_batch: int = 8
    questions: tuple[str, ...] = QUESTIONS
    most_samples: int | None = None
    privacy: Privacy | None = None
    budget: float | None = None

    def __post_init__(self) -> None:
        for name in ("least_batch", "most_samples"):
            value = getattr(self, name)
            if (type(value) is not int or value < 1) and not (value is None and name == "most_samples"):
                raise InputError(f"policy: {name} is {short(value)}: must be a whole number, at least 1")
        for question in self.questions:
            if question not in QUESTIONS:
                raise InputError(f"policy: unknown question {short(question)}; {suggest(str(question), QUESTIONS)}")
        if self.budget is not None and not (type(self.budget) in (int, float) and self.budget > 0):
            raise InputError(f"policy: the budget's epsilon is {short(self.budget)}: must be a number above 0")
        if self.budget is not None and self.privacy is None:
            raise InputError("policy: a budget is spent by private answers only; add privacy: {clip: 1.0, noise: 1.0}")

    @property
    def told(self) -> str:
        """In one line, for the site's owner."""
        said = [f"means of {self.least_batch} samples or more"]
        if self.most_samples:
            said.append(f"{self.most_samples} samples a question at most")
        if refused := [question for question in QUESTIONS if question not in self.questions]:
            said.append(f"no answer to {', '.join(refused)}")
        said.append(f"{self.privacy} of every answer" if self.privacy else "answers without noise")
        if self.budget is not None:
            said.append(f"an epsilon of {self.budget:g} in all")
        return "; ".join(said)

    @classmethod
    def of(cls, written: Any, source: str) -> "Policy":
        """From a file's keys: budget is {epsilon, delta}, privacy is {clip, noise}."""
        if not isinstance(written, Mapping):
            raise InputError(f"{source}: expected keys and values such as 'least_batch: 16'")
        known = [field.name for field in fields(cls)]
        budget = _part(written, "budget", ("epsilon", "delta"), source)
        privacy = _part(written, "privacy", ("clip", "noise"), source)
        if odd := [key for key in written if key not in known]:
            raise InputError(f"{source}: unknown key '{short(odd[0])}'; {suggest(str(odd[0]), known)}")
        given = {key: value for key, value in written.items() if key not in ("budget", "privacy")}
        if "questions" in given:
            if not isinstance(given["questions"], list):
                raise InputError(f"{source}: questions must be a list, as [gradients, look, evaluate]")
            given["questions"] = tuple(given["questions"])
        if privacy is not None:
            delta = {"delta": budget["delta"]} if budget and "delta" in budget else {}
            given["privacy"] = Privacy.of({**privacy, **delta})
        if budget is not None:
            given["budget"] = as_number(budget.get("epsilon"))
        return cls(**given)

    def check(self, asked: Message, client: Client, batch_size: int) -> None:
        """Refuse a question that these rules do not allow; the reason says what would be answered."""
        kind = asked.get("ask")
        if kind not in (*ALWAYS, *self.questions):
            raise Refused(f"its policy does not answer the question {short(kind)}")
        each, touched, remedy = _sizes(asked, client, batch_size)
        if each is not None and each < self.least_batch:
            raise Refused(f"its policy wants means of {self.least_batch} samples or more, not of {each}: {remedy}")
        if self.most_samples is not None and touched > self.most_samples:
            raise Refused(f"its policy lets a question touch {self.most_samples} samples, not {touched}: use fewer")
        if self.privacy and kind in ("losses", "new_losses"):
            raise Refused(f"its answers are private, and {UNPROTECTED}")


def _part(written: Mapping[str, Any], key: str, known: tuple[str, ...], source: str) -> dict[str, Any] | None:
    value = written.get(key)
    if value is None:
        return None
    if not isinstance(value, Mapping) or not {*value} <= {*known}:
        raise InputError(f"{source}: {key} must be {{{', '.join(f'{name}: …' for name in known)}}}")
    return dict(value)


def _sizes(asked: Message, client: Client, batch_size: int) -> tuple[int | None, int, str]:
    """Over how many samples the means are that a question asks for, None if for none; how many it touches; and what to
    do where they are too few."""
    kind, batch = asked["ask"], client.batch(batch_size)
    if kind == "look":
        shown = client.batch(int(asked["samples"]))
        each = shown if asked["whole"] else max(1, shown // 2)
        return each, shown, "the algorithm's option samples (-a samples=…) is twice that, where it looks at halves"
    larger = "use a larger --batch-size"
    if kind in ("describe", "gradients"):
        return batch, batch if kind == "gradients" else 0, larger
    if kind in ("descend", "walk", "losses"):
        halves = kind == "walk" and asked["parts"] == 2
        return -(-batch // 2) if halves else batch, batch * len(range(*asked["steps"])), larger
    return None, 0, ""


def question_of(asked: Message, alone: Tensor) -> Question:
    """What a message asks of the site whose data are here, `alone` [N]: of walks, about its own model by itself. A site
    has one model: who calls several its own asks about them together."""
    kinds, number = different(asked["models"]), len(alone) - 1
    own = torch.zeros(len(kinds), dtype=torch.bool)
    if asked["ask"] == "walk":
        own = torch.tensor(asked["owners"]) == number
    apart = len(kinds[own].unique()) == 1
    return Question.about(asked["models"], ~(own & apart)[:, None] & alone, alone & apart)


def spend(spending: Spending, alone: Tensor, asked: Message) -> None:
    """Count what an answer to this question spends; `alone` [N] is whose data are here."""
    kind = asked["ask"]
    if kind not in ("gradients", "descend", "look", "walk"):
        return
    question = question_of(asked, alone).number * alone
    if kind == "gradients":
        spending.update(question, asked["step"])
        return
    steps = range(*asked["steps"])
    if kind == "walk":
        spending.walk(question, steps, asked["parts"])
    elif kind == "look":
        if asked["whole"]:
            spending.compare(question, steps.start, asked["samples"])
        else:
            spending.look(question, steps, asked["samples"])
    else:
        for step in steps:
            spending.update(question, step)


class Door:
    """The way out of a site: what has no policy and no privacy passes as it is.

    Args:
        number: of the client.
        spending: of its privacy, where its answers are private.
        policy: its own rules, where it has some.
        file: where what is spent is kept, of as long as the data are the same; else it is forgotten with the process.
    """

    def __init__(
        self, client: Client, number: int, spending: Spending | None, policy: Policy | None, file: Path | None = None
    ) -> None:
        self.client, self.number, self.spending, self.policy, self.file = client, number, spending, policy, file
        self.spent = False  #: whether a question was refused since the budget does not allow it: then all are
        if spending and file and file.exists():
            spending.restore([_read(file, client.fingerprint, spending.counts[number])])

    def open(self, asked: Message, alone: Tensor, batch_size: int) -> None:
        """Let a question in, or refuse it; what its answer spends is kept before it is made."""
        if self.spent:
            raise Refused(self._told())
        if self.policy:
            self.policy.check(asked, self.client, batch_size)
        if self.spending is None:
            return
        before = self.spending.counts[self.number].clone()
        spend(self.spending, alone, asked)
        budget = self.policy.budget if self.policy else None
        if budget is not None and self.spending.epsilon(self.number) > budget:
            self.spending.counts[self.number] = before
            self.spent = True
            raise Refused(self._told())
        if self.file and not before.equal(self.spending.counts[self.number]):
            _write(self.file, self.client.fingerprint, self.spending.counts[self.number])

    def _told(self) -> str:
        return "its privacy budget is spent, so it leaves the run"


def _write(file: Path, fingerprint: str, counts: Tensor) -> None:
    """All or nothing: a machine that dies meanwhile leaves what was there before."""
    new = file.with_suffix(".new")
    with new.open("wb") as opened:
        opened.write(safetensors.torch.save({"answered": counts}, {"data": fingerprint}))
        opened.flush()
        os.fsync(opened.fileno())
    new.replace(file)


def _read(file: Path, fingerprint: str, like: Tensor) -> Tensor:
    """What was spent of these data. What cannot be read is no reason to begin anew."""
    try:
        with to_read(file), safetensors.safe_open(file, framework="pt") as opened:
            data, counts = (opened.metadata() or {}).get("data"), opened.get_tensor("answered")
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"{file}: what this site has spent of its privacy cannot be read ({type(error).__name__}); put back a "
            "copy, or remove it and give a smaller budget"
        ) from None
    same = data == fingerprint and counts.shape == like.shape
    if not same:
        raise InputError(
            f"{file}: what was spent is of other data than this site has now; move it away where they are new people's"
        )
    return counts  # type: ignore[no-any-return]
