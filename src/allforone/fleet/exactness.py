"""Which fast ways give the same gradients for this model and loss: tried on small batches, not declared by layer type.

The model stands at a random point near its start, since a layer that starts at zero would hide what it does.
"""

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from ..problems import Client, Loss
from ..problems.data import Batch, draw, generator, seeded
from .layout import arrange
from .models import Models
from .passes import gradient_of
from .vectorised import Vectorised


class Trial:
    """A module in training mode, its loss, and batches of two samples from the first and the last client."""

    def __init__(
        self, module: nn.Module, loss: Loss, model: Models, trained: list[str], clients: Sequence[Client]
    ) -> None:
        self.module, self.loss, self.trained, self.clients = module, loss, trained, clients
        self.pair = [self.batch(k, 2) for k in (0, len(clients) - 1)]
        random = torch.Generator().manual_seed(0)
        self.model = {
            name: t + 0.1 * torch.randn(t.shape, generator=random, dtype=t.dtype) if name in trained else t
            for name, t in model.items()
        }

    def batch(self, client: int, size: int) -> Batch:
        return draw(self.clients[client].train, size, seed=0, client=client, step=1, purpose="try")

    def holds(self, attempt: Callable[["Trial"], bool]) -> bool:
        try:
            with seeded(generator("try")), warnings.catch_warnings():
                warnings.simplefilter("error")  # vmap warns where it would be slow
                return attempt(self)
        except Exception:  # whatever the user's model does when asked in this way, the plain way remains
            return False

    def output(self, inputs: Tensor, model: Models | None = None) -> Tensor:
        copies = {name: tensor.clone() for name, tensor in (model or self.model).items()}
        return functional_call(self.module, copies, inputs.clone())  # type: ignore[no-any-return]

    def gradient(self, batch: Batch) -> Models:
        leaves = {name: tensor.clone().requires_grad_(name in self.trained) for name, tensor in self.model.items()}
        loss = self.loss(functional_call(self.module, leaves, batch[0].clone()), batch[1])
        return dict(zip(self.trained, gradient_of(loss, [leaves[name] for name in self.trained]), strict=True))


@torch.no_grad()
def concatenates(trial: Trial) -> bool:
    """No layer mixes the samples of a batch."""
    together = trial.output(torch.cat([x for x, _ in trial.pair]))
    apart = torch.cat([trial.output(x) for x, _ in trial.pair])
    return len(together) == sum(len(x) for x, _ in trial.pair) and _close(together, apart)


@torch.no_grad()
def splits(trial: Trial) -> bool:
    """The loss is a mean over samples, so a batch may pass in pieces."""
    some = range(0, len(trial.clients), -(-len(trial.clients) // 10))  # of many labels, should they weigh differently
    batches = [trial.batch(k, 3 + k % 2) for k in some] + [trial.batch(0, 1)]  # of different size
    outputs, targets = [trial.output(x) for x, _ in batches], [y for _, y in batches]
    whole = sum(len(output) for output in outputs)
    parts = [len(o) / whole * trial.loss(o, y) for o, y in zip(outputs, targets, strict=True)]
    return _close(trial.loss(torch.cat(outputs), torch.cat(targets)), torch.stack(parts).sum())


def has_channels_last(trial: Trial) -> bool:
    """A convolutional network that gives the same with its images and filters stored channels-last."""
    inputs, _ = trial.pair[0]
    if inputs.dim() not in (4, 5) or not any(trial.model[name].dim() == inputs.dim() for name in trial.trained):
        return False
    plain = trial.gradient(trial.pair[0])
    trial.model = {name: arrange(tensor) for name, tensor in trial.model.items()}
    fast = trial.gradient((arrange(inputs), trial.pair[0][1]))
    a, b = (torch.cat([gradient[name].flatten() for name in trial.trained]).double() for gradient in (fast, plain))
    return bool((a - b).norm() <= 0.01 * b.norm())  # through many layers, rounding alone comes near that


def vectorises(trial: Trial) -> bool:
    """`vmap` takes the model and the loss, and gives the same."""
    pair, model = trial.pair, trial.model
    if len({len(inputs) for inputs, _ in pair}) != 1:
        return False
    trained = {name: model[name][None] for name in trial.trained}
    fixed = {name: tensor[None] for name, tensor in model.items() if name not in trained}
    weights = torch.tensor([[0.25, 0.75]], dtype=model[trial.trained[0]].dtype)
    inputs, targets = (torch.stack([batch[part] for batch in pair])[None] for part in (0, 1))
    weighted = grad(Vectorised(trial.module, trial.loss, trial.trained).weighted_loss, has_aux=True)
    fast, _ = vmap(weighted)(trained, fixed, inputs, targets, weights)
    vmap(weighted, (0, 0, None, None, None))(trained, fixed, inputs[0].clone(), targets[0], weights[0])  # to compare
    plain = [trial.gradient(batch) for batch in pair]
    return all(_close(fast[name][0], 0.25 * plain[0][name] + 0.75 * plain[1][name]) for name in trial.trained)


def _close(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).abs().max() <= 1e-3 * b.abs().max())
