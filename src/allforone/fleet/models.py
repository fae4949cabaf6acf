"""Many models as one value: stacked tensors by name."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..errors import InputError
from .devices import double

#: M models, stacked: name → [M, *shape]. Holds parameters and buffers alike.
Models = dict[str, Tensor]


class MessageBytes(NamedTuple):
    """What a message weighs. Sketches, norms and losses are a few numbers beside it, and are not counted."""

    gradient: int  #: or a displacement: a number for each trained parameter
    model: int  #: the trained parameters and the buffers; the frozen ones are everybody's from the start

    @classmethod
    def of(cls, model: nn.Module, private: Collection[str] = ()) -> "MessageBytes":
        """Without what is private, by name."""
        trained = [p for name, p in model.named_parameters() if p.requires_grad and name not in private]
        buffers = [b for name, b in model.named_buffers() if name not in private]
        gradient, rest = (sum(t.numel() * t.element_size() for t in tensors) for tensors in (trained, buffers))
        return cls(gradient, gradient + rest)


def stack(model: nn.Module, copies: int) -> Models:
    """`copies` models that start from the same point."""
    return {name: tensor.expand(copies, *tensor.shape).clone() for name, tensor in _tensors(model).items()}


def load_row(model: nn.Module, models: Models, number: int) -> nn.Module:
    """`model` itself with the numbers of model `number` of the stack, which must have the very same tensors."""
    own, given = _tensors(model), row(models, number)
    missing, unknown = sorted(own.keys() - given.keys()), sorted(given.keys() - own.keys())
    other = [name for name in own if name in given and _kind(own[name]) != _kind(given[name])]
    told = [f"{what} {', '.join(names)}" for what, names in (("without", missing), ("with", unknown)) if names]
    told += [f"with {name} as {_kind(given[name])} in the place of {_kind(own[name])}" for name in other]
    if told:
        raise InputError(f"these weights are of another model, {' and '.join(told)}; use the one that was trained")
    for name, tensor in own.items():
        tensor.copy_(given[name])
    return model


def _tensors(model: nn.Module) -> Models:
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: tensor.detach() for name, tensor in tensors.items()}


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def row(models: Models, number: int) -> Models:
    """Model `number` of the stack, without the stack's dimension."""
    return {name: tensor[number] for name, tensor in models.items()}


def alone(models: Models, number: int) -> Models:
    """Model `number` in memory of its own. In a stack it is aligned by its place there, and what is computed with it
    may have other last bits."""
    return {name: tensor[number].clone() for name, tensor in models.items()}


def pick(models: Models, rows: Tensor) -> Models:
    """The models of these rows, as a stack."""
    return {name: tensor[rows] for name, tensor in models.items()}


def equal_rows(models: Models, mix: Tensor) -> list[list[int]]:
    """The rows in groups of the same model and weights: what is asked for one of them serves all."""
    begins = [tensor.reshape(len(mix), -1)[:, 0].tolist() for tensor in models.values() if tensor.numel()]
    groups: dict[tuple[float, ...], list[list[int]]] = {}  # by their weights and the first number of each tensor
    for m, weights in enumerate(mix.tolist()):
        alike = groups.setdefault((*weights, *(begin[m] for begin in begins)), [])
        same = (g for g in alike if all(torch.equal(tensor[g[0]], tensor[m]) for tensor in models.values()))
        if group := next(same, None):
            group.append(m)
        else:
            alike.append([m])
    return [group for alike in groups.values() for group in alike]


def mean(models: Models, weights: Tensor) -> Models:
    """The weighted mean of the models, as a stack of one; weights sum to one. Of counters and masks, the first's. A
    model without a weight is not read, whatever infinities it holds."""
    return {
        name: _mean(double(tensor), weights)[None].to(tensor.device, tensor.dtype)
        if tensor.is_floating_point()
        else tensor[:1].clone()
        for name, tensor in models.items()
    }


def _mean(rows: Tensor, weights: Tensor) -> Tensor:
    if (weights == 0).any():
        rows = where_rows(weights != 0, rows, torch.zeros((), dtype=rows.dtype))
    return torch.einsum("n,n...->...", weights.to(rows.device, rows.dtype), rows)


def combined(models: Models, weights: Tensor) -> Models:
    """Row i: Σ_k w_ik θ_k; weights [N, N], whose rows sum to one. A model that nobody gives a weight is not read.

    Counters stay each row's own, and what is the same in all stays as it is: frozen parameters do not drift, and a mask
    may hold infinities.
    """
    read = (weights != 0).any(0)
    return {
        name: _combined(tensor, weights, read) if tensor.is_floating_point() and _differ(tensor[read]) else tensor
        for name, tensor in models.items()
    }


def _differ(rows: Tensor) -> bool:
    return bool((rows != rows[:1]).any())


def _combined(tensor: Tensor, weights: Tensor, read: Tensor) -> Tensor:
    rows = where_rows(read, double(tensor), torch.zeros((), dtype=torch.float64))
    sums = torch.einsum("ik,k...->i...", weights.to(rows.device, rows.dtype), rows)
    return sums.to(tensor.device, tensor.dtype)


def shared(models: Models) -> Models:
    """One model to start from, as a stack of one: that which all of them are, else their mean."""
    if all(bool((tensor == tensor[:1]).all()) for tensor in models.values()):
        return pick(models, torch.tensor([0]))
    count = len(next(iter(models.values())))
    return mean(models, torch.full((count,), 1 / count))


def repeat(models: Models, copies: int) -> Models:
    """A stack of one, `copies` times."""
    return {name: tensor.expand(copies, *tensor.shape[1:]).clone() for name, tensor in models.items()}


def plus(gradients: Models, term: Models) -> Models:
    """The gradients with a term added to those it names; buffers pass unchanged."""
    return {name: tensor + term[name] if name in term else tensor for name, tensor in gradients.items()}


def by_row(numbers: Tensor, like: Tensor) -> Tensor:
    """[M] shaped so that it multiplies the rows of `like`."""
    return numbers.to(like.device, like.dtype).view(-1, *[1] * (like.dim() - 1))


def where_rows(rows: Tensor, these: Tensor, others: Tensor) -> Tensor:
    """These tensor's rows where `rows` [M] is true, the other's elsewhere."""
    there = rows.to(these.device).view(-1, *[1] * (these.dim() - 1))
    return torch.where(there, these, others.to(these.device))


def trained_names(model: nn.Module) -> list[str]:
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


def flat(gradients: Iterable[Tensor]) -> Tensor:
    """One gradient as one vector, in at least single precision, so that squares do not overflow."""
    vector = torch.cat([gradient.flatten() for gradient in gradients])
    return vector.float() if vector.dtype in (torch.float16, torch.bfloat16) else vector
