"""What passes a batch through the model: one gradient at a time, as plainly as it can be written."""

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..errors import Diverged, blaming
from ..problems import Loss, Precision
from ..problems.calling import called
from ..problems.data import Batch, generator, seeded
from ..problems.tree import Tree, clone, length
from .devices import CPU
from .models import Models, row, stack, trained_names
from .workers import Workers

Found = TypeVar("Found")


class Passes:
    """A module and its loss in training mode. `first` is a batch to try the layers on; gradients are shortened to the
    norm `clip`."""

    private = False  #: whether a gradient is clipped sample by sample and given noise, so that it must be asked whole

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        seed: int,
        first: Batch,
        clip: float | None = None,
        precision: Precision = "float32",
    ) -> None:
        self.module, self.loss, self.seed, self.clip, self.device = module, loss, seed, clip, CPU
        self.precision = precision
        self.modes = training_modes(module)
        self.trained = trained_names(module)
        self.workers, self.drawing = Workers(module), RLock()
        self.draws = self.draws_again = self.draws_judged = self.moves_buffers = False
        with seeded(generator(seed, "try")):
            self._try_layers(first)

    def move(self, device: torch.device) -> None:
        """From now on, passes are computed there; what was tried, on the CPU."""
        if device == CPU:
            return
        self.device = device
        self.module.to(device)
        if isinstance(self.loss, nn.Module):  # it may have weights of classes
            self.loss = copy.deepcopy(self.loss).to(device)

    def cast(self, losses: Callable[[], Tensor]) -> Tensor:
        """losses(), of model and loss in the precision that was asked for; what comes of it is weighted in single
        precision. Nothing cast is kept: a model's parameters are others at each pass."""
        if self.precision == "float32":
            return losses()
        with torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False):
            return losses().float()

    @property
    def eps(self) -> float:
        """The rounding of what is computed."""
        own = self.module.get_parameter(self.trained[0]).dtype
        return torch.finfo(own if self.precision == "float32" else torch.bfloat16).eps

    def gradient(
        self,
        model: Models,
        owner: int,
        client: int,
        batch: Batch,
        step: int,
        purpose: str = "update",
        module: nn.Module | None = None,
    ) -> tuple[Models, Models]:
        """g_client(θ) of one model, and the buffers after the pass."""
        inputs, targets = batch
        leaves = {name: tensor.detach().requires_grad_(name in self.trained) for name, tensor in model.items()}
        buffers = {name: tensor.clone() for name, tensor in model.items() if name not in self.trained}

        def loss(output: Tree) -> Tensor:
            value = self.loss(output, targets)
            if not value.isfinite():
                raise Diverged(owner, client, step)
            return value

        held = {**leaves, **buffers}
        found = self.differentiate(module or self.module, held, clone(inputs), loss, client, step, purpose)
        return dict(zip(self.trained, self.clipped(found), strict=True)), buffers

    def clipped(self, gradient: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """As torch.nn.utils.clip_grad_norm_ would have it."""
        if self.clip is None:
            return gradient
        norm = torch.nn.utils.get_total_norm(gradient)
        share = (self.clip / (norm + 1e-6)).clamp(max=1.0)
        return tuple(part * share.to(part.dtype) for part in gradient)

    def differentiate(
        self,
        module: nn.Module,
        held: Models,
        inputs: Tree,
        loss: Callable[[Tree], Tensor],
        client: int,
        step: int,
        purpose: str,
    ) -> tuple[Tensor, ...]:
        """The gradient of loss(module(inputs)) by those of the tensors `held` that are trained. The module holds them
        until the end: activation checkpointing calls layers again in the backward pass."""
        wanted = [held[name] for name in self.trained]

        def passes() -> tuple[Tensor, ...]:
            with self._drawing_by(self.draws, client, step, purpose, "layers"):
                value = self.cast(lambda: loss(called(module, inputs)))
                if self.draws_again:
                    return gradient_of(value, wanted)
            return gradient_of(value, wanted)

        self.train_mode(module)
        with blaming(
            f"client {client}: the model or the loss fails on its batch of step {step}",
            "Look at its data, or try another batch size",
        ):
            return while_holding(module, held, passes)

    @contextmanager
    def judging(self, module: nn.Module, *name: int | str) -> Iterator[None]:
        """Eval mode."""
        module.eval()
        with self._drawing_by(self.draws_judged, *name, "judged"):
            yield

    @contextmanager
    def _drawing_by(self, draws: bool, *name: int | str) -> Iterator[None]:
        """What draws at random (dropout) draws by the batch's name, whoever computes it."""
        if not draws:
            yield
            return
        with self.drawing, seeded(generator(self.seed, *name), self.device):  # it knows the global generators only
            yield

    def train_mode(self, module: nn.Module | None = None) -> None:
        for layer, mode in zip((module or self.module).modules(), self.modes, strict=True):
            layer.training = mode

    def _try_layers(self, first: Batch) -> None:
        """Whether a pass draws at random (dropout), also when its layers are called again in the backward pass or when
        it is judged, and whether it changes buffers (BatchNorm)."""
        start = row(stack(self.module, 1), 0)
        held = {name: tensor.clone().requires_grad_(name in self.trained) for name, tensor in start.items()}
        self.train_mode()

        def passes() -> None:
            before = _random_states()
            value = self.cast(lambda: self.loss(called(self.module, clone(first[0])), first[1]))
            self.draws = before != _random_states()
            self.moves_buffers = any(not torch.equal(start[name], held[name]) for name in start)
            gradient_of(value, [held[name] for name in self.trained])

        remedy = f"batches have up to {length(first)} samples; BatchNorm needs at least 2, of every client"
        with blaming("client 0: the model fails on a training batch", remedy):
            while_holding(self.module, held, passes)
        if self.draws:
            try:
                with torch.autograd.graph.disable_saved_tensors_hooks("by which checkpointing works"):
                    called(self.module, clone(first[0]), held)
            except RuntimeError:
                self.draws_again = True
            self.module.eval()
            with torch.no_grad():
                before = _random_states()
                self.loss(called(self.module, clone(first[0]), start), first[1])
                self.draws_judged = before != _random_states()


def training_modes(module: nn.Module) -> list[bool]:
    """Which layers train, after the module's own `train()`. Those that the user put to eval inside a model in training
    stay so: frozen."""
    frozen = [module.training and not layer.training for layer in module.modules()]
    module.train()
    return [layer.training and not still for layer, still in zip(module.modules(), frozen, strict=True)]


class _Held(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, work: Callable[[], Any]) -> Any:
        return work()


def while_holding(module: nn.Module, tensors: Models, work: Callable[[], Found]) -> Found:
    """work(), while the module has these tensors in the place of its own."""
    inside = {f"module.{name}": tensor for name, tensor in tensors.items()}
    return functional_call(_Held(module), inside, (work,))  # type: ignore[no-any-return]


def gradient_of(loss: Tensor, wanted: list[Tensor]) -> tuple[Tensor, ...]:
    found = torch.autograd.grad(loss, wanted, materialize_grads=True)
    return tuple(gradient.to_dense() if gradient.is_sparse else gradient for gradient in found)  # of embeddings


def _random_states() -> tuple[object, ...]:
    return torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())


def owner_of(owners: Tensor | None, row: int, client: int) -> int:
    """Whom an error about this row names: its owner or, of nobody's model, the client that was asked."""
    return client if owners is None else int(owners[row])
