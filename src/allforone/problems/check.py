"""Looks at a problem once, before anything is computed, and names the client whose data cannot be used."""

import warnings

import torch
from torch import Tensor, nn

from ..errors import InputError
from .base import Client, Problem
from .data import Batch, Finite, draw


def check(problem: Problem, model: nn.Module) -> None:
    """Raise an InputError that names the client and the remedy, or return."""
    if not problem.clients:
        raise InputError("the problem has no clients: give at least one afo.Client(train, test)")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InputError("the model has no parameters to train")
    first: Batch | None = None
    for number, client in enumerate(problem.clients):
        where = f"client {number}" + (f" ({client.name})" if client.name else "")
        for part, data in (("train", client.train), ("test", client.test)):
            if isinstance(data, Finite):
                _check_values(data, f"{where}, {part} data")
        batch = draw(client.train, 2, seed=0, client=number, step=0, purpose="check")
        if first is None:
            first = batch
        _check_same_kind(batch, first, where)
        _check_loss(problem, model, client, batch, where)


def _check_values(data: Finite, where: str) -> None:
    if len(data) == 0:
        raise InputError(f"{where}: no samples; give it some or leave this client out")
    if data.tensors is not None:
        for what, tensor in zip(("inputs", "targets"), data.tensors, strict=True):
            if tensor.is_floating_point() and not tensor.isfinite().all():
                row = int((~tensor.isfinite()).flatten(1 if tensor.dim() > 1 else 0).reshape(len(tensor), -1).any(1)
                          .nonzero()[0])
                raise InputError(f"{where}: NaN or infinity in the {what} at sample {row}; fill or drop such samples")


def _check_same_kind(batch: Batch, first: Batch, where: str) -> None:
    for what, ours, theirs in zip(("inputs", "targets"), batch, first, strict=True):
        if ours.shape[1:] != theirs.shape[1:] or ours.dtype != theirs.dtype:
            raise InputError(
                f"{where}: its {what} are {_kind(ours)} each, client 0's are {_kind(theirs)}: "
                "all clients must have tensors of the same shape and dtype"
            )


def _check_loss(problem: Problem, model: nn.Module, client: Client, batch: Batch, where: str) -> None:
    inputs, targets = batch
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("error")  # mse_loss only warns when shapes are broadcast, and then learns nonsense
            loss = problem.loss(model(inputs), targets)
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(
            f"{where}: loss(model(inputs), targets) fails with inputs {_kind(inputs)} and targets {_kind(targets)}: "
            f"{reason.rstrip('.')}. Class labels must be int64 (targets.long()), "
            "regression targets must have the dtype and shape of the model's output"
        ) from error
    finally:
        model.train(was_training)
    if not isinstance(loss, Tensor) or loss.dim() != 0:
        raise InputError(f"{where}: the loss must be a scalar tensor, a mean over the batch: reduce it by .mean()")
    if not loss.isfinite():
        raise InputError(f"{where}: the loss of the initial model is {loss.item()}; check its data and the model")


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape[1:])}"
