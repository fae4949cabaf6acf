"""Independent passes on all cores: threads with one core each, which scale better than passes spread over cores.

Every thread has its own copy of the module, since a functional call puts parameters into it. The result does not
depend on the number of threads.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache
from queue import SimpleQueue
from typing import TypeVar

import torch
from torch import Tensor, nn

from .devices import CPU

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Workers:
    """`torch.get_num_threads()` of the caller says how many cores there are."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.copies: SimpleQueue[nn.Module] = SimpleQueue()
        self.made = 0

    def each(
        self,
        work: Callable[[nn.Module, Item], Answer],
        items: Iterable[Item],
        meanwhile: Callable[[], None] | None = None,
    ) -> list[Answer]:
        """work(module, item) for each item, in order. Few items come one after another, each on all cores.

        On a GPU they do too: its passes fill it, and threads would only wait for each other.
        `meanwhile` is done while the threads work; without threads it is left out.
        """
        items, cores = list(items), torch.get_num_threads()
        if cores == 1 or len(items) < 2 * cores or _on_a_gpu(self.module):
            return [work(self.module, item) for item in items]
        while self.made < cores:
            self.copies.put(deepcopy(self.module, {id(tensor): tensor for tensor in self._tensors()}))
            self.made += 1
        futures: list[Future[Answer]] = []
        with one_core():  # also here, since MKL knows one number for all threads
            try:
                futures.extend(_threads(cores).submit(self._work, work, item) for item in items)
                if meanwhile:
                    meanwhile()
                return [future.result() for future in futures]
            finally:
                for future in futures:
                    future.cancel()
                wait(futures)

    def _tensors(self) -> Iterator[Tensor]:
        """What the copies share: at each pass others stand in their place."""
        yield from self.module.parameters()
        yield from self.module.buffers()

    def _work(self, work: Callable[[nn.Module, Item], Answer], item: Item) -> Answer:
        module = self.copies.get()
        try:
            return work(module, item)
        finally:
            self.copies.put(module)


def _on_a_gpu(module: nn.Module) -> bool:
    return any(parameter.device != CPU for parameter in module.parameters())


@contextmanager
def one_core() -> Iterator[None]:
    """Small sums are slower on several cores, and far slower when another process wants one of them."""
    cores = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(cores)


@lru_cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, "allforone", initializer=torch.set_num_threads, initargs=(1,))
