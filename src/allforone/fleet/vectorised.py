"""Small models all at once: one pass of `vmap` over all models and batches, where calls would cost more than sums."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from ..errors import Diverged
from ..problems import Loss
from ..problems.calling import called
from ..problems.data import Batch
from ..problems.tree import Tree, leaves, mapped, numbers, rows
from .models import Models
from .passes import owner_of
from .recorded import Recorded
from .sketch import Sketch

#: Numbers in the inputs that pass at once: they and what layers make of them are what a pass takes of memory.
PASSED_NUMBERS = 2**22
#: Numbers in the gradients that are held at once while comparing.
COMPARED_NUMBERS = 2**22


class Plan:
    """Which batches each model needs. A row that asks fewer clients than the longest repeats one, with weight 0.

    like: a tensor of the models, where their passes are.
    few_widths: round the length of the rows up to a power of two, where every other length costs a compilation.
    """

    def __init__(self, mix: Tensor, like: Tensor, few_widths: bool = False) -> None:
        self.asked = (mix != 0).any(0).nonzero().flatten().tolist()
        self.width = max(1, int((mix != 0).sum(1).max()))
        if few_widths:
            self.width = min(2 ** (self.width - 1).bit_length(), mix.shape[1])
        columns = mix.abs().topk(self.width, dim=1).indices  # all that have a weight, the largest first
        weights = mix.gather(1, columns)
        self.clients = torch.where(weights != 0, columns, columns[:, :1])
        place = torch.zeros(mix.shape[1], dtype=torch.long)
        place[self.asked] = torch.arange(len(self.asked))
        self.columns, self.weights = place[self.clients].to(like.device), weights.to(like)
        self.idle = (mix == 0).all(1)
        self.any_idle = bool(self.idle.any())


class OneEach:
    """The plan by which every model asks one batch: columns [M]."""

    def __init__(self, columns: Tensor, like: Tensor) -> None:
        self.columns, self.weights = columns[:, None].to(like.device), like.new_ones(len(columns), 1)


class Vectorised:
    """A module without buffers whose layers treat samples alone."""

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        trained: list[str],
        compiled: bool = False,
        cast: Callable[[Callable[[], Tensor]], Tensor] = lambda losses: losses(),
    ) -> None:
        self.module, self.loss, self.trained, self.compiled, self.cast = module, loss, trained, compiled, cast
        self.names = list(dict(module.named_parameters()))
        self.like = module.get_parameter(trained[0]).detach()
        self._gradients = Recorded(self._weighted, compiled)
        self._looks: dict[int, Recorded] = {}

    def plan(self, mix: Tensor) -> Plan:
        return Plan(mix, self.like, self.compiled)

    def one_each(self, columns: Tensor) -> OneEach:
        return OneEach(columns, self.like)

    def gradients(self, models: Models, plan: Plan | OneEach, batches: Batch) -> tuple[Models, Tensor]:
        """Σ_k mix[m, k] g_k(θ_m) for all m, and the losses; batches [asked, b, …] of the clients of the plan."""
        count, width = plan.columns.shape
        chunks = -(-count * width * numbers(rows(batches[0], 0)) // PASSED_NUMBERS)
        parts = []
        for some in torch.arange(count).tensor_split(chunks) if chunks > 1 else (slice(None),):
            tensors = (models[name][some] for name in self.names)
            parts.append(self._gradients(batches, plan.columns[some], plan.weights[some], *tensors))
        *found, losses = parts[0] if len(parts) == 1 else (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        gradient = dict(zip(self.trained, found, strict=True))
        if isinstance(plan, Plan) and plan.any_idle:
            for tensor in gradient.values():
                tensor[plan.idle] = 0
        return {name: gradient.get(name, models[name]) for name in self.names}, losses

    def _weighted(self, batches: Batch, columns: Tensor, weights: Tensor, *models: Tensor) -> tuple[Tensor, ...]:
        inputs, targets = rows(batches, columns)
        of_model = vmap(grad(self.weighted_loss, has_aux=True))
        gradient, losses = of_model(*self._apart(models), inputs, targets, weights)
        return *(gradient[name] for name in self.trained), losses

    def weighted_loss(
        self, trained: Models, fixed: Models, inputs: Tree, targets: Tree, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Σ_k weights[k] · loss on batch k, and the losses; one forward pass."""
        shape = leaves(inputs)[0].shape[:2]

        def of_each() -> Tensor:
            output = called(self.module, mapped(lambda x: x.flatten(0, 1), inputs), {**trained, **fixed})
            return vmap(self.loss)(mapped(lambda o: o.unflatten(0, shape), output), targets)

        losses = self.cast(of_each)
        return weights @ losses, losses

    def look(self, models: Models, own: Tensor, columns: Tensor, batch: Batch, sketch: Sketch) -> tuple[Tensor, ...]:
        """At M models, on the batches `columns` [M, c] of [clients, parts, b, …]: losses [M, c, parts], distance, norm
        and noise of the gradients, each [M, c], and the sketched gradients of every part, [M, c, parts, s].

        own: [M], which batches are the owner's.
        """
        if sketch.size not in self._looks:
            self._looks[sketch.size] = Recorded(partial(self._looked, sketch=sketch))
        parts = leaves(batch)[0].shape[1]
        size = sum(models[name][0].numel() for name in self.trained)
        chunk = max(1, COMPARED_NUMBERS // (columns.shape[1] * parts * size))
        own, columns, found = own.to(self.like.device), columns.to(self.like.device), []
        for some in torch.arange(len(own)).tensor_split(-(-len(own) // chunk)):
            tensors = (models[name][some] for name in self.names)
            found.append(self._looks[sketch.size](batch, own[some], columns[some], *tensors))
        return tuple(torch.cat(tables).cpu().double() for tables in zip(*found, strict=True))

    def _looked(
        self, batch: Batch, own: Tensor, columns: Tensor, *models: Tensor, sketch: Sketch
    ) -> tuple[Tensor, ...]:
        def loss(trained: Models, fixed: Models, x: Tree, y: Tree) -> tuple[Tensor, Tensor]:
            value = self.cast(lambda: self.loss(called(self.module, x, {**trained, **fixed}), y))
            return value, value

        of_part = vmap(grad(loss, has_aux=True), (None, None, 0, 0))
        of_model = vmap(of_part, (None, None, 0, 0))
        gradient, losses = vmap(of_model)(*self._apart(models), *rows(batch, columns))
        vectors = torch.cat([gradient[name].flatten(3) for name in self.trained], 3)  # [M, c, parts, P]
        if vectors.dtype in (torch.float16, torch.bfloat16):
            vectors = vectors.float()
        mean = vectors.mean(2)
        home = (columns == own[:, None]).to(mean.dtype)[:, None]  # a product in the place of an index, to be recorded
        distance = (mean - home @ mean).square().sum(2)
        noise = (vectors[:, :, 0] - vectors[:, :, -1]).square().sum(2) / 4
        return losses, distance, mean.square().sum(2), noise, sketch(vectors)

    def _apart(self, models: tuple[Tensor, ...]) -> tuple[Models, Models]:
        named = dict(zip(self.names, models, strict=True))
        return (
            {name: tensor for name, tensor in named.items() if name in self.trained},
            {name: tensor for name, tensor in named.items() if name not in self.trained},
        )


def check_losses(losses: list[Tensor], plan: Plan, steps: range, owners: Tensor | None) -> None:
    """Name the first step, model and client whose loss is not finite."""
    if torch.stack(losses).isfinite().all():
        return
    for step, loss in zip(steps, losses, strict=False):
        for m, j in (~loss.isfinite() & (plan.weights != 0)).nonzero().tolist():
            client = int(plan.clients[m, j])
            raise Diverged(owner_of(owners, m, client), client, step)
