"""Interleaved timing: every contestant runs once per repetition, so that a slow moment of the machine hits them all."""

import statistics
import time
from collections.abc import Callable, Mapping

Work = Callable[[], object]


def seconds(works: Mapping[str, Work], repetitions: int = 5) -> dict[str, float]:
    """The median seconds of each work; one repetition beforehand warms up and is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for repetition in range(repetitions + 1):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            if repetition:
                taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in taken.items()}
