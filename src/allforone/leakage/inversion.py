"""Samples from a gradient: read off a first layer that is linear, or searched for until they give the same gradient."""

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError, blaming
from ..fleet import Models
from ..fleet.models import flat
from ..problems import Loss
from ..problems.calling import called
from ..problems.data import Batch, generator
from ..problems.tree import Tree, kind, leaves, mapped, refilled

#: A row whose bias has a gradient below this share of the largest saw no sample: what it would tell is rounding.
SILENT = 1e-6
#: Invented inputs over which the model's mean output is taken, where labels are read off.
INVENTED = 256
#: The first step of the search, in units of inputs that have a deviation of 1; it falls to nothing along a cosine.
STRIDE = 0.1


@dataclass(frozen=True)
class Known:
    """What whoever asks knows before the answer: model, loss, and of what kind a sample is, but no sample.

    Args:
        module: the model; its own numbers are not used.
        model: the numbers that were sent, of which those in `trained` have gradients.
        trained: their names, in order.
        loss: (output, target) → scalar, a mean over the batch.
        like: a batch of which only structure, shapes and dtypes are used.
    """

    module: nn.Module
    model: Models
    trained: list[str]
    loss: Loss
    like: Batch

    def output(self, inputs: Tree) -> Any:
        return called(self.module, inputs, {name: tensor.clone() for name, tensor in self.model.items()})

    def gradient(self, batch: Batch, graph: bool = False) -> list[Tensor]:
        """What a site with this batch would answer; with its graph, to be differentiated once more."""
        inputs, targets = batch
        held = {name: tensor.clone() for name, tensor in self.model.items()}
        wanted = [held[name].requires_grad_() for name in self.trained]
        value = self.loss(called(self.module, inputs, held), targets)
        return list(torch.autograd.grad(value, wanted, create_graph=graph, materialize_grads=True))

    def invented(self, count: int, seed: int) -> Tree:
        """Inputs of the right kind: standard normal numbers, and zeros in the place of words."""
        source = generator(seed, "invented")

        def invent(tensor: Tensor) -> Tensor:
            shape = (count, *tensor.shape[1:])
            if not tensor.is_floating_point():
                return tensor.new_zeros(shape)
            return torch.randn(shape, generator=source, dtype=tensor.dtype)

        return mapped(invent, self.like[0])


class Layers(NamedTuple):
    """Prefixes of the names of two linear layers with a bias, both trained; None where there is no such layer."""

    first: str | None  #: that is given the raw inputs
    last: str | None  #: whose output is the model's


def layers(known: Known) -> Layers:
    """Which layers of a model tell samples and labels, seen in a pass over invented inputs."""
    inputs = known.invented(2, 0)
    seen: dict[str, list[tuple[Tensor, Tensor]]] = {}
    module = copy.deepcopy(known.module).eval()
    for name, layer in module.named_modules():
        prefix = f"{name}." if name else ""
        if isinstance(layer, nn.Linear) and {f"{prefix}weight", f"{prefix}bias"} <= {*known.trained}:
            layer.register_forward_hook(
                lambda _, given, made, prefix=prefix: seen.setdefault(prefix, []).append((given[0], made))
            )
    with torch.no_grad(), blaming("the model fails on invented inputs"):
        output = called(module, inputs)
    once = {prefix: passes[0] for prefix, passes in seen.items() if len(passes) == 1}
    raw = inputs.flatten(1) if isinstance(inputs, Tensor) and inputs.is_floating_point() else None
    first = [p for p, (given, _) in once.items() if raw is not None and given.dim() == 2 and torch.equal(given, raw)]
    last = [p for p, (_, made) in once.items() if isinstance(output, Tensor) and torch.equal(made, output)]
    return Layers(first[0] if first else None, last[-1] if last else None)


