"""Which fast ways give the same gradients for this model and loss: tried, not declared by layer type.

They are tried on batches of the size that is used, with as many clients in a pass and as many models at once. The model
stands at a random point near its start, since a layer that starts at zero would hide what it does. What a model and a
loss do may depend on where they are, so in a run one model is compared with the plain way now and then.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from ..errors import within
from ..problems import Client, Loss
from ..problems.calling import called
from ..problems.data import Batch, Finite, draw, generator, seeded
from ..problems.tree import Tree, alike, clone, joined, leaves, length, mapped, numbers, rows, stacked
from .layout import FORMATS, arrange, arranged
from .models import Models, flat, row
from .passes import gradient_of, while_holding
from .sketch import sketch
from .vectorised import Vectorised

#: Samples that go through a model at once, where they may be split: bounds the activations.
PASSED_SAMPLES = 256
#: Updates between two comparisons with the plain way in a run.
AGAIN = 200
#: A share of its own length by which a gradient may differ in any case, and by which it may not in any case.
SAME, ROUNDING = 1e-4, 0.01
#: Times its rounding, as double precision tells it, by which a gradient may differ in a run.
ROUNDED = 30
#: Labels of which a sample each is tried, the rarest first.
LABELS = 64
#: Numbers in the inputs of all models and clients with which `vmap` is tried.
TRIED_NUMBERS = 2**20
#: Numbers that are compared at once.
PIECE = 2**20


class Trial:
    """A module in training mode, its loss, and as many batches of different clients as go through a model at once."""

    def __init__(
        self, module: nn.Module, loss: Loss, model: Models, trained: list[str], clients: Sequence[Client], size: int
    ) -> None:
        self.module, self.loss, self.trained, self.clients = module, loss, trained, clients
        in_memory = all(isinstance(c.train, Finite) and c.train.tensors is not None for c in clients)
        count = max(2, min(len(clients), PASSED_SAMPLES // size)) if in_memory else 2
        asked = [place * (len(clients) - 1) // (count - 1) for place in range(count)]
        self.batches = [self.batch(k, size, step) for step, k in enumerate(asked)]
        self.random = torch.Generator().manual_seed(0)
        self.start, self.model = model, self.near(model)

    def near(self, model: Models) -> Models:
        """The model at a random point nearby."""
        return {
            name: t + 0.1 * torch.randn(t.shape, generator=self.random, dtype=t.dtype) if name in self.trained else t
            for name, t in model.items()
        }

    def batch(self, client: int, size: int, step: int) -> Batch:
        with within(f"client {client}, train data"):
            return draw(self.clients[client].train, size, seed=0, client=client, step=step, purpose="try")

    def holds(self, attempt: Callable[["Trial"], bool]) -> bool:
        try:
            with seeded(generator("try")), warnings.catch_warnings():
                warnings.simplefilter("error")  # vmap warns where it would be slow
                return attempt(self)
        except Exception:  # whatever the user's model does when asked in this way, the plain way remains
            return False

    def output(self, inputs: Tree) -> Tree:
        return called(self.module, clone(inputs), {name: tensor.clone() for name, tensor in self.model.items()})

    def gradient(self, batch: Batch, model: Models | None = None) -> Models:
        given = self.model if model is None else model
        leaves = {name: tensor.clone().requires_grad_(name in self.trained) for name, tensor in given.items()}
        wanted = [leaves[name] for name in self.trained]

        def passes() -> tuple[Tensor, ...]:
            return gradient_of(self.loss(called(self.module, clone(batch[0])), batch[1]), wanted)

        return dict(zip(self.trained, while_holding(self.module, leaves, passes), strict=True))

    def one_of_each_label(self) -> Batch:
        """Samples that a loss may weigh differently: of every label one, and the first of every batch."""
        found = [rows(batch, slice(1)) for batch in self.batches]
        places: dict[int, tuple[int, Client]] = {}
        for client in self.clients:
            targets = client.train.tensors[1] if isinstance(client.train, Finite) and client.train.tensors else None
            if isinstance(targets, Tensor) and targets.dim() == 1 and targets.dtype == torch.int64:
                labels, counts = targets.unique(return_counts=True)
                for label, count in zip(labels.tolist(), counts.tolist(), strict=True):
                    before, owner = places.get(label, (0, client))
                    places[label] = before + count, owner
        for label, (_, owner) in sorted(places.items(), key=lambda item: item[1][0])[:LABELS]:
            assert isinstance(owner.train, Finite) and owner.train.tensors
            found.append(owner.train.take((owner.train.tensors[1] == label).nonzero()[0]))
        return joined(found)  # type: ignore[no-any-return]


@torch.no_grad()
def concatenates(trial: Trial) -> bool:
    """No layer mixes the samples of a batch."""
    together = trial.output(joined([x for x, _ in trial.batches]))
    apart = joined([trial.output(x) for x, _ in trial.batches])
    count = sum(map(length, trial.batches))
    return all(len(a) == len(b) == count and _close(a, b) for a, b in zip(leaves(together), leaves(apart), strict=True))


@torch.no_grad()
def splits(trial: Trial) -> bool:
    """The loss is a mean over samples, so a batch may pass in pieces, and batches of the same weights at once."""
    inputs, targets = trial.one_of_each_label()
    samples = trial.output(inputs)
    alone = [trial.loss(*rows((samples, targets), slice(i, i + 1))) for i in range(length(targets))]
    judged = joined([(trial.output(x), y) for x, y in trial.batches])
    ends = [0, *torch.tensor([length(batch) for batch in trial.batches]).cumsum(0).tolist()]
    ends.insert(1, (ends[1] + 1) // 2)  # of different size
    parts = [(b - a) / ends[-1] * trial.loss(*rows(judged, slice(a, b))) for a, b in pairwise(ends) if a < b]
    return _close(trial.loss(samples, targets), torch.stack(alone).mean()) and _close(
        trial.loss(*judged), torch.stack(parts).sum()
    )


def has_channels_last(trial: Trial) -> bool:
    """A convolutional network that gives the same with its images and filters stored channels-last."""
    batch = trial.batches[0]
    images = {x.dim() for x in leaves(batch[0])} & set(FORMATS)
    if not any(trial.model[name].dim() in images for name in trial.trained):
        return False
    plain = trial.gradient(batch)
    fast = trial.gradient(arranged(batch), {name: arrange(tensor) for name, tensor in trial.model.items()})
    a, b = (flat(gradient[name] for name in trial.trained).double() for gradient in (fast, plain))
    return bool((a - b).norm() <= ROUNDING * b.norm())


def vectorises(trial: Trial) -> bool:
    """`vmap` takes the model and the loss, and gives the same."""
    if not alike(trial.batches):
        return False
    count = len(trial.clients)
    width = max(2, min(len(trial.batches), TRIED_NUMBERS // (count * numbers(trial.batches[0][0]))))
    batches = trial.batches[:width]
    points = [trial.near(trial.start) for _ in range(max(count, width))]
    models = {name: torch.stack([point[name] for point in points]) for name in trial.start}
    fast = Vectorised(trial.module, trial.loss, trial.trained)
    return _mixes(trial, fast, models, batches) and _looks(trial, fast, models, batches)


def _mixes(trial: Trial, fast: Vectorised, models: Models, batches: list[Batch]) -> bool:
    """All models, each with all batches."""
    count, width = len(models[trial.trained[0]]), len(batches)
    weights = torch.rand(count, width, generator=trial.random, dtype=torch.float64)
    mixed, _ = fast.gradients(models, fast.plan(weights), stacked(batches))
    for m in {0, count - 1}:
        plain = [trial.gradient(batch, row(models, m)) for batch in batches]
        for name in trial.trained:
            expected = sum(float(weights[m, k]) * plain[k][name] for k in range(width))
            if not _close(mixed[name][m], torch.as_tensor(expected)):
                return False
    return True


def _looks(trial: Trial, fast: Vectorised, models: Models, batches: list[Batch]) -> bool:
    """Every batch, in halves, at as many models."""
    width, half = len(batches), max(1, length(batches[0]) // 2)
    parted = stacked([stacked([rows(batch, slice(half)), rows(batch, slice(-half, None))]) for batch in batches])
    some = {name: tensor[:width] for name, tensor in models.items()}
    size = sum(models[name][0].numel() for name in trial.trained)
    everyone = torch.arange(width)
    _, _, norm, *_ = fast.look(some, everyone, everyone.expand(width, -1), parted, sketch(size, 1))
    for k in range(width):
        halves = [trial.gradient(rows(parted, (k, part)), row(some, 0)) for part in (0, 1)]
        mean = torch.stack([flat(gradient.values()) for gradient in halves]).mean(0)
        if not _close(norm[0, k], mean.double().square().sum()):
            return False
    return True


def due(step: int, models: int) -> int | None:
    """Which of the models is compared with the plain way at this update, if any: they take turns."""
    return step // AGAIN % models if step % AGAIN == 0 and models else None


def turn(steps: range) -> int | None:
    """Whose turn it is in the first round that begins after so many updates; None in the others."""
    number = steps.start // AGAIN
    return number if not steps.start or number > (steps.start - len(steps)) // AGAIN else None


def strays(found: Tensor, plainly: Callable[[bool], tuple[Tensor, float]], eps: float) -> float | None:
    """By which share of its length what was found differs from what the plain way gives, where that is more than
    rounding; plainly(True) is the same in double precision, which tells how much that is."""
    plain, length = plainly(False)
    difference = _apart(plain, found)
    if difference <= SAME * length:
        return None
    try:
        rounding = _apart(plain, plainly(True)[0])
    except Exception:  # a user's model may know single precision only
        rounding = math.inf
    allowed = min(ROUNDED * rounding, (ROUNDING + 10 * eps) * length)
    return None if difference <= allowed else difference / length


def in_double(tree: Tree) -> Tree:
    return mapped(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor, tree)


def _apart(a: Tensor, b: Tensor) -> float:
    """‖a − b‖, piece by piece: of a large model each copy is large."""
    pieces = zip(a.split(PIECE), b.split(PIECE), strict=True)
    return math.sqrt(sum(float((x.cpu().double() - y.cpu().double()).square().sum()) for x, y in pieces))


def _close(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).abs().max() <= 1e-3 * b.abs().max())
