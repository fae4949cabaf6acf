"""What the page holds of many clients: weights between clusters, and of each client its strongest partners."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..runs.tables import Snapshot
from .clusters import Blocks, Labels, weights_of
from .curves import Array
from .packing import FINE, NOT_KNOWN, packed
from .why import Rows, verdicts_of_pairs

#: Partners of a client that the page holds of a round, beside itself: those with the largest weights.
MOST_PARTNERS = 32


def shown_tables(names: Sequence[str]) -> list[str]:
    """Where the bias is known, similarity says nothing more."""
    return [name for name in names if name != "similarity" or "bias" not in names]


def frame_bytes(shot: Snapshot, names: Sequence[str]) -> int:
    """Of one round of a crowd, before base64."""
    slots = len(shot.present) * _slots([shot])
    return slots * (4 + sum(4 if name in FINE else 2 for name in shown_tables(names)))


def crowd_frames(
    shots: Sequence[Snapshot],
    found: Sequence[Labels],
    names: Sequence[str],
    truth: list[int] | None,
    threshold: float | None = None,
) -> dict[str, Any]:
    """Blocks of some rounds, by the clusters found in each and by the true ones; partners and tables are
    [rounds, N, slots], each client itself at slot 0."""
    blocks = {"found": [_shown(Blocks.of(labels), shot) for labels, shot in zip(found, shots, strict=True)]}
    if truth is not None:
        blocks["truth"] = [_shown(Blocks.of(truth), shot) for shot in shots]
    slots = _slots(shots)
    tables = [_strongest(shot, shown_tables(names), slots) for shot in shots]
    verdicts = np.stack([_verdicts(shot, table, threshold) for shot, table in zip(shots, tables, strict=True)])
    return {
        "verdicts": packed(verdicts, top=NOT_KNOWN - 1),
        "blocks": blocks,
        "partners": packed(np.stack([table["partners"] for table in tables]), top=NOT_KNOWN - 1),
        "together": {} if "bias" not in names else _together(shots),
        **{
            name: packed(np.stack([table[name] for table in tables]), coarse=name not in FINE)
            for name in shown_tables(names)
        },
    }


def _shown(blocks: Blocks, shot: Snapshot) -> dict[str, Any]:
    return {
        "labels": packed(blocks.labels, top=NOT_KNOWN - 1),
        "sizes": blocks.sizes,
        "rest": blocks.rest,
        "weights": packed(blocks.weights(shot)),
    }


def _slots(shots: Sequence[Snapshot]) -> int:
    """Places for each client itself and its partners."""
    rows = max(int(np.bincount(weights_of(shot).i).max()) for shot in shots)
    return min(1 + MOST_PARTNERS, rows)


def _strongest(shot: Snapshot, names: Sequence[str], slots: int) -> dict[str, Array]:
    """Partners and their values, [N, slots], by falling weight; an empty slot has weight 0, and NaN elsewhere."""
    n, (i, k, w) = len(shot.present), weights_of(shot)
    order = np.lexsort((k, np.where(i == k, -np.inf, -w), i))
    i, place = i[order], np.arange(len(i))
    slot = place - np.searchsorted(i, i)
    kept = slot < slots
    found = {}
    for name, values in {"partners": k, **{name: _values(shot, name) for name in names}}.items():
        table = np.full((n, slots), 0.0 if name == "weights" else np.nan)
        table[i[kept], slot[kept]] = values[order][kept]
        found[name] = table
    return found


def _verdicts(shot: Snapshot, table: dict[str, Array], threshold: float | None) -> Array:
    """[N, slots], why each of the strongest partners is used or not."""
    partners = table["partners"]
    unknown = np.full(partners.shape, np.nan)
    tables = {name: table.get(name, unknown) for name in ("weights", "similarity", "bias", "noise", "trust")}
    here = shot.present.numpy()
    there = np.where(np.isfinite(partners), here[np.nan_to_num(partners).astype(np.intp)], True).astype(bool)
    own = np.zeros(partners.shape, dtype=bool)
    own[:, 0] = True
    given = _given(shot) if "bias" in table else None
    return verdicts_of_pairs(Rows(**tables, own=own, here=here, there=there), threshold, given)


def _given(shot: Snapshot) -> Array:
    """[N], the weight that each client gave all others before trust cut it."""
    i, k, w = weights_of(shot)
    trust = np.nan_to_num(_values(shot, "trust"), nan=1.0)
    asked = np.where((i != k) & (w > 0), w / np.where(trust > 0, trust, 1), 0)
    return np.asarray(np.bincount(i, asked, len(shot.present)), dtype=np.float64)


def _values(shot: Snapshot, name: str) -> Array:
    return shot.values[name].numpy().astype(float) if name in shot.values else np.full(len(shot.pairs), np.nan)


def _together(shots: Sequence[Snapshot]) -> dict[str, Any]:
    """Of each client the noise that is left by all its partners."""
    left = []
    for shot in shots:
        i, _, w = weights_of(shot)
        left.append(np.bincount(i, np.nan_to_num(w**2 * _values(shot, "noise")), len(shot.present)))
    return {"left": packed(np.stack(left))}
