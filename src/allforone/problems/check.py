"""Looks at a problem once, before anything is computed, and names the client whose data cannot be used."""

import warnings

import torch
from torch import Tensor, nn

from ..errors import InputError, blaming
from .base import Problem, Task
from .data import Batch, Finite, Population, draw

#: Samples of which any loss is defined.
ENOUGH = 64


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
            if isinstance(data, Population):
                continue
            try:
                if isinstance(data, Finite):
                    _check_values(data)
                batch = draw(data, 2, seed=0, client=number, step=0, purpose="check")
                if first is None:
                    first = batch
                _check_same_kind(batch, first)
                loss = _check_loss(problem, model, batch)
                if part == "train" and not loss.isfinite():  # two samples may be too few, as of a Cox loss
                    loss = _check_loss(
                        problem, model, draw(data, ENOUGH, seed=0, client=number, step=0, purpose="check")
                    )
                    if not loss.isfinite():
                        raise InputError(
                            f"the loss of the initial model is {loss.item()}; check the data and the model"
                        )
            except InputError as error:
                raise InputError(f"{where}, {part} data: {error}") from error


def _check_values(data: Finite) -> None:
    if len(data) == 0:
        raise InputError("no samples; give it some or leave this client out")
    if data.tensors is not None:
        for what, tensor in zip(("inputs", "targets"), data.tensors, strict=True):
            if tensor.is_floating_point() and not tensor.isfinite().all():
                sample = int((~tensor.isfinite()).reshape(len(tensor), -1).any(1).nonzero()[0])
                raise InputError(f"NaN or infinity in the {what} at sample {sample}; fill or drop such samples")


def _check_same_kind(batch: Batch, first: Batch) -> None:
    for what, ours, theirs in zip(("inputs", "targets"), batch, first, strict=True):
        if ours.shape[1:] != theirs.shape[1:] or ours.dtype != theirs.dtype:
            raise InputError(
                f"its {what} are {_kind(ours)} each, client 0's are {_kind(theirs)}: "
                "all clients must have tensors of the same shape and dtype"
            )


def _check_loss(task: Task, model: nn.Module, batch: Batch) -> Tensor:
    inputs, targets = batch
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    remedy = (
        "Class labels must be int64 (targets.long()), regression targets must have the dtype and shape of the "
        "model's output"
    )
    try:
        with torch.no_grad(), warnings.catch_warnings():
            # mse_loss only warns when shapes are broadcast, and then learns nonsense
            warnings.filterwarnings("error", message=".*target size.*")
            with blaming(
                f"loss(model(inputs), targets) fails with inputs {_kind(inputs)} and targets {_kind(targets)}", remedy
            ):
                output = model(inputs.clone())
                loss = task.loss(output, targets)
            if not isinstance(loss, Tensor) or loss.dim() != 0:
                raise InputError("the loss must be a scalar tensor, a mean over the batch: reduce it by .mean()")
    finally:
        for module, mode in modes:
            module.training = mode
    return loss


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape[1:])}"
