"""What happened in a run: the metrics of every round and client, and who listened to whom."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import polars
import torch
from torch import Tensor

from ..algorithms import Info
from ..fleet import Contact, Evaluation, Ledger
from ..problems.metrics import RESERVED
from .durable import Mark
from .tables import InMemory, Snapshot, Tables


class Record(NamedTuple):
    """One evaluated round; round 0 is the initial model and has no info."""

    number: int
    evaluation: Evaluation
    info: Info | None
    present: Tensor  #: [N], who took part
    ledger: Ledger
    seconds: float
    held: Tensor | None = None  #: [N], the loss on held-out data, where some are held out to watch the run

    def frame(self) -> polars.DataFrame:
        """One row for each client."""
        columns = self._columns()
        return polars.DataFrame(columns, schema=schema(columns))

    def _columns(self) -> dict[str, list[Any]]:
        n = len(self.present)
        none: list[Any] = [None] * n
        weights = None if self.info is None else self.info.weights
        scale = None if self.info is None else self.info.scale
        verdict = self.info.verdict if self.info else None
        others = ~torch.eye(n, dtype=torch.bool)
        return {
            "round": [self.number] * n,
            "client": list(range(n)),
            "loss": finite(self.evaluation.loss),  # of the client's own model on its own test data
            **{name: finite(values) for name, values in self.evaluation.metrics.items()},
            "excess_loss": none if self.evaluation.excess is None else finite(self.evaluation.excess),
            "weight_sum": none if weights is None else weights.sum(1).tolist(),  # Σ_k α_ik
            "collaborators": none if weights is None else ((weights != 0) & others).sum(1).tolist(),
            "step_scale": none if weights is None else [1.0] * n if scale is None else scale.tolist(),  # η_i/η
            "present": self.present.long().tolist(),
            "samples": self.ledger.samples.tolist(),  # drawn by the client so far, those for estimation included
            "seconds": [self.seconds] * n,  # of training so far, evaluation excluded
            "refused": self.ledger.refused.tolist(),  # of its gradients so far: not finite or of the wrong size
            "messages": [self.ledger.messages] * n,  # of all clients so far, had each been a machine of its own
            "bytes": [self.ledger.bytes] * n,  # that were in them
            "gain": none if verdict is None else verdict.gain.tolist(),  # of collaboration, on new data
            "gain_margin": none if verdict is None else finite(verdict.margin),  # of the 95 % interval gain ± margin
            "alone": none if verdict is None else verdict.alone.long().tolist(),  # 1 if given its local model
            "epsilon": none if self.ledger.epsilon is None else finite(self.ledger.epsilon),  # spent of its privacy
            **({} if self.held is None else {"held_out": finite(self.held)}),
        }


#: The columns that hold whole numbers.
WHOLE = ("round", "client", "collaborators", "present", "samples", "refused", "messages", "bytes", "alone")


def schema(names: Iterable[str]) -> dict[str, Any]:
    """The types of these columns."""
    return {name: polars.Int64 if name in WHOLE else polars.Float64 for name in names}


def finite(values: Tensor) -> list[float | None]:
    """None in the place of what is not known."""
    return [value if math.isfinite(value) else None for value in values.tolist()]


#: The columns of what machines took: sent and received are bytes, as the coordinator sees them.
CONTACTS = {
    "round": polars.Int64,
    "site": polars.String,
    "why": polars.String,
    "seconds": polars.Float64,
    "sent": polars.Int64,
    "received": polars.Int64,
}


def contact_frame(number: int, contacts: list[Contact]) -> polars.DataFrame:
    """One row for each machine: why it was absent in a round, or what it took to ask it."""
    rows = [{"round": number, **contact._asdict()} for contact in contacts]
    return polars.DataFrame(rows, schema=CONTACTS)


class History:
    """That of a run without a folder, in memory."""

    def __init__(self) -> None:
        self.tables: Tables = InMemory()
        self._frames: list[polars.DataFrame] = []
        self._contacts = [contact_frame(0, [])]

    def add_info(self, number: int, info: Info, present: Tensor) -> None:
        self.tables.append(Snapshot.of(number, info, present))

    def add(self, record: Record) -> None:
        self._frames.append(record.frame())

    def add_contacts(self, number: int, contacts: list[Contact]) -> None:
        self._contacts.append(contact_frame(number, contacts))

    @property
    def marks(self) -> Mapping[str, Mark]:
        """How far its files are written, where it has some."""
        return {}

    def flush(self) -> None:
        """See to it that they are on the disk."""

    @property
    def metrics(self) -> polars.DataFrame:
        """One row per round and client."""
        return polars.concat(self._frames)

    @property
    def sites(self) -> polars.DataFrame:
        """One row per round and machine; none where all clients were in one process."""
        return polars.concat(self._contacts)


def carried(metrics: polars.DataFrame) -> polars.DataFrame:
    """The same, with what is last known of a client in rounds in which it was not asked, where its model has stayed as
    it was: where it has drawn no samples since."""
    judged = [name for name in metrics.columns if name in ("loss", "excess_loss") or name not in RESERVED]
    known, last = polars.col(judged), polars.col(judged).forward_fill().over("client")
    asked = polars.col("present") == 1
    drawn = polars.when(asked).then("samples").forward_fill().over("client")
    still = ~asked & (polars.col("samples") == drawn)
    return metrics.sort("round", "client").with_columns(polars.when(still).then(last).otherwise(known).name.keep())


def verdicts(metrics: polars.DataFrame) -> polars.DataFrame:
    """What the guard said at the end, client by client, in shares of the local model's loss; empty if none watched.

    A difference g relative to the mean of both losses is the share 2g/(2 + g) of the local one.
    """
    last = metrics.filter(polars.col("round") == metrics["round"].max(), polars.col("gain").is_not_null())
    gain, margin = polars.col("gain"), polars.col("gain_margin")

    def share(value: polars.Expr, name: str) -> polars.Expr:
        bounded = value.clip(-1.99, 2)
        return (2 * bounded / (2 + bounded)).alias(name)

    return last.select(
        "client",
        share(gain, "gain"),
        share(gain - margin, "low"),
        share(gain + margin, "high"),
        polars.col("alone").cast(polars.Boolean),
    )
