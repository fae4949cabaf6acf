"""What the inputs and the targets of a batch may be: a tensor, or tuples, lists and dicts of such, nested."""

import copy
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError

Tree = Any  #: Tensor | tuple[Tree, …] | list[Tree] | Mapping[str, Tree]; a batch (inputs, targets) is one, too


def named(tree: Tree, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Its tensors, each by the way to it: inputs['age'][0]."""
    if isinstance(tree, Tensor):
        yield name, tree
    elif isinstance(tree, Mapping | list | tuple):
        for key, part in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
            yield from named(part, f"{name}[{key!r}]")
    else:
        raise InputError(f"{name or 'a part'} is of type {type(tree).__name__}: it must be a tensor")


def leaves(tree: Tree) -> list[Tensor]:
    return [tree] if isinstance(tree, Tensor) else [tensor for _, tensor in named(tree)]


def mapped(function: Callable[..., Any], *trees: Tree) -> Tree:
    """A tree like the first, with function(its tensor, that of the second at the same place, …)."""
    first = trees[0]
    if isinstance(first, Tensor):
        return function(*trees)
    if isinstance(first, Mapping):
        made: Any = copy.copy(first)  # also one of the user's own kind, as a model may give
        for key in first:
            made[key] = mapped(function, *(tree[key] for tree in trees))
        return made
    if isinstance(first, list | tuple):
        parts = [mapped(function, *several) for several in zip(*trees, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    raise TypeError(f"a {type(first).__name__} in the place of a tensor")


def refilled(tree: Tree, tensors: Iterable[Tensor]) -> Tree:
    """The same tree with other tensors."""
    given = iter(tensors)
    return mapped(lambda _: next(given), tree)


def structure(tree: Tree) -> Hashable:
    """What a tree is without its tensors."""
    if isinstance(tree, Tensor):
        return None
    if isinstance(tree, Mapping):
        return tuple((key, structure(part)) for key, part in tree.items())
    return type(tree).__name__, *map(structure, tree)


def length(tree: Tree) -> int:
    """How many samples it has."""
    return len(leaves(tree)[0])


def numbers(tree: Tree) -> int:
    return sum(tensor.numel() for tensor in leaves(tree))


def rows(tree: Tree, index: Any) -> Tree:
    return mapped(lambda tensor: tensor[index], tree)


def clone(tree: Tree) -> Tree:
    return mapped(Tensor.clone, tree)


def joined(trees: Sequence[Tree]) -> Tree:
    return mapped(lambda *tensors: torch.cat(tensors), *trees)


def stacked(trees: Sequence[Tree], dim: int = 0) -> Tree:
    return mapped(lambda *tensors: torch.stack(tensors, dim), *trees)


def split(tree: Tree, size: int | list[int]) -> list[Tree]:
    """Its samples in parts of this size, or of these."""
    parts = zip(*(tensor.split(size) for tensor in leaves(tree)), strict=True)
    return [refilled(tree, part) for part in parts]


def alike(trees: Iterable[Tree]) -> bool:
    """Whether they can be stacked."""
    return len({(structure(tree), *((t.shape, t.dtype) for t in leaves(tree))) for tree in trees}) <= 1


def kind(tree: Tree, sizes: bool = True) -> str:
    """What a sample of it is, such as "float32 [3, 8]"; without sizes, "float32 [_, _]"."""
    if isinstance(tree, Tensor):
        shape = [str(size) if sizes else "_" for size in tree.shape[1:]]
        return f"{str(tree.dtype).removeprefix('torch.')} [{', '.join(shape)}]"
    if isinstance(tree, Mapping):
        return f"{{{', '.join(f'{key}: {kind(part, sizes)}' for key, part in tree.items())}}}"
    return f"({', '.join(kind(part, sizes) for part in tree)})"
