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
    noise: Tensor | None  #: [N, N], ‖a − b‖²/4 for the halves of k's batch, whose mean is g_k(θ_i): its variance


class Evaluation(NamedTuple):
    """Each client's own model on its own test data."""

    loss: Tensor  #: [N]
    accuracy: Tensor | None  #: [N], where the problem has one
    excess: Tensor | None  #: [N], loss above the least possible, where that is known


class Validation(NamedTuple):
    """Each client's own model on new data of its own, part by part."""

    losses: Tensor  #: [N, parts], NaN where a client has fewer
    held: Tensor  #: [N], whether they are all that it has held out, the same at every time


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

    def compare(
        self, models: Models, step: int, samples: int | None = None, among: Tensor | None = None
    ) -> PairStatistics:
        """Statistics of gradients on `samples` samples per client, drawn apart from those of the updates.

        Without `samples`, on the update's own batches, in halves, which tells the noise too. `among` [N] says whom to
        ask; what concerns the others is NaN.
        """
        ...

    def losses(self, models: Models, steps: range) -> Tensor:
        """[M, N], the mean loss of each model on each client's batches of these steps."""
        ...

    def validate(self, models: Models, steps: range, among: Tensor) -> Validation:
        """New data are what a client has held out; of a stream, its batches of `steps`, not yet trained on, which the
        ledger counts when they are. `among` [N] says whom to ask.
        """
        ...

    def evaluate(self, models: Models) -> Evaluation: ...

    def present(self, step: int) -> Tensor:
        """[N], who can be asked in the round that begins with `step`. Absence is an answer, not an exception."""
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
        if tensor.is_floating_point()
        else tensor[:1].clone()
        for name, tensor in models.items()
    }


def repeat(models: Models, copies: int) -> Models:
    """A stack of one, `copies` times."""
    return {name: tensor.expand(copies, *tensor.shape[1:]).clone() for name, tensor in models.items()}


def plus(gradients: Models, term: Models) -> Models:
    """The gradients with a term added to those it names; buffers pass unchanged."""
    return {name: tensor + term[name] if name in term else tensor for name, tensor in gradients.items()}


def restricted(mix: Tensor, present: Tensor) -> Tensor:
    """The weights among those present: a row keeps its sum, who is absent asks nobody."""
    if present.all():
        return mix
    among = torch.where(present, mix, 0)
    share = mix.sum(1, keepdim=True) / among.sum(1, keepdim=True)
    among = torch.where(among.sum(1, keepdim=True) != 0, among * share, among)
    return torch.where(present[:, None], among, 0) if len(mix) == len(present) else among


def trained_names(model: nn.Module) -> list[str]:
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


def statistics(own: list[Tensor], others: Iterable[list[Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    """A row of the pair statistics, from the gradients of the model's owner and of each client; whole or in halves."""
    mean_own = torch.stack(own).mean(0)
    rows = []
    for parts in others:
        mean = torch.stack(parts).mean(0)
        noise = (parts[0] - parts[-1]).square().sum() / 4
        rows.append(torch.stack([(mean - mean_own).square().sum(), mean.square().sum(), noise]))
    distance, norm, noise = torch.stack(rows).double().unbind(1)
    return distance, norm, noise


def pair_statistics(
    rows: Iterable[tuple[Tensor, Tensor, Tensor]], among: list[int], count: int, halves: bool
) -> PairStatistics:
    """Rows of those asked to the table of all; NaN for the others. Noise is known from halves only."""
    tables = [torch.full((count, count), torch.nan, dtype=torch.float64) for _ in PairStatistics._fields]
    for table, column in zip(tables, zip(*rows, strict=True), strict=False):  # no column where nobody was asked
        table[torch.tensor(among)[:, None], torch.tensor(among)] = torch.stack(column)
    return PairStatistics(tables[0], tables[1], tables[2] if halves else None)


def flat(gradients: Iterable[Tensor]) -> Tensor:
    """One gradient as one vector, in at least single precision, so that squares do not overflow."""
    vector = torch.cat([gradient.flatten() for gradient in gradients])
    return vector.float() if vector.dtype in (torch.float16, torch.bfloat16) else vector
