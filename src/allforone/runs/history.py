"""What happened in a run: the metrics of every round and client, and who listened to whom."""

import math
from typing import Any, NamedTuple

import polars
import torch
from torch import Tensor

from ..algorithms import Info
from ..fleet import Evaluation

#: the columns of metrics.csv, with their types
COLUMNS: dict[str, type] = {
    "round": int,
    "client": int,
    "loss": float,  # of the client's own model on its own test data
    "accuracy": float,
    "excess_loss": float,  # loss above the least possible, where that is known
    "weight_sum": float,  # Σ_k α_ik
    "collaborators": int,  # other clients it listened to
    "step_scale": float,  # η_i/η of the step-size condition
    "present": int,  # 1 if it took part in the round
    "samples": int,  # drawn by the client so far, those for estimation included
    "seconds": float,  # of training so far, evaluation excluded
    "dropped": int,  # of its gradients so far, refused by the others: not finite or of the wrong size
    "gain": float,  # by how much collaboration lowers its loss on new data, where a guard looks
    "gain_margin": float,  # of the 95 % interval gain ± margin
    "alone": int,  # 1 if the guard gave it its local model
}


class Round(NamedTuple):
    """One evaluated round; round 0 is the initial model and has no info."""

    number: int
    evaluation: Evaluation
    info: Info | None
    samples: Tensor
    seconds: float
    present: Tensor | None = None  #: [N], who took part; None is everybody
    dropped: Tensor | None = None  #: [N], gradients refused so far, by sender

    def lines(self) -> list[tuple[Any, ...]]:
        """One line per client, in the order of COLUMNS."""
        n = len(self.samples)
        none: list[Any] = [None] * n
        listed = [none if tensor is None else tensor.tolist() for tensor in self.evaluation]
        total = others = scale = none
        if self.info is not None:
            weights = self.info.weights
            total, others = weights.sum(1).tolist(), ((weights != 0) & ~torch.eye(n, dtype=torch.bool)).sum(1).tolist()
            scale = [1.0] * n if self.info.scale is None else self.info.scale.tolist()
        verdict = self.info.verdict if self.info else None
        guard = (
            [none] * 3
            if verdict is None
            else [verdict.gain.tolist(), _finite(verdict.margin), verdict.alone.long().tolist()]
        )
        dropped = [0] * n if self.dropped is None else self.dropped.tolist()
        present = [1] * n if self.present is None else self.present.long().tolist()
        return list(
            zip(
                [self.number] * n,
                range(n),
                *listed,
                total,
                others,
                scale,
                present,
                self.samples.tolist(),
                [self.seconds] * n,
                dropped,
                *guard,
                strict=True,
            )
        )


def _finite(values: Tensor) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values.tolist()]


#: what is kept of every round: name → its type on disk
TABLES = {"weights": torch.float32, "similarity": torch.float32, "noise": torch.float16, "trust": torch.float16}


class History:
    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.weight_rounds: list[int] = []
        self._tables: dict[str, list[Tensor]] = {}
        self._present: list[Tensor] = []

    @classmethod
    def restored(cls, metrics: polars.DataFrame, tensors: dict[str, Tensor], rounds: int) -> "History":
        history = cls()
        history.rows = metrics.rows()
        if tensors:
            kept = tensors["rounds"] <= rounds
            history.weight_rounds = tensors["rounds"][kept].tolist()
            history._tables = {name: list(tensors[name][kept].double()) for name in TABLES if name in tensors}
            everybody = torch.ones(tensors["weights"].shape[:2], dtype=torch.bool)
            history._present = list(tensors.get("present", everybody)[kept])
        return history

    def add_info(self, number: int, info: Info, present: Tensor) -> None:
        """A round that tells nothing of a table (an older version, perhaps) has NaN there."""
        self.weight_rounds.append(number)
        self._present.append(present)
        for name in TABLES:
            table = getattr(info, name)
            if table is not None or name in self._tables:
                nothing = torch.full_like(info.weights, torch.nan)
                known = self._tables.setdefault(name, [])
                known.extend([nothing] * (len(self.weight_rounds) - 1 - len(known)))
                known.append(nothing if table is None else table)

    def add(self, round: Round) -> None:
        self.rows.extend(round.lines())

    @property
    def weights(self) -> Tensor:
        """[rounds, N, N]"""
        return torch.stack(self._tables["weights"]) if self._tables else torch.empty(0)

    def tensors(self) -> dict[str, Tensor]:
        """rounds [R], present [R, N] and each of TABLES that is known, [R, N, N]; nothing before the first round."""
        if not self.weight_rounds:
            return {}
        tables = {}
        for name, table in self._tables.items():
            kind = TABLES[name]
            tables[name] = torch.stack(table).clamp(max=torch.finfo(kind).max).to(kind)
        return {"rounds": torch.tensor(self.weight_rounds), "present": torch.stack(self._present), **tables}

    @property
    def metrics(self) -> polars.DataFrame:
        return polars.DataFrame(self.rows, schema=schema(), orient="row")


def schema() -> dict[str, Any]:
    return {name: polars.Int64 if kind is int else polars.Float64 for name, kind in COLUMNS.items()}


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
