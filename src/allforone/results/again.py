"""A run carried out, once more with something changed, or from the models of an earlier one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..errors import InputError
from ..fleet import pick
from ..progress import progress_of_run
from ..runs import PYTHON, Callback, Given, Record, RunConfig, Start, execute, prepare
from .trained import Trained


def carry_out(
    config: RunConfig,
    given: Given,
    out: Path | None = None,
    *,
    resume: bool = False,
    progress: bool | None = None,
    callbacks: Sequence[Callback] = (),
) -> Trained:
    """Do a run, with progress."""
    run = prepare(config, given)
    advice = run.algorithm.advice(run.clients)
    with progress_of_run(run.config.rounds or 0, run.config.metrics, progress, advice) as on_round:
        result = execute(run, out, resume=resume, on_round=on_round, callbacks=callbacks)
    return Trained(**vars(result), given=given)


def again(
    result: Trained,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    progress: bool | None = None,
    **parts: Any,
) -> Trained:
    """The same run with some settings or parts changed."""
    changed = {"problem": {"name": PYTHON}, "identity": None, "metrics": None, **(settings or {})}
    config = RunConfig(**{**result.config.model_dump(), **changed})
    given = replace(result.given, **{"problem": result.problem, **parts})
    where = None if out is None else Path(out)
    if config.rounds != result.config.rounds or result.rounds == config.rounds:
        return carry_out(config, given, where, progress=progress)
    return carry_out(config, given, where, progress=progress, callbacks=[StopAfter(result.rounds)])


class StopAfter(Callback):
    """Ends a run where another was ended."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def on_round(self, round: Record) -> bool:
        return round.number >= self.rounds


def start_from(result: Trained, names: Sequence[str | None]) -> Start:
    """Each client's own model of an earlier run, by its name; by its number where all are called as they were."""
    told = f"the models of {result.config.title or result.problem.name} after {result.steps} updates"
    if list(names) == result.names:
        return Start(result.stacked, result.steps, told)
    if None in names or None in result.names or len({*names}) != len(names):
        raise InputError(
            f"models: they are of {len(result.names)} clients and now there are {len(names)}, not all of which have "
            "names of their own to tell whose is whose; give afo.Client(…, name=…)"
        )
    if missing := [str(name) for name in names if name not in result.names]:
        raise InputError(
            f"models: there is none for {', '.join(missing)}; a new site is added by result.join(client), which finds "
            "a model to start from"
        )
    rows = torch.tensor([result.names.index(name) for name in names])
    return Start(pick(result.stacked, rows), result.steps, told)
