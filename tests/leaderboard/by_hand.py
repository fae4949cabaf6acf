"""Runs with numbers written by hand."""

import polars

from allforone.runs import Comparison, FinishedRun
from allforone.runs.tables import InMemory

ACCURACY = {"accuracy": {"lower_is_better": False, "percent": True, "digits": 1}}


def run(name, seed, rounds, held=None, *, messages=0, metrics=ACCURACY, algorithm=None):
    """A run whose sites had these values after each round, and these losses on what was held out."""
    (metric,) = metrics
    frames = []
    for number, values in enumerate(rounds):
        n = len(values)
        columns = {"round": [number] * n, "client": [*range(n)], "loss": [1.0] * n, metric: values}
        columns |= {"samples": [16 * number] * n, "seconds": [0.5 * number] * n}
        columns |= {"messages": [messages] * n, "bytes": [None if messages is None else 10 * messages] * n}
        columns |= {} if held is None else {"held_out": held[number]}
        whole = dict.fromkeys(("round", "client", "samples", "messages", "bytes"), polars.Int64)
        frames.append(polars.DataFrame(columns, {key: whole.get(key, polars.Float64) for key in columns}))
    config = {"algorithm": {"name": algorithm or name}, "seed": seed, "metrics": metrics}
    clients = [{"name": None, "size": 10, "cluster": None}] * len(rounds[0])
    return FinishedRun(name, seed, polars.concat(frames), InMemory(), config, [10] * len(rounds[0]), clients)


def comparison(*runs):
    return Comparison("by hand", list(runs), None)
