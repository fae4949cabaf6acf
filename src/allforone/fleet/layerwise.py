"""Clipped sums of gradients in a chain of layers, from what goes into each layer and what comes back to it.

The gradient of one sample at a full layer is an outer product: its norm is a product of norms, and the sum of clipped
ones a product of matrices, so that none of them is ever made. At a convolution it is a product with patches, where
`vmap` would make a slow convolution in groups.

A whole batch passes here, and no sample may have a part in what comes back to another. So that is not tried, but known:
of a layer by its type, of a loss since each sample has its own.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad, vmap

from ..problems import Loss
from ..problems.data import Batch
from ..problems.tree import Tree, mapped
from .models import Models

#: Layers that treat each number by itself.
POINTWISE: set[type[nn.Module]] = {
    nn.ReLU,
    nn.LeakyReLU,
    nn.ELU,
    nn.GELU,
    nn.SiLU,
    nn.Softplus,
    nn.Tanh,
    nn.Sigmoid,
    nn.Identity,
}
#: Layers that treat each sample by itself, with the dimensions that a batch of them has; None: any.
DIMENSIONS: dict[type[nn.Module], int | None] = {
    **dict.fromkeys(POINTWISE),
    **dict.fromkeys([nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d], 4),
    nn.Linear: 2,
    nn.Flatten: None,
}
#: Numbers in the patches of images that are held at once.
PATCHED_NUMBERS = 2**22

#: [b], the squared norms of single samples' gradients by a parameter; and from shares [b] to their sum, so weighted
Part = tuple[Tensor, Callable[[Tensor], Tensor]]


class Chain:
    """layers: each known, by what stands before the names of its parameters; trained: by what gradients are taken."""

    def __init__(self, layers: dict[str, nn.Module], loss: Loss, trained: list[str]) -> None:
        self.layers, self.loss, self.trained = layers, loss, trained

    @classmethod
    def of(cls, module: nn.Module, loss: Loss, trained: list[str]) -> "Chain | None":
        """None where samples might meet, or a parameter has a part elsewhere."""
        layers = dict(_layers(module, ""))
        named = [prefix + part for prefix, layer in layers.items() for part, _ in layer.named_parameters()]
        whole = named == [name for name, _ in module.named_parameters()]  # which has what is shared once only
        return cls(layers, loss, trained) if whole and all(map(_is_known, layers.values())) else None

    def clipped(self, model: Models, batch: Batch, clip: float) -> Models | None:
        """Σ_j g_j · min(1, clip/‖g_j‖) by what is trained; None if a layer might not take its input for a batch, or if
        one of them is not finite."""
        found = self._parts(model, *batch)
        if found is None:
            return None
        norm = torch.stack([squares for squares, _ in found.values()]).sum(0).sqrt()
        if not norm.isfinite().all():
            return None
        share = (clip / norm).clamp(max=1.0)
        return {name: found[name][1](share.to(model[name].dtype)).view_as(model[name]) for name in self.trained}

    def _parts(self, model: Models, x: Tree, targets: Tree) -> dict[str, Part] | None:
        met: list[tuple[str, nn.Module, Tensor, Tensor]] = []
        with torch.enable_grad():
            for prefix, layer in self.layers.items():
                if not isinstance(x, Tensor) or x.dim() != (DIMENSIONS[type(layer)] or x.dim()):
                    return None
                before, x = x, _called(layer, x, model, prefix)
                if isinstance(layer, nn.Linear | nn.Conv2d):
                    x = x if x.requires_grad else x.requires_grad_()
                    met.append((prefix, layer, before.detach(), x))
            if not isinstance(x, Tensor):
                return None
            backs = torch.autograd.grad(x, [made for *_, made in met], self._by_output(x.detach(), targets))
        found: dict[str, Part] = {}
        for (prefix, layer, given, _), back in zip(met, backs, strict=True):
            if prefix + "weight" in self.trained:
                found[prefix + "weight"] = _of_weight(layer, given, back)
            if prefix + "bias" in self.trained:
                sums = back.flatten(2).sum(2) if back.dim() > 2 else back
                found[prefix + "bias"] = _squares(sums), partial(torch.matmul, other=sums)
        return found

    def _by_output(self, output: Tensor, targets: Tree) -> Tensor:
        """[b, …], the gradient of each sample's loss by what the chain made of it."""
        if self.loss is F.cross_entropy and output.dim() == 2:
            output.requires_grad_()
            return torch.autograd.grad(F.cross_entropy(output, targets, reduction="sum"), output)[0]

        def loss(output: Tensor, targets: Tree) -> Tensor:
            return self.loss(output[None], mapped(lambda tensor: tensor[None], targets))

        found: Tensor = vmap(grad(loss))(output, targets)
        return found


def _layers(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    """Those that are called one after the other, with what stands before the names of their parameters."""
    if type(module) is not nn.Sequential or _is_hooked(module):
        yield prefix, module
        return
    for name, layer in module._modules.items():  # `named_children` leaves out what is called a second time
        assert layer is not None
        yield from _layers(layer, f"{prefix}{name}.")


def _is_known(layer: nn.Module) -> bool:
    if type(layer) not in DIMENSIONS or _is_hooked(layer):
        return False
    if isinstance(layer, nn.Flatten):
        return layer.start_dim == 1
    if isinstance(layer, nn.Conv2d):
        return layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return True


def _is_hooked(module: nn.Module) -> bool:
    return any(vars(module)[name] for name in vars(module) if name.endswith("_hooks"))


def _called(layer: nn.Module, x: Tensor, model: Models, prefix: str) -> Tensor:
    if isinstance(layer, nn.Linear | nn.Conv2d):
        weight, bias = model[prefix + "weight"], model.get(prefix + "bias")
        if isinstance(layer, nn.Linear):
            return F.linear(x, weight, bias)
        return F.conv2d(x, weight, bias, layer.stride, layer.padding, layer.dilation)
    return layer(x.clone() if getattr(layer, "inplace", False) else x)  # type: ignore[no-any-return]


def _of_weight(layer: nn.Module, given: Tensor, back: Tensor) -> Part:
    if not isinstance(layer, nn.Conv2d):
        return _squares(given) * _squares(back), lambda share: (share[:, None] * back).T @ given
    pieces = max(1, PATCHED_NUMBERS // (layer.weight[0].numel() * back[0, 0].numel()))
    each = torch.cat(
        [
            b @ F.unfold(x, layer.kernel_size, layer.dilation, layer.padding, layer.stride).mT  # type: ignore[arg-type]
            for x, b in zip(given.split(pieces), back.flatten(2).split(pieces), strict=True)
        ]
    )
    return _squares(each), lambda share: torch.tensordot(share, each, 1)


def _squares(rows: Tensor) -> Tensor:
    """[b], in at least single precision, so that they do not overflow."""
    flat = rows.flatten(1)
    return (flat.float() if flat.dtype in (torch.float16, torch.bfloat16) else flat).square().sum(1)
