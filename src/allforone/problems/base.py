"""What is learned: the model, the loss, the settings that go with them, and whose data they are trained on."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import Any, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..errors import InputError, blaming, short
from .calling import called
from .client import LEAST_HELD, Client, listed, unheld
from .data import Finite, draw, generator, seeded
from .metrics import Metric, named
from .tree import Tree

Precision = Literal["float32", "bf16"]  #: of the passes in training
Loss = Callable[[Tree, Tree], Tensor]  #: (output, target) → scalar, a mean over the batch


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
        clip: the norm to which each client shortens every gradient that it answers with, before it is weighted.
        precision: "float32", in which models are computed as they are, or "bf16", in which their passes in training are
            under torch.autocast; parameters, updates and what is judged stay as they are.
        private: names or patterns of the parameters and buffers that never leave their owner.

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
    clip: float | None = None
    precision: Precision = "float32"
    private: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.precision not in get_args(Precision):
            raise InputError(f"settings: precision is {self.precision!r}: must be 'float32' or 'bf16'")
        if self.clip is not None and not (_is_number(self.clip) and 0 < self.clip < math.inf):
            raise InputError(f"settings: clip is {self.clip!r}: must be a number above 0")
        for name in ("rounds", "inner", "batch_size", "estimation"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"settings: {name} is {value!r}: must be a whole number, at least 1")
        for what, choice in (("optimizer", self.optimizer), ("scheduler", self.scheduler)):
            if choice is None:
                continue
            if not isinstance(choice, Mapping) or "name" not in choice:
                raise InputError(f"settings: the {what} has no name: write {{'name': …, …}}")
            for key, value in choice.items():
                if not _is_plain(key) or not _is_plain(value):
                    raise InputError(
                        f"settings: {key} of the {what} is {short(value)}: give numbers, texts or lists of them"
                    )


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
        if not isinstance(self.name, str):
            raise InputError(f"the name of the task is {short(self.name)}: give a text")
        beta = self.smoothness
        if beta is not None and not (_is_number(beta) and 0 < beta < math.inf):
            raise InputError(f"smoothness is {short(beta)}: must be a number above 0")

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
        clients: one `afo.Client` for each party, or a dict of names to
            those or to (train, test). The others are those of `afo.Task`.

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

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "clients", listed(self.clients))

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
            called(shaped.eval(), draw(self.clients[0].train, 2, seed=0, client=0, step=0, purpose="check")[0])
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


AnyTask = TypeVar("AnyTask", bound=Task)


def with_settings(task: AnyTask, **settings: Any) -> AnyTask:
    """The same task with other settings."""
    return replace(task, settings=replace(task.settings, **settings))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_plain(value: Any) -> bool:
    """Whether a config file can hold it."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def loader_size(clients: Sequence[Client], given: int | None) -> int:
    """Samples of a batch as the clients' DataLoaders say, if nothing else is given; else the default."""
    sizes = {client.train.batch_size for client in clients if isinstance(client.train, Finite)} - {None}
    if given is None and len(sizes) > 1:
        told = ", ".join(map(str, sorted(filter(None, sizes))))
        raise InputError(f"the clients' DataLoaders have batches of {told}: say which by batch_size=…")
    return next(filter(None, sizes), Settings.batch_size) if given is None else Settings.batch_size


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
