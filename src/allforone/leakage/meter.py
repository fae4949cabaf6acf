"""How much of a site's samples its answers tell: it is asked as in a run, and its answers are attacked."""

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import InputError, called
from ..fleet import Models, row
from ..fleet.in_process import checked_module
from ..fleet.models import flat, stack
from ..machines.site import Site
from ..machines.wire import decode, encode
from ..problems import Client, Problem
from ..problems.data import Batch, Finite, draw, generator, places
from ..problems.tree import Tree, leaves, length, mapped, rows
from .inversion import Known, Layers, by_matching, layers, read_classes, read_numbers, read_off

#: A sample is recovered exactly within this share of its norm, and a number among targets likewise.
EXACT = 1e-3

Change = Callable[[Models], Models]  #: of a gradient, before it leaves the site
Watch = Callable[[int, int], None]  #: steps done, and steps in all


class Leak(NamedTuple):
    """What was recovered from answers with one batch size."""

    batch_size: int
    attack: str  #: analytic or matching
    samples: int  #: that the answers were made of
    exact: int  #: how many of them were recovered
    correlation: float  #: of a sample with the recovered one that is most like it, mean; NaN of inputs of one number
    chance: float  #: the same of as many samples of the site that were not in the answer; NaN if there are none
    labels: int | None  #: how many targets were read off; None where this attack cannot
    whole: bool  #: whether the attack had the time that it wanted


def measure(
    problem: Problem,
    batch_sizes: Sequence[int] = (1, 8, 32),
    *,
    client: int | None = None,
    answers: int = 4,
    clip: float | None = None,
    noise: float = 0.0,
    change: Change | None = None,
    analytic: bool = False,
    steps: int = 300,
    seconds: float = 60.0,
    seed: int = 127,
    watch: Watch = lambda done, of: None,
) -> list[Leak]:
    """Attack a site's answers at the initial model, and compare what comes out with its samples.

    What is found is a lower bound of what can be found: each answer is attacked alone, and plainly.

    Args:
        problem: whose model, loss and data are used.
        batch_sizes: samples of an answer.
        client: who is attacked; by default the first with finite data.
        answers: how many are attacked of each batch size.
        clip, noise: in the place of its answers, what DP-SGD would send: the gradient of each sample shortened to the
            norm `clip`, and on their mean noise of standard deviation noise·clip/batch.
        change: what else is done to a gradient before it leaves.
        analytic: refuse to search, where the first layer does not tell.
        steps, seconds: of the search, for each answer and in all.
        seed: as of a run.
        watch: is told how far it is.

    Example:
        >>> import allforone as afo
        >>> leak, = afo.leakage.measure(afo.digits(), [1])
        >>> leak.exact, leak.samples, leak.labels
        (4, 4, 4)
    """
    number = attacked(problem.clients, client)
    _check(problem.clients[number], number, batch_sizes, answers, clip, noise, steps, seconds)
    module = checked_module(problem, seed)
    model = row(stack(module, 1), 0)
    begun, jobs, found = time.monotonic(), len(batch_sizes) * answers, []
    for place, size in enumerate(batch_sizes):
        site = Site(problem, problem.clients[number], number, seed=seed, batch_size=size, frank=True)
        attack = _Attack(site, model, size, analytic, steps, seed)
        tries = []
        for step in range(answers):
            job = place * answers + step
            left = begun + seconds - time.monotonic()
            sent = answer(site, model, step) if clip is None else as_dp_sgd(site, model, step, clip, noise)
            until = time.monotonic() + max(0.0, left) / (jobs - job)
            tries.append(attack.on(change(sent) if change else sent, step, until, _counting(watch, job, jobs, steps)))
            watch((job + 1) * steps, jobs * steps)
        found.append(attack.summed(tries, range(answers)))
    return found


def _counting(watch: Watch, job: int, jobs: int, steps: int) -> Callable[[int], None]:
    return lambda step: watch(job * steps + step, jobs * steps)


