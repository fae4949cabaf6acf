"""Looks at a problem once, before anything is computed, and names the client whose data cannot be used."""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..errors import InputError, blaming, called, within
from . import calling
from .base import Problem, Task
from .data import Batch, Finite, Population, draw, first_not_finite
from .tree import clone, kind, named

#: Samples of which any loss is defined.
ENOUGH = 64

Ranges = dict[str, tuple[int, int]]  #: what → the least and the most that went through model and loss


def check(problem: Problem, model: nn.Module) -> None:
    """Raise an InputError that names the client and the remedy, or return."""
    if not problem.clients:
        raise InputError("the problem has no clients: give at least one afo.Client(train, test)")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InputError("the model has no parameters to train")
    first: Batch | None = None
    proven: Ranges = {}
    for number, client in enumerate(problem.clients):
        where = called(number, client.name)
        for part, data in (("train", client.train), ("test", client.test)):
            if data is None or isinstance(data, Population):
                continue
            with within(f"{where}, {part} data"), _judged(model):
                if isinstance(data, Finite):
                    _check_values(data)
                batch = draw(data, 2, seed=0, client=number, step=0, purpose="check")
                _check_samekind(batch, first or batch, isinstance(data, Finite) and data.ragged)
                output, loss = _check_loss(problem, model, batch)
                if part == "train" and not loss.isfinite():  # two samples may be too few, as of a Cox loss
                    enough = draw(data, ENOUGH, seed=0, client=number, step=0, purpose="check")
                    loss = _check_loss(problem, model, enough)[1]
                    if not loss.isfinite():
                        raise InputError(
                            f"the loss of the initial model is {loss.item()}; check the data and the model"
                        )
                if first is None:
                    _check_gradient(problem, model, batch)
                if first is None and isinstance(output, Tensor) and isinstance(batch[1], Tensor):
                    _check_mean(problem, output, batch[1])
                    _check_pairs(problem, output, batch[1])
                first = first or batch
                if isinstance(data, Finite):
                    _check_extremes(problem, model, data, proven)


def _check_values(data: Finite) -> None:
    if len(data) == 0:
        raise InputError("no samples; give it some or leave this client out")
    for what, tree in zip(("the inputs", "the targets"), data.tensors or (), strict=False):
        for name, tensor in named(tree, what):
            if (sample := first_not_finite(tensor)) is not None:
                raise InputError(f"NaN or infinity in {name} at sample {sample}; fill or drop such samples")


def _check_extremes(task: Task, model: nn.Module, data: Finite, proven: Ranges) -> None:
    """Labels, and numbers of words, are out of range at their ends; what an earlier client has is `proven`."""
    sides = zip(("input", "target"), (" up to", ""), data.tensors or (), strict=False)
    for what, tensor in ((name + more, t) for side, more, tree in sides for name, t in named(tree, side)):
        if tensor.dtype not in (torch.int64, torch.int32) or tensor.numel() == 0:
            continue
        flat = tensor.reshape(len(tensor), -1)
        lowest, highest = int(flat.min()), int(flat.max())
        least, most = proven.get(what, (highest + 1, highest))
        for value, sample in ((lowest, flat.amin(1).argmin()), (highest, flat.amax(1).argmax())):
            if not least <= value <= most:
                with within(f"sample {int(sample)}, {what} {value}"):
                    _check_loss(task, model, data.take(sample.expand(2)))
        proven[what] = min(least, lowest), max(most, highest)


def _check_samekind(batch: Batch, first: Batch, ragged: bool) -> None:
    for what, *both in zip(("inputs", "targets"), batch, first, strict=True):
        ours, theirs = (kind(tree, sizes=not ragged) for tree in both)
        if ours != theirs:
            raise InputError(
                f"its {what} are {ours} each, client 0's are {theirs}: "
                "all clients must have tensors of the same shape and dtype"
            )


def _check_loss(task: Task, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """The model's output and its loss."""
    inputs, targets = batch
    remedy = (
        "Class labels must be int64 (targets.long()), regression targets must have the dtype and shape of the "
        "model's output"
    )
    with warnings.catch_warnings():
        # mse_loss only warns when shapes are broadcast, and then learns nonsense
        warnings.filterwarnings("error", message=".*target size.*")
        with blaming(
            f"loss(model(inputs), targets) fails with inputs {kind(inputs)} and targets {kind(targets)}", remedy
        ):
            output = calling.called(model, clone(inputs))
            loss = task.loss(output, targets)
    if not isinstance(loss, Tensor) or loss.dim() != 0:
        raise InputError("the loss must be a scalar tensor, a mean over the batch: reduce it by .mean()")
    if not loss.is_floating_point():
        raise InputError(f"the loss is {str(loss.dtype).removeprefix('torch.')}: it must be a real number, as float32")
    if loss.is_sparse or loss.is_meta:
        raise InputError("the loss is a sparse or meta tensor: it must be an ordinary one")
    return output, loss


def _check_gradient(task: Task, model: nn.Module, batch: Batch) -> None:
    """Refuse a loss that does not depend on the model."""
    with torch.enable_grad():
        _, loss = _check_loss(task, model, batch)
        if not loss.requires_grad:
            raise InputError(
                "the loss does not depend on the model's parameters: it is detached from them; leave out .detach() "
                "and .item()"
            )


def _check_mean(task: Task, output: Tensor, targets: Tensor) -> None:
    """Refuse a loss that sums over the batch."""
    once, twice = (_loss(task, torch.cat([output] * n), torch.cat([targets] * n)) for n in (1, 2))
    if once and math.isfinite(once) and math.isclose(twice, 2 * once, rel_tol=1e-4):
        raise InputError(
            "the loss of a batch twice over is twice its loss, so it is a sum, by which larger batches weigh more: "
            "reduce it by .mean()"
        )


def _check_pairs(task: Task, output: Tensor, targets: Tensor) -> None:
    """Refuse a loss that broadcasts outputs [n, 1] and targets [n] to [n, n], where the order of targets is all one."""
    if output.shape == targets.shape or not output.numel() == targets.numel() == len(targets):
        return
    ours = torch.tensor([0.1, 0.2, 0.5, 0.9]).to(output.dtype).reshape(4, *output.shape[1:])
    theirs = torch.tensor([3, 0, 2, 1]) / (4 if targets.is_floating_point() else 1)
    theirs = theirs.to(targets.dtype).reshape(4, *targets.shape[1:])
    one, other = _loss(task, ours, theirs), _loss(task, ours, theirs.flip(0))
    if math.isclose(one, other, rel_tol=1e-5):
        raise InputError(
            f"the loss compares every output with every target, since outputs are {kind(output)} each and targets "
            f"{kind(targets)}: give the targets the outputs' shape, as by targets.reshape({[-1, *output.shape[1:]]})"
        )


def _loss(task: Task, output: Tensor, targets: Tensor) -> float:
    """NaN where it cannot be told."""
    try:
        return float(task.loss(output, targets))
    except Exception:  # what was tried need not make sense to the user's loss
        return math.nan


@contextmanager
def _judged(model: nn.Module) -> Iterator[None]:
    """In eval mode, and then as it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode
