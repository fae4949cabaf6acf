"""What passes a batch through the model: one gradient at a time, as plainly as it can be written."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..errors import Diverged, blaming
from ..problems import Loss
from ..problems.data import Batch, generator
from .models import Models, row, stack, trained_names
from .workers import Workers


class Passes:
    """A module and its loss in training mode. `first` is a batch to try the layers on."""

    def __init__(self, module: nn.Module, loss: Loss, seed: int, first: Batch) -> None:
        self.module, self.loss, self.seed = module, loss, seed
        self.trained = trained_names(module)
        given = module.training  # layers that the user put to eval inside a model in training stay so: frozen
        self.modes = [layer.training or not given for layer in module.modules()]
        self.workers, self.drawing = Workers(module), Lock()
        self.draws, self.moves_buffers = self._try_layers(first)

    def gradient(
        self, model: Models, owner: int, client: int, batch: Batch, step: int, purpose: str = "update"
    ) -> tuple[Models, Models]:
        """g_client(θ) of one model, and the buffers after the pass."""
        inputs, targets = batch
        leaves = {name: tensor.detach().requires_grad_(name in self.trained) for name, tensor in model.items()}
        buffers = {name: tensor.clone() for name, tensor in model.items() if name not in self.trained}
        with self.training(self.module, client, step, purpose):
            loss = self.loss(functional_call(self.module, {**leaves, **buffers}, inputs.clone()), targets)
        if not loss.isfinite():
            raise Diverged(owner, client, step)
        gradient = torch.autograd.grad(loss, [leaves[name] for name in self.trained], materialize_grads=True)
        return dict(zip(self.trained, gradient, strict=True)), buffers

    @contextmanager
    def training(self, module: nn.Module, client: int, step: int, purpose: str = "update") -> Iterator[None]:
        """Train mode; layers that draw at random (dropout) draw by the batch's name, whoever computes it."""
        self.train_mode(module)
        with blaming(
            f"client {client}: the model or the loss fails on its batch of step {step}",
            "Look at its data, or try another batch size",
        ):
            if not self.draws:
                yield
                return
            with self.drawing, torch.random.fork_rng(devices=[]):  # such layers know one generator only, the global one
                torch.manual_seed(generator(self.seed, client, step, purpose, "layers").initial_seed())
                yield

    def train_mode(self, module: nn.Module | None = None) -> None:
        for layer, mode in zip((module or self.module).modules(), self.modes, strict=True):
            layer.training = mode

    @torch.no_grad()
    def _try_layers(self, first: Batch) -> tuple[bool, bool]:
        """Whether a forward pass draws at random (dropout), and whether it changes buffers (BatchNorm)."""
        model = row(stack(self.module, 1), 0)
        start = {name: tensor.clone() for name, tensor in model.items()}
        self.train_mode()
        remedy = f"batches have up to {len(first[0])} samples; BatchNorm needs at least 2, of every client"
        with torch.random.fork_rng(devices=[]), blaming("client 0: the model fails on a training batch", remedy):
            before, others = torch.get_rng_state(), (random.getstate(), repr(np.random.get_state()))
            functional_call(self.module, model, first[0])
            draws = not torch.equal(before, torch.get_rng_state())
            draws = draws or others != (random.getstate(), repr(np.random.get_state()))
        return draws, any(not torch.equal(start[name], model[name]) for name in model)


def owner_of(owners: Tensor | None, row: int, client: int) -> int:
    """Whom an error about this row names: its owner or, of nobody's model, the client that was asked."""
    return client if owners is None else int(owners[row])
