"""What is learned: the clients and their data, the model, the loss, and the settings that go with them."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..errors import InputError, blaming
from .data import Augment, Finite, Population, Stream, Transform, draw, fingerprint, generator, seeded
from .metrics import Metric, named

Loss = Callable[[Tensor, Tensor], Tensor]  #: (output, target) → scalar, a mean over the batch

#: Samples below which nothing can be told from held-out data.
LEAST_HELD = 5


class Client:
    """One party: what it trains on, what it is judged on, and, where it is known, the cluster it belongs to.

    Args:
        train: a pair of tensors (inputs, targets), any torch Dataset with a length, or a stream.
        test: likewise, or a distribution whose expected loss is known.
        cluster: its true cluster, where that is known; only the oracle uses it.
        name: what tables and pages call it, by default its number.
        transform: maps the inputs of every batch, after `augment`.
        augment: maps the inputs of training batches, by a generator that depends on the batch alone.

    Example:
        >>> import torch, allforone as afo
        >>> inputs, targets = torch.randn(49, 3), torch.randn(49, 1)
        >>> client = afo.Client((inputs[:40], targets[:40]), (inputs[40:], targets[40:]), name="Geneva")
        >>> client.size, len(client.test)
        (40, 9)
    """

    def __init__(
        self,
        train: Any,
        test: Any,
        *,
        cluster: int | None = None,
        name: str | None = None,
        transform: Transform | None = None,
        augment: Augment | None = None,
    ) -> None:
        self.train: Finite | Stream = train if isinstance(train, Stream) else Finite(train, transform, augment)
        self.test: Finite | Population = test if isinstance(test, Population) else Finite(test, transform)
        self.cluster, self.name = cluster, name
        self.held: Finite | None = None  #: of its training data, what is kept to judge collaboration by: `hold_out`

    @property
    def size(self) -> int:
        """Samples to train on; a stream counts as one, so that streams weigh the same."""
        return len(self.train) if isinstance(self.train, Finite) else 1

    @property
    def is_stream(self) -> bool:
        return not isinstance(self.train, Finite)

    @property
    def is_transformed(self) -> bool:
        """Whether its training batches are made from tensors by functions."""
        data = self.train
        return isinstance(data, Finite) and data.tensors is not None and bool(data.transform or data.augment)

    def hold_out(self, share: float, generator: torch.Generator) -> "Client":
        """The same client with a share of its training data held out. A stream needs none: its next batch is new. Who
        has too little data for that stays as it is."""
        count = round(share * self.size)
        if not isinstance(self.train, Finite) or count < LEAST_HELD:
            return self
        order = torch.randperm(len(self.train), generator=generator)
        client = copy.copy(self)
        client.held, client.train = self.train.part(order[:count], augmented=False), self.train.part(order[count:])
        return client

    @property
    def fingerprint(self) -> str:
        """A short text that changes when its data do."""
        return fingerprint(self.train, self.test)

    def batch(self, size: int) -> int:
        """How large its batches are when `size` is asked for."""
        return min(size, len(self.train)) if isinstance(self.train, Finite) else size


@dataclass(frozen=True)
class Settings:
    """How a task is trained by default.

    Args:
        rounds: how many.
        inner: updates per round, with the same weights.
        batch_size: samples per client and update.
        estimation: samples per client and round from which the paper's estimator reads similarity.
        optimizer: name and options of one of torch.optim.
        scheduler: name and options of one of torch.optim.lr_scheduler, which takes one step per round.

    Example:
        >>> import allforone as afo
        >>> afo.Settings(rounds=30, optimizer={"name": "Adam", "lr": 1e-3}).batch_size
        16
    """

    rounds: int = 100
    inner: int = 1
    batch_size: int = 16
    estimation: int = 512
    optimizer: dict[str, Any] = field(default_factory=lambda: {"name": "SGD", "lr": 0.1})
    scheduler: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        for name in ("rounds", "inner", "batch_size", "estimation"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise InputError(f"settings: {name} is {value!r}: must be a whole number, at least 1")
        for what, choice in (("optimizer", self.optimizer), ("scheduler", self.scheduler)):
            if choice is not None and "name" not in choice:
                raise InputError(f"settings: the {what} has no name: write {{'name': …, …}}")


@dataclass(frozen=True)
class Task:
    """What is learned, apart from anybody's data.

    Args:
        model: an nn.Module, or a function that makes one, which is then drawn by the run's seed.
        loss: (output, target) → scalar, a mean over the batch.
        metrics: name → what else models are judged by: `afo.accuracy`, an `afo.Metric`, or a plain function of all
            outputs and targets of a client, of which higher is better.
        settings: how it is trained by default.
        smoothness: β, where it is known.
        name: what tables and pages call it.

    Example:
        >>> import allforone as afo
        >>> from torch import nn
        >>> task = afo.Task(nn.Linear(3, 2), nn.CrossEntropyLoss(), metrics={"accuracy": afo.accuracy})
        >>> task.settings.rounds
        100
    """

    model: nn.Module | Callable[[], nn.Module]
    loss: Loss
    _: KW_ONLY
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    smoothness: float | None = None
    name: str = "task"

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", named(self.metrics))

    def initial_model(self, seed: int) -> nn.Module:
        """The model to start from: the module given, or the one that the function makes under this seed."""
        if isinstance(self.model, nn.Module):
            return self.model
        if not callable(self.model):
            raise InputError(f"the model is a {type(self.model).__name__}: give an nn.Module or what makes one")
        with torch.random.fork_rng(devices=[]), blaming("the function that makes the model failed"):
            torch.manual_seed(seed)
            module = self.model()
        if not isinstance(module, nn.Module):
            raise InputError(f"the model function returned {type(module).__name__}: it must return an nn.Module")
        return module


@dataclass(frozen=True)
class Problem(Task):
    """A task together with the data of all its clients, as one owner of them has it.

    Args:
        clients: one `afo.Client` for each party. The others are those of `afo.Task`.

    Example:
        >>> import torch, allforone as afo
        >>> from torch import nn
        >>> data = torch.zeros(8, 3), torch.zeros(8, 1)
        >>> clients = [afo.Client(data, data), afo.Client(data, data)]
        >>> problem = afo.Problem(nn.Linear(3, 1), nn.MSELoss(), clients=clients)
        >>> len(problem.clients), problem.clusters
        (2, None)
    """

    clients: Sequence[Client] = field(kw_only=True)

    def initial_model(self, seed: int) -> nn.Module:
        """The model to start from; lazy layers take their shapes from the first client's data, and draw by the seed."""
        module = super().initial_model(seed)
        if not self.clients or not any(is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
            return module
        shaped = copy.deepcopy(module)
        with (
            torch.no_grad(),
            seeded(generator(seed, "lazy layers")),
            blaming("client 0: the model's lazy layers cannot be made on its train data"),
        ):
            shaped.eval()(draw(self.clients[0].train, 2, seed=0, client=0, step=0, purpose="check")[0])
        for layer, given in zip(shaped.modules(), module.modules(), strict=True):
            layer.training = given.training
        return shaped

    @property
    def task(self) -> Task:
        """The problem without anybody's data."""
        return Task(**{field.name: getattr(self, field.name) for field in fields(Task)})

    @property
    def clusters(self) -> list[int] | None:
        """Each client's true cluster, or None where it is not known."""
        found = [client.cluster for client in self.clients]
        return None if None in found else found  # type: ignore[return-value]


def hold_out(problem: Problem, share: float, seed: int) -> Problem:
    """The same problem with a share of every client's finite training data held out, of those who have enough."""
    clients = [client.hold_out(share, generator(seed, k, "held out")) for k, client in enumerate(problem.clients)]
    if clients and len(unheld(clients)) == len(clients):
        number, most = max(enumerate(clients), key=lambda numbered: numbered[1].size)
        raise InputError(
            f"client {number}{f' ({most.name})' if most.name else ''} has {most.size} training samples, the most of "
            f"all, of which {share:.0%} are to be held out: the guard needs at least {math.ceil(LEAST_HELD / share)}"
        )
    return replace(problem, clients=clients)


def unheld(clients: Sequence[Client]) -> list[int]:
    """Who has no new data to be judged by: nothing held out, and no stream."""
    return [k for k, client in enumerate(clients) if client.held is None and not client.is_stream]
