"""Passes whose gradients are private: each sample's is clipped, their mean is given noise (DP-SGD)."""

import math
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from ..errors import Diverged, InputError, blaming
from ..problems import Loss, Precision
from ..problems.calling import called
from ..problems.data import Batch, generator, seeded
from ..problems.tree import clone, leaves, length, mapped, rows, split
from .layerwise import Chain
from .models import Models, row, stack
from .passes import Passes
from .privacy import Privacy, Question, require_accounting

#: Numbers in the gradients of single samples that are held at once.
SAMPLE_NUMBERS = 2**22
#: Samples that pass at once: they bound the activations.
PASSED_SAMPLES = 256
#: A share of its length by which a gradient of all samples at once may differ from one by one.
SAME = 1e-4

#: (module, trained, fixed, batch) → the gradient of each sample, [b, …] of every parameter
PerSample = Callable[[nn.Module, Models, Models, Batch], Models]


class PrivatePasses(Passes):
    """`gradient` is all that leaves a client, so it is all that is changed."""

    private = True

    def __init__(
        self, module: nn.Module, loss: Loss, seed: int, first: Batch, precision: Precision, privacy: Privacy
    ) -> None:
        require_accounting()
        super().__init__(module, loss, seed, first, None, precision)
        if self.moves_buffers:
            raise InputError(
                "privacy: the model has layers that mix the samples of a batch and remember them (BatchNorm), of which "
                "no sample's part can be bounded; use GroupNorm or LayerNorm"
            )
        self.privacy, self.noises = privacy, privacy.noises()
        self.question: Question | None = None  #: of now; None: about one model
        known = None if self.draws or precision != "float32" else Chain.of(module, loss, self.trained)
        at_once, self.chain = self._fast_ways(known, first)
        self.per_sample: PerSample = self._at_once if at_once else self._one_by_one

    def move(self, device: torch.device) -> None:
        super().move(device)
        if self.chain:
            self.chain.loss = self.loss

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
        """The mean of clipped gradients, with noise, and the buffers as they were."""
        held = {name: tensor.detach().clone() for name, tensor in model.items()}  # in a stack it is aligned otherwise
        trained = {name: held[name] for name in self.trained}
        if not all(tensor.isfinite().all() for tensor in trained.values()):  # of which the samples are not the cause
            raise Diverged(owner, client, step)
        fixed = {name: tensor for name, tensor in held.items() if name not in trained}
        module = module or self.module
        self.train_mode(module)
        remedy = "Look at its data: with privacy, each sample passes alone"
        with (
            blaming(f"client {client}: the model or the loss fails on its batch of step {step}", remedy),
            self._drawing_by(self.draws, client, step, purpose, "layers"),
        ):
            total = self._clipped_sum(module, trained, fixed, batch)
        pair = torch.tensor([-1 if owner is None else owner, client])
        models, size = int(self.question.of(*pair)) if self.question else 1, length(batch)
        scale = self.privacy.noise * self.privacy.clip * math.sqrt(models)
        if scale:
            sizes = [tensor.numel() for tensor in total.values()]
            names = sorted(held)  # whoever asks may send them in any order
            asked = (client, step, purpose, models, repr(names))  # with less noise it is another question
            drawn = self.noises.draw(sum(sizes), asked, [*(held[name] for name in names), *leaves(batch)])
            for tensor, part in zip(total.values(), drawn.split(sizes), strict=True):
                tensor += scale * part.to(tensor).reshape(tensor.shape)
        return {name: total[name] / size for name in self.trained}, fixed

    def _clipped_sum(self, module: nn.Module, trained: Models, fixed: Models, batch: Batch) -> Models:
        """Σ_j g_j · min(1, clip/‖g_j‖), in bounded memory."""
        numbers = sum(tensor.numel() for tensor in trained.values())
        total: Models = {}
        for some in split(batch, max(1, min(PASSED_SAMPLES, SAMPLE_NUMBERS // numbers))):
            given = clone(some)
            found = self.chain.clipped({**trained, **fixed}, given, self.privacy.clip) if self.chain else None
            if found is None:
                found = self._clipped(self.per_sample(module, trained, fixed, given))
            total = {name: total[name] + part if total else part for name, part in found.items()}
        return total

    def _clipped(self, each: Models) -> Models:
        """A sample whose gradient is not finite counts for nothing: that there is one would be told without noise."""
        squares = [gradient.flatten(1).float().square().sum(1) for gradient in each.values()]
        norm = torch.stack(squares).sum(0).sqrt()
        fine = norm.isfinite()
        share = (self.privacy.clip / norm).clamp(max=1.0)
        return {
            name: torch.tensordot(share[fine].to(gradient.dtype), gradient[fine], 1) for name, gradient in each.items()
        }

    def _loss_of_one(self, module: nn.Module, trained: Models, fixed: Models, sample: Batch) -> Tensor:
        """Of a batch of one sample."""
        return self.cast(lambda: self.loss(called(module, sample[0], {**trained, **fixed}), sample[1]))

    def _at_once(self, module: nn.Module, trained: Models, fixed: Models, batch: Batch) -> Models:
        def loss(trained: Models, inputs: object, targets: object) -> Tensor:
            one = mapped(lambda tensor: tensor[None], (inputs, targets))
            return self._loss_of_one(module, trained, fixed, one)

        found: Models = vmap(grad(loss), (None, 0, 0), randomness="different")(trained, *batch)
        return found

    def _one_by_one(self, module: nn.Module, trained: Models, fixed: Models, batch: Batch) -> Models:
        found = []
        for place in range(length(batch)):
            held = {name: tensor.clone().requires_grad_() for name, tensor in trained.items()}
            value = self._loss_of_one(module, held, fixed, rows(batch, slice(place, place + 1)))
            found.append(torch.autograd.grad(value, list(held.values()), materialize_grads=True))
        columns = zip(*found, strict=True)
        return {name: torch.stack(column).to_dense() for name, column in zip(trained, columns, strict=True)}

    def _fast_ways(self, chain: Chain | None, first: Batch) -> tuple[bool, Chain | None]:
        """Whether all samples at once give what each alone gives, of layers that draw whether they can be asked so; and
        the chain if it gives the same."""
        held = row(stack(self.module, 1), 0)
        trained = {name: held[name].clone() for name in self.trained}
        fixed = {name: tensor.clone() for name, tensor in held.items() if name not in trained}
        some = rows(clone(first), slice(2))
        self.train_mode()
        slow: Models | None = None if self.draws else self._one_by_one(self.module, trained, fixed, some)

        def holds(way: Callable[[], Models | None], expected: Models | None) -> bool:
            try:
                with seeded(generator("try")), warnings.catch_warnings():
                    warnings.simplefilter("error")  # vmap warns where it would be slow
                    found = way()
            except Exception:  # whatever the user's model does when asked in this way, one by one remains
                return False
            return found is not None and (expected is None or _same(found, expected))

        at_once = holds(lambda: self._at_once(self.module, trained, fixed, some), slow)
        if chain and slow:
            known = holds(lambda: chain.clipped({**trained, **fixed}, some, self.privacy.clip), self._clipped(slow))
            return at_once, chain if known else None
        return at_once, None


def _same(found: Models, expected: Models) -> bool:
    apart = sum(float((found[name] - expected[name]).square().sum()) for name in expected)
    return apart <= SAME**2 * sum(float(tensor.square().sum()) for tensor in expected.values())
