"""What of a model stays with its client: which tensors these are, and how they move in a round."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from ..errors import InputError, short
from .models import Models
from .optimizer import Optimizer

#: The word for the parameters and buffers of all layers that normalise.
BATCHNORM = "batchnorm"
#: The word for their buffers alone, such as the running mean and variance.
STATISTICS = "statistics"
NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


def private_names(model: nn.Module, patterns: Sequence[str]) -> tuple[str, ...]:
    """The parameters and buffers that any of the patterns names, each by itself or by a module that it is in."""
    buffers = dict(model.named_buffers())
    names = [*dict(model.named_parameters()), *buffers]
    found: set[str] = set()
    for pattern in patterns:
        if pattern in (BATCHNORM, STATISTICS):
            layers = [place for place, layer in model.named_modules() if isinstance(layer, NORMS)]
            among = names if pattern == BATCHNORM else buffers
            matched = [name for name in among if name.rpartition(".")[0] in layers]
        else:
            matched = [name for name in names if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")]
        if not matched:
            raise InputError(f"private: nothing in the model is called '{short(pattern)}'; it has {', '.join(names)}")
        found.update(matched)
    return tuple(name for name in names if name in found)


class Privates:
    """The private parts of all clients, in the course of a round: each moves once at every update, by the gradient of
    its owner at its own model. Whatever else is asked at the same update is asked of them as they were before it.

    models: row i is client i's. trained: the names of all parameters of a model.
    """

    def __init__(self, models: Models, optimizer: Optimizer, trained: Sequence[str]) -> None:
        self.trained = [name for name in trained if name in models]
        self._optimizer = optimizer
        self._running = optimizer.start(models, self.trained) if self.trained else None  # buffers need none
        self.models = self._running.models if self._running else dict(models)
        self._moved = -1  # the last update at which they moved
        self._waiting: tuple[int, Models] | None = None
        self._still = False

    def move_at(self, step: int) -> bool:
        """Whether they have not moved yet at this update."""
        return step > self._moved and not self._still

    def at_rest(self) -> Models:
        """A gradient of 0, and buffers as they are."""
        return {name: torch.zeros_like(t) if name in self.trained else t.clone() for name, t in self.models.items()}

    def move(self, gradients: Models) -> None:
        """One update; a buffer takes the value given."""
        if self._running:
            self._running.apply(gradients)
        else:
            self.models.update(gradients)

    def move_after(self, step: int, gradients: Models) -> None:
        """Move as soon as another update is asked about, or this one is done."""
        self._moved, self._waiting = step, (step, gradients)

    def settle(self, step: int | None = None) -> None:
        """Move by what is left to be done of other updates than `step`."""
        if self._waiting and self._waiting[0] != step:
            gradients, self._waiting = self._waiting[1], None
            self.move(gradients)

    def stand_still(self) -> None:
        """From now on."""
        self._still = True

    def copy(self) -> Models:
        return {name: tensor.clone() for name, tensor in self.models.items()}

    def finish(self) -> tuple[Models, Optimizer]:
        """End the round: the parts, and their optimizer for the next one."""
        self.settle()
        return self._running.finish() if self._running else (self.models, self._optimizer)


def columns(models: Models, names: Sequence[str], kept: Sequence[str]) -> Tensor:
    """[P], which of the numbers of a gradient, by `names`, are those of `kept`."""
    return torch.cat([torch.full((models[name][0].numel(),), name in kept) for name in names])