def answer(site: Site, model: Models, step: int) -> Models:
    """What the site sends when it is asked for a gradient, read from its bytes."""
    models = {name: tensor[None] for name, tensor in model.items()}
    asked = {"ask": "gradients", "round": 1, "step": step, "owners": [site.number], "models": models}
    return row(decode(site.answer(encode(asked)))["gradients"], 0)


def as_dp_sgd(site: Site, model: Models, step: int, clip: float, noise: float) -> Models:
    """What DP-SGD would send in its place: every sample's gradient shortened to `clip`, their mean, and noise."""
    batch = _drawn(site, step)
    size, total = length(batch), {name: torch.zeros_like(model[name]) for name in site.passes.trained}
    for sample in range(size):
        alone = rows(batch, slice(sample, sample + 1))
        gradient, _ = site.passes.gradient(model, site.number, site.number, alone, step)
        share = min(1.0, clip / max(float(flat(gradient.values()).norm()), 1e-12))
        for name, tensor in gradient.items():
            total[name] += share * tensor
    source = generator(site.seed, site.number, step, "noise")
    return {
        name: (tensor + noise * clip * torch.randn(tensor.shape, generator=source, dtype=tensor.dtype)) / size
        for name, tensor in total.items()
    }


class _Try(NamedTuple):
    inputs: Tensor  # [c, F], what was recovered
    targets: Tree | None
    whole: bool


class _Attack:
    """The attack that fits a site's model, and what it gave against the truth."""

    def __init__(self, site: Site, model: Models, size: int, analytic: bool, steps: int, seed: int) -> None:
        self.site, self.size, self.steps, self.seed = site, size, steps, seed
        nothing: Batch = mapped(torch.zeros_like, _drawn(site, 0))
        site.passes.train_mode()
        self.known = Known(site.passes.module, model, site.passes.trained, site.task.loss, nothing)
        self.layers: Layers = layers(self.known)
        if analytic and self.layers.first is None:
            raise InputError(
                "the model has no trained linear layer with a bias that is given the raw inputs, so nothing can be "
                "read off; leave out --analytic (analytic=True) to search"
            )

    def on(self, gradient: Models, step: int, until: float, watch: Callable[[int], None]) -> _Try:
        first, last = self.layers
        classes = None if last is None else read_classes(self.known, gradient, last, self.size, self.seed)
        if first is None:
            seed = self.seed + step
            found = by_matching(
                self.known, gradient, self.size, classes, steps=self.steps, until=until, seed=seed, watch=watch
            )
            return _Try(_flattened(found.inputs), found.targets, found.whole)
        samples = read_off(gradient, first, self.known.like[0])
        targets: Tree | None = classes
        if classes is None and last is not None and self.size == 1 and len(samples):
            targets = read_numbers(self.known, gradient, last, samples[0])
        return _Try(_flattened(samples), targets, True)

    def summed(self, tries: list[_Try], steps: range) -> Leak:
        truths = [_drawn(self.site, step) for step in steps]
        pairs = [(_flattened(truth[0]), found.inputs) for truth, found in zip(truths, tries, strict=True)]
        others = []
        if self.size < self.site.client.size:
            others = [(self._others(step), found.inputs) for step, found in zip(steps, tries, strict=True)]
        named = [_right(t[1], f.targets) for t, f in zip(truths, tries, strict=True) if f.targets is not None]
        return Leak(
            self.size,
            "matching" if self.layers.first is None else "analytic",
            sum(len(true) for true, _ in pairs),
            sum(_exact(true, found) for true, found in pairs),
            _correlation(pairs),
            _correlation(others),
            sum(named) if named else None,
            all(found.whole for found in tries),
        )

    def _others(self, step: int) -> Tensor:
        """As many samples of the site that were not in this answer, as far as there are."""
        site, data = self.site, self.site.client.train
        assert isinstance(data, Finite)
        used = places(len(data), self.size, range(step, step + 1), site.seed, site.number, "update")
        order = torch.randperm(len(data), generator=generator(self.seed, step, "others"))
        return _flattened(data.take(order[~torch.isin(order, used)][: self.size])[0])


