"""The contract with the clients: whoever and wherever they are, they answer with gradients."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from .optimizer import Optimizer

#: N models, stacked: name → [N, *shape]. Holds parameters and buffers alike.
Models = dict[str, Tensor]

#: (models, gradients) → the direction to descend in, row by row: where an algorithm adds its own term
Direction = Callable[[Models, Models], Models]


class PairStatistics(NamedTuple):
    """What the clients' gradients look like at each model; row i is about the model of client i."""

    distance: Tensor  #: [N, N], ‖g_k(θ_i) − g_i(θ_i)‖²
    norm: Tensor  #: [N, N], ‖g_k(θ_i)‖²


class Evaluation(NamedTuple):
    """Each client's own model on its own test data."""

    loss: Tensor  #: [N]
    accuracy: Tensor | None  #: [N], where the problem has one
    excess: Tensor | None  #: [N], loss above the least possible, where that is known


class Fleet(Protocol):
    """The clients, as a gradient oracle."""

    sizes: Tensor  #: [N], how many samples each client owns (1 for streams)
    clusters: list[int] | None  #: true clusters, where known
    smoothness: float | None  #: β, where known
    samples: Tensor  #: [N], samples each client has drawn so far: a ledger, nothing depends on it
    trained: list[str]  #: the names of the parameters; what else a model holds are buffers and frozen parameters

    def gradients(self, models: Models, mix: Tensor, step: int) -> Models:
        """Row m: Σ_k mix[m, k] · g_k(θ_m), on a fresh batch of every client k with mix[m, k] ≠ 0, never of the others.

        A buffer has no gradient; in its place stands its value after the pass over the batch of the model's owner
        (client m, when there are as many models as clients), unchanged when the owner was not asked.
        """
        ...

    def descend(
        self, models: Models, mix: Tensor, optimizer: Optimizer, steps: range, direction: Direction | None = None
    ) -> tuple[Models, Optimizer]:
        """Many updates with fixed weights. The arguments stay as they were."""
        ...

    def compare(self, models: Models, step: int, samples: int) -> PairStatistics:
        """Statistics of gradients on `samples` samples per client, drawn apart from those of the updates."""
        ...

    def losses(self, models: Models, steps: range) -> Tensor:
        """[M, N], the mean loss of each model on each client's batches of these steps."""
        ...

    def evaluate(self, models: Models) -> Evaluation: ...

    def present(self) -> Tensor:
        """[N], who can be asked now. Absence is an answer, not an exception."""
        ...


def stack(model: nn.Module, copies: int) -> Models:
    """`copies` models that start from the same point."""
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: tensor.detach().expand(copies, *tensor.shape).clone() for name, tensor in state.items()}


def row(models: Models, number: int) -> Models:
    """Model `number` of the stack, without the stack's dimension."""
    return {name: tensor[number] for name, tensor in models.items()}


def mean(models: Models, weights: Tensor) -> Models:
    """The weighted mean of the models, as a stack of one; weights sum to one. Of counters and masks, the first's."""
    return {
        name: torch.einsum("n,n...->...", weights.double(), tensor.double())[None].to(tensor.dtype)
        if tensor.is_floating_point() else tensor[:1].clone()
        for name, tensor in models.items()
    }


def repeat(models: Models, copies: int) -> Models:
    """A stack of one, `copies` times."""
    return {name: tensor.expand(copies, *tensor.shape[1:]).clone() for name, tensor in models.items()}


def plus(gradients: Models, term: Models) -> Models:
    """The gradients with a term added to those it names; buffers pass unchanged."""
    return {name: tensor + term[name] if name in term else tensor for name, tensor in gradients.items()}


def trained_names(model: nn.Module) -> list[str]:
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


def flat(gradients: Iterable[Tensor]) -> Tensor:
    """One gradient as one vector, in at least single precision, so that squares do not overflow."""
    vector = torch.cat([gradient.flatten() for gradient in gradients])
    return vector.float() if vector.dtype in (torch.float16, torch.bfloat16) else vector
