"""Functions of tensors, recorded as the plain operations they come to and replayed.

What `vmap` and `grad` do is the same at every step; for a small model, working it out costs several times the sums.
The replay does the same operations in the same order, so it gives the same numbers, bit by bit.
"""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from ..errors import blaming, notice
from ..problems.tree import Tree, leaves, refilled, structure

#: Calls between two looks at whether a recording still holds.
AGAIN = 200
#: Calls after which a recording, which costs as much as some fifty calls, is worth it.
EARNED = 30

#: Operations in a recording that are made machine code of: some hundred take seconds, a thousand minutes.
MOST_OPERATIONS = 400

Function = Callable[..., tuple[Tensor, ...]]
_SHAPES = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default, torch.ops.aten.expand.default)


class Recorded:
    """A function of trees of tensors alone, without a branch on their values; one recording for each combination of
    shapes.

    A function that depends on more (Python's state, a tensor that is exchanged) is found out, but late: now and then
    its result is compared with the recording's.

    compiled: make machine code of the recording, from the first call on; rounding may then differ.
    """

    def __init__(self, function: Function, compiled: bool = False) -> None:
        self.function, self.compiled = function, compiled
        self.calls: dict[Hashable, int] = {}
        self.recordings: dict[Hashable, Function | None] = {}  # None: it cannot be recorded

    def __call__(self, *given: Tree) -> tuple[Tensor, ...]:
        tensors = tuple(leaves(given))
        shapes = structure(given), tuple((t.shape, t.stride(), t.dtype) for t in tensors)

        def function(*flat: Tensor) -> tuple[Tensor, ...]:
            return self.function(*refilled(given, flat))

        with torch.no_grad():
            calls = self.calls[shapes] = self.calls.get(shapes, 0) + 1
            if shapes not in self.recordings:
                if not self.compiled and calls < EARNED:
                    return self.function(*given)
                self.recordings[shapes] = self._settle(function, tensors)
            recording = self.recordings[shapes]
            if recording is None:
                return self.function(*given)
            found = recording(*tensors)
            if calls % AGAIN == 0 and not self._holds(found, given):
                self.recordings[shapes] = None
                return self.function(*given)
            return found

    def _holds(self, found: tuple[Tensor, ...], given: tuple[Tree, ...]) -> bool:
        """Whether the function still gives what its recording gave: it may depend on more than its arguments."""
        close = partial(torch.allclose, rtol=1e-3, atol=1e-6, equal_nan=True) if self.compiled else torch.equal
        return all(close(a, b) for a, b in zip(found, self.function(*given), strict=True))

    def _settle(self, function: Function, tensors: tuple[Tensor, ...]) -> Function | None:
        """The recording, if there can be one and it gives the same."""
        try:
            graph = record(function, tensors)
        except Exception:  # a user's model may do what cannot be recorded
            return None
        same = all(torch.equal(a, b) for a, b in zip(graph(*tensors), function(*tensors), strict=True))
        if not same:
            return None
        return machine_code(graph, tensors) if self.compiled and self._compiles(graph) else graph.forward

    def _compiles(self, graph: fx.GraphModule) -> bool:
        count = len(graph.graph.nodes)
        if count > MOST_OPERATIONS:
            self.compiled = False
            notice(
                f"the model comes to {count} operations, which would take minutes to compile: they are replayed "
                "instead, as by the fleet stacked"
            )
        return self.compiled


def record(function: Function, tensors: tuple[Tensor, ...]) -> fx.GraphModule:
    with tracing(TracingContext(FakeTensorMode())):  # else one is made anew for every operation, which takes longer
        graph: fx.GraphModule = make_fx(function)(*tensors)
    for node in graph.graph.nodes:
        if node.target in _SHAPES and node.args[0].meta["tensor_meta"].shape == node.meta["tensor_meta"].shape:
            node.replace_all_uses_with(node.args[0])
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph


def machine_code(graph: fx.GraphModule, tensors: tuple[Tensor, ...]) -> Function:
    from torch import _inductor  # takes seconds to import

    with blaming("the model cannot be compiled", "Install a C++ compiler, or use the fleet `stacked`"):
        compiled: Any = _inductor.compile(graph, list(tensors))
    return lambda *given: tuple(compiled(*given))