def read_off(gradient: Models, first: str, like: Tensor) -> Tensor:
    """[c, …], what every row of the first layer tells, the loudest first: weight gradient over bias gradient.

    Of row j these are Σ_s d_sj x_s and Σ_s d_sj, where d_sj is what sample s makes of it. So the quotient is a weighted
    mean of the samples that the row saw, and where it saw one, that sample.
    """
    weight, bias = gradient[f"{first}weight"].double(), gradient[f"{first}bias"].double()
    order = bias.abs().argsort(descending=True)
    told = order[bias[order].abs() > SILENT * bias.abs().max()]
    return (weight[told] / bias[told, None]).reshape(-1, *like.shape[1:])


def read_classes(known: Known, gradient: Models, last: str, size: int, seed: int) -> Tensor | None:
    """[size], the classes of a batch in any order: by cross entropy the last layer's bias has the gradient
    mean(softmax) − (share of each class), and the model says about what its softmax is."""
    targets = known.like[1]
    if not isinstance(targets, Tensor) or targets.is_floating_point() or targets.dim() != 1:
        return None
    with torch.no_grad():
        expected = known.output(known.invented(INVENTED, seed)).softmax(1).mean(0)
    left = size * (expected - gradient[f"{last}bias"]).double()
    found = []
    for _ in range(size):
        found.append(int(left.argmax()))
        left[found[-1]] -= 1
    return torch.tensor(found)


def read_numbers(known: Known, gradient: Models, last: str, sample: Tensor) -> Tensor | None:
    """The target of one known sample, where the bias's gradient is a line in it, as of squared error and of cross
    entropy of two classes: two targets that are tried give the line."""
    like = known.like[1]
    if not isinstance(like, Tensor) or not like.is_floating_point():
        return None
    inputs = sample.to(leaves(known.like[0])[0].dtype)[None]
    place = known.trained.index(f"{last}bias")
    zero, one = (known.gradient((inputs, torch.full_like(like[:1], y)))[place] for y in (0.0, 1.0))
    told = gradient[f"{last}bias"]
    return ((told - zero) / (one - zero)).reshape(like[:1].shape) if zero.numel() == like[:1].numel() else None


class Searched(NamedTuple):
    """Where a search ended."""

    inputs: Tree
    targets: Tree
    whole: bool  #: whether it did all of its steps, and did not run out of time


def by_matching(
    known: Known,
    gradient: Models,
    size: int,
    classes: Tensor | None,
    *,
    steps: int,
    until: float,
    seed: int,
    watch: Callable[[int], None] = lambda step: None,
) -> Searched:
    """Inputs, and targets where `classes` are not known, whose gradient points the way of the given one: Adam on the
    cosine distance from a random start, until `time.monotonic()` is `until`. The best of the way is given."""
    inputs = known.invented(size, seed)
    targets = mapped(lambda t: t.new_zeros((size, *t.shape[1:])), known.like[1]) if classes is None else classes
    searched = [*leaves(inputs), *(leaves(targets) if classes is None else ())]
    if not all(tensor.is_floating_point() for tensor in searched):
        raise InputError(
            f"its samples are {kind(known.like[0])} with targets {kind(known.like[1])}: the search needs real "
            "numbers, or classes that a last linear layer tells"
        )
    for tensor in searched:
        tensor.requires_grad_()
    goal = flat(gradient[name] for name in known.trained)
    adam = torch.optim.Adam(searched, lr=STRIDE)
    falling = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: (1 + math.cos(math.pi * step / steps)) / 2)
    nearest, best, done = math.inf, [tensor.detach().clone() for tensor in searched], 0
    while done < steps and (done == 0 or time.monotonic() < until):
        with blaming("the gradient of the model cannot be differentiated once more, as the search needs it"):
            found = flat(known.gradient((inputs, targets), graph=True))
            distance = 1 - F.cosine_similarity(found, goal, 0)
            slopes = torch.autograd.grad(distance, searched, materialize_grads=True)
        if distance.item() < nearest:
            nearest, best = distance.item(), [tensor.detach().clone() for tensor in searched]
        for tensor, slope in zip(searched, slopes, strict=True):
            tensor.grad = slope.nan_to_num()
        adam.step()
        falling.step()
        done += 1
        watch(done)
    count = len(leaves(inputs))
    ended = refilled(targets, best[count:]) if classes is None else classes
    return Searched(refilled(inputs, best[:count]), ended, done == steps)
