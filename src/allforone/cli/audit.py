"""`allforone audit`: what a site has answered, summed up for whoever must answer for its data."""

from pathlib import Path
from typing import Annotated

import typer

from .screen import say, show


def audit(file: Annotated[Path, typer.Argument(help="The log that a site writes, one line for every answer.")]) -> None:
    """What has left a site: how often it was asked what, about whose models, and how much it answered.

    Example: allforone audit site/audit.jsonl
    """
    from ..machines.audit import read, summed
    from ..reports.table import Table, plain

    entries = read(file)
    if not entries:
        say(f"{file}: nothing was answered yet")
        return
    heads = ("question", "answers", "failed", "models of", "sent, numbers", "bytes", "samples")
    rows = [
        (
            kind.question,
            str(kind.answers),
            str(kind.failed),
            ", ".join(map(str, kind.models_of)) or "-",
            ", ".join(f"{what} {count:,}" for what, count in kind.sent.items()) or "-",
            f"{kind.bytes_out:,}",
            f"{kind.samples:,}",
        )
        for kind in summed(entries)
    ]
    show(Table(heads, plain(rows), f"{len(entries)} answers from {entries[0].time} to {entries[-1].time}"))
    say(
        f"In all {sum(entry.bytes_out for entry in entries):,} bytes left this site: numbers made of its samples, "
        "which tell something of them. Samples are counted each time they are used."
    )
    if spent := [entry.epsilon for entry in entries if entry.epsilon is not None]:
        say(f"Its answers were private; at the last of them an epsilon of {spent[-1]:.3g} was spent.")
