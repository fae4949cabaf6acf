"""What happened in a run: the metrics of every round and client, and who listened to whom."""

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
}


class Round(NamedTuple):
    """One evaluated round; round 0 is the initial model and has no info."""

    number: int
    evaluation: Evaluation
    info: Info | None
    samples: Tensor
    seconds: float
    present: Tensor | None = None  #: [N], who took part; None is everybody

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
        present = [1] * n if self.present is None else self.present.long().tolist()
        return list(zip([self.number] * n, range(n), *listed, total, others, scale, present, self.samples.tolist(),
                        [self.seconds] * n, strict=True))


class History:
    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.weight_rounds: list[int] = []
        self._weights: list[Tensor] = []
        self._similarity: list[Tensor] = []

    @classmethod
    def restored(cls, metrics: polars.DataFrame, tensors: dict[str, Tensor], rounds: int) -> "History":
        history = cls()
        history.rows = metrics.rows()
        if tensors:
            kept = tensors["rounds"] <= rounds
            history.weight_rounds = tensors["rounds"][kept].tolist()
            history._weights = list(tensors["weights"][kept].double())
            history._similarity = list(tensors["similarity"][kept].double()) if "similarity" in tensors else []
        return history

    def add_info(self, number: int, info: Info) -> None:
        self.weight_rounds.append(number)
        self._weights.append(info.weights)
        if info.similarity is not None:
            self._similarity.append(info.similarity)

    def add(self, round: Round) -> None:
        self.rows.extend(round.lines())

    @property
    def weights(self) -> Tensor:
        """[rounds, N, N]"""
        return torch.stack(self._weights) if self._weights else torch.empty(0)

    @property
    def similarity(self) -> Tensor | None:
        return torch.stack(self._similarity) if self._similarity else None

    @property
    def metrics(self) -> polars.DataFrame:
        schema = {name: polars.Int64 if kind is int else polars.Float64 for name, kind in COLUMNS.items()}
        return polars.DataFrame(self.rows, schema=schema, orient="row")