def _drawn(site: Site, step: int) -> Batch:
    number = site.number
    return draw(site.client.train, site.batch_size, seed=site.seed, client=number, step=step, purpose="update")


def _flattened(inputs: Tree) -> Tensor:
    """[n, F], all numbers of each sample."""
    return torch.cat(
        [tensor.detach().double().reshape(len(tensor), math.prod(tensor.shape[1:])) for tensor in leaves(inputs)], 1
    )


def _correlation(pairs: list[tuple[Tensor, Tensor]]) -> float:
    """Of each true sample with the recovered one that is most like it, mean; where nothing was recovered, 0."""
    if not pairs or pairs[0][0].shape[1] < 2:
        return math.nan
    best = []
    for true, found in pairs:
        ours, theirs = (some - some.mean(1, keepdim=True) for some in (true, found))
        ours, theirs = (some / some.norm(dim=1, keepdim=True).clamp(min=1e-12) for some in (ours, theirs))
        best.append((ours @ theirs.T).amax(1) if len(found) else torch.zeros(len(true), dtype=torch.float64))
    return float(torch.cat(best).mean())


def _exact(true: Tensor, found: Tensor) -> int:
    """How many true samples are among those recovered."""
    if not len(found):
        return 0
    return int((torch.cdist(true, found).amin(1) <= EXACT * true.norm(dim=1)).sum())


def _right(true: Tree, found: Tree) -> int:
    """How many targets were read off, in whatever order."""
    if not leaves(true)[0].is_floating_point():
        classes = int(max(true.max(), found.max())) + 1
        ours, theirs = (torch.bincount(t, minlength=classes) for t in (true, found))
        return int(torch.minimum(ours, theirs).sum())
    ours, theirs = _flattened(true), _flattened(found)
    if ((ours == 0) | (ours == 1)).all():  # a yes or a no, as whoever knows the task knows
        theirs = (theirs > 0.5).double()
    return int(((ours[:, None] - theirs).abs() <= EXACT * (1 + ours[:, None].abs())).all(2).any(1).sum())


def attacked(clients: Sequence[Client], asked: int | None) -> int:
    """Who is attacked."""
    finite = [number for number, client in enumerate(clients) if not client.is_stream]
    if not finite:
        raise InputError("all clients draw from streams, which have no samples to protect; give a problem with data")
    if asked is None:
        return finite[0]
    if not 0 <= asked < len(clients):
        raise InputError(f"client {asked}: there are {len(clients)}, numbered from 0")
    if asked not in finite:
        raise InputError(
            f"{called(asked, clients[asked].name)} draws from a stream: give one with data, as {finite[0]}"
        )
    return asked


def _check(
    client: Client,
    number: int,
    sizes: Sequence[int],
    answers: int,
    clip: float | None,
    noise: float,
    steps: int,
    seconds: float,
) -> None:
    for size in sizes:
        if size < 1:
            raise InputError(f"batch size {size}: must be a whole number from 1")
        if size > client.size:
            who = called(number, client.name)
            raise InputError(f"batch size {size}: {who} has {client.size} samples; give at most as many")
    if not sizes:
        raise InputError("no batch size: give some, such as 1,8,32")
    for what, value in (("answers", answers), ("steps", steps)):
        if value < 1:
            raise InputError(f"{what} is {value}: must be at least 1")
    if not 0 < seconds < math.inf:
        raise InputError(f"seconds is {seconds:g}: must be above 0")
    if clip is not None and not 0 < clip < math.inf:
        raise InputError(f"clip is {clip:g}: must be above 0")
    if not 0 <= noise < math.inf:
        raise InputError(f"noise is {noise:g}: must be 0 or more")
    if noise and clip is None:
        raise InputError("noise is counted in the norm to which gradients are shortened: give clip, too, such as 1")
