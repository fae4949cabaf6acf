"""Differential privacy of what a client answers: how much noise there is, and what has been spent."""

import hashlib
import math
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError
from .models import Models

#: Bytes of the secret from which noise is drawn.
SECRET_BYTES = 32


@dataclass(frozen=True)
class Privacy:
    """Every answer of a client is the mean of its samples' gradients, each shortened to the norm `clip`, with Gaussian
    noise of standard deviation noise · clip · √M / batch, M the number of different models that the question is about.

    Two data sets are neighbours if one sample's gradients are taken for zero in one of them; the sizes are public. A
    question, at however many models, then is a Gaussian mechanism with noise multiplier `noise`: who asks about more
    models learns no more. What a sample spends are the questions that it had a part in, and a client spends what its
    most asked sample does: batches of one epoch are disjoint. Batches are drawn by the seed of the run, which others
    know, so no amplification by sampling is claimed.

    Args:
        clip: the norm to which each sample's gradient is shortened.
        noise: the standard deviation of the noise in units of `clip`, on the sum over a batch, at one model.
        delta: of (ε, δ), less than one over the number of samples.
        secret: from which the noise is drawn, for tests: whoever knows it can take the noise off. By default a fresh
            one from the system. It is never written down, and is no part of what a run is known by.

    Example:
        >>> Privacy(noise=4.0)
        Privacy(clip=1.0, noise=4.0, delta=1e-05)
    """

    clip: float = 1.0
    noise: float = 1.0
    delta: float = 1e-5
    secret: InitVar[int | str | bytes | None] = None

    def __post_init__(self, secret: int | str | bytes | None) -> None:
        for name, least in (("clip", "above 0"), ("noise", "at least 0"), ("delta", "between 0 and 1")):
            value = getattr(self, name)
            number = not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value)
            inside = number and value >= 0 and (value > 0 or name == "noise") and (value < 1 or name != "delta")
            if not inside:
                raise InputError(f"privacy: {name} is {value!r}: must be a number {least}")
        kept = None if secret is None else secret if isinstance(secret, bytes) else str(secret).encode()
        object.__setattr__(self, "_secret", kept)  # no field: what describes the object does not see it

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> "Privacy":
        """From what a file or an option says: YAML takes 1e-5 for a text."""
        return cls(**{key: as_number(value) for key, value in written.items()})

    @property
    def repeatable(self) -> bool:
        """Whether the same run has the same noise again."""
        return self._given is not None

    @property
    def _given(self) -> bytes | None:
        given: bytes | None = vars(self)["_secret"]  # set beside the fields
        return given

    def noises(self) -> "Noise":
        """The source of noise of a run, from the secret or a fresh one."""
        return Noise(secrets.token_bytes(SECRET_BYTES) if self._given is None else self._given)

    def epsilon(self, questions: int) -> float:
        """ε at `delta` of a sample that had a part in so many questions: of one Gaussian mechanism with the noise
        multiplier noise / √questions, which they are together."""
        if questions == 0:
            return 0.0
        return math.inf if self.noise == 0 else _epsilon(self.noise / math.sqrt(questions), self.delta)

    def variance(self, numbers: int, models: Tensor, batch: Tensor, parts: int) -> Tensor:
        """E‖ξ‖² of the noise on the mean of a batch that answers in so many parts, each with noise of its own, if a
        gradient has so many numbers."""
        return numbers * models * (self.noise * self.clip / (batch / parts).ceil()).square() / parts


class Question(NamedTuple):
    """What all clients are asked at one time. Each answers at its own model by itself where that is apart."""

    models: Tensor  #: [N], at how many different models each answers
    apart: Tensor  #: [N], whether each is asked about its own by itself

    @classmethod
    def about(cls, models: Models, asked: Tensor, apart: Tensor) -> "Question":
        """asked: [M, N], which clients are asked about each model, but for those that are asked about apart."""
        kinds = different(models)
        return cls(torch.tensor([len(kinds[column].unique()) for column in asked.T]), apart)

    @property
    def number(self) -> Tensor:
        """[N], how many questions that is to each."""
        return (self.models > 0).long() + self.apart.long()

    def of(self, owners: Tensor, clients: Tensor) -> Tensor:
        """At how many models clients answer in the question about the models of owners."""
        return torch.where((owners == clients) & self.apart[clients], 1, self.models[clients].clamp(min=1))


def own_apart(asked: Tensor) -> tuple[Tensor, Tensor]:
    """[N, N], who asks whom: about others' models, and who about its own."""
    return asked & ~torch.eye(len(asked), dtype=torch.bool), asked.diagonal()


def different(models: Models) -> Tensor:
    """[M], a number for each model, the same where two are equal bit for bit: they are one question."""
    known: dict[bytes, int] = {}
    numbers = []
    for m in range(len(next(iter(models.values())))):
        digest = hashlib.blake2b()
        for tensor in models.values():
            digest.update(_bits(tensor[m]))
        numbers.append(known.setdefault(digest.digest(), len(known)))
    return torch.tensor(numbers)


def _bits(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


class Noise:
    """Gaussian noise that is a function of a secret and of what was asked. The same question has the same answer, so
    asking twice does not help; at any other model or batch the noise is another, so nor does taking differences."""

    def __init__(self, secret: bytes) -> None:
        self._key = hashlib.blake2b(secret, digest_size=64).digest()

    def draw(self, count: int, name: tuple[int | str, ...], asked: Iterable[Tensor]) -> Tensor:
        """So many standard normal numbers, by the name and the tensors of what was asked. Philox has a key of 128
        bits; torch's own generator on a CPU has 32, which can be tried one by one."""
        digest = hashlib.blake2b(repr(name).encode(), key=self._key, digest_size=16)
        for tensor in asked:
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())  # bytes may be of other tensors
            digest.update(_bits(tensor))
        random = np.random.Generator(np.random.Philox(key=int.from_bytes(digest.digest())))
        return torch.from_numpy(random.standard_normal(count))


def as_number(written: Any) -> Any:
    """The number that a text holds; whatever else it is stays, to be refused by its name."""
    try:
        return float(written) if isinstance(written, str) else written
    except ValueError:
        return written


def require_accounting() -> None:
    """Say at the start, not after a round, what is missing."""
    try:
        import dp_accounting  # noqa: F401
    except ImportError:
        raise InputError("privacy needs the package dp-accounting: pip install 'allforone[privacy]'") from None


@cache
def _epsilon(multiplier: float, delta: float) -> float:
    from dp_accounting import get_epsilon_gaussian

    return float(get_epsilon_gaussian(multiplier, delta))
