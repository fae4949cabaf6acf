"""Clusters in the weights, and the weights between them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..runs.tables import Snapshot, Tables
from .curves import Array

Labels = npt.NDArray[np.intp]

#: A partner with less than this share of a client's own weight counts as none.
LEAST_CLOSE = 0.05
#: Rounds before, whose weights count too when clusters are found: those of one round alone are noisy.
BEFORE = 4
#: Blocks that a heat map or graph shows at most; smaller clusters are then put together.
MOST_BLOCKS = 40


class Pairs(NamedTuple):
    """The weights of a round, or a mean of some: client i listened to client k with weight w."""

    i: Labels
    k: Labels
    w: Array


def weights_of(shot: Snapshot) -> Pairs:
    i, k = np.divmod(shot.pairs.numpy().astype(np.intp), len(shot.present))
    return Pairs(i, k, shot.values["weights"].numpy().astype(float))


def mean_weights(shots: Sequence[Snapshot]) -> Any:
    """The mean of the weights over rounds, each pair over those in which both were there; [N, N], sparse."""
    from scipy.sparse import coo_array  # type: ignore[import-untyped]  # slow to import

    n, each = len(shots[0].present), [weights_of(shot) for shot in shots]
    i, k, w = (np.concatenate(parts) for parts in zip(*each, strict=True))
    total = coo_array((w, (i, k)), shape=(n, n)).tocsr().tocoo()  # adds up
    there = np.stack([shot.present.numpy() for shot in shots])
    met = sum((here[total.row] & here[total.col]).astype(float) for here in there)
    return coo_array((np.where(met > 0, total.data / np.maximum(met, 1), 0), (total.row, total.col)), shape=(n, n))


def find_clusters(weights: Any) -> Labels:
    """Join the two closest groups again and again; of all partitions on the way, that of best modularity.

    Closeness is how much two use each other, next to how much each uses itself; of groups, its mean over pairs,
    which is average linkage. Clusters are numbered by their first members.
    """
    from scipy.cluster.hierarchy import linkage  # type: ignore[import-untyped]
    from scipy.spatial.distance import squareform  # type: ignore[import-untyped]

    n, own = weights.shape[0], weights.diagonal()
    if n == 1:
        return np.zeros(1, np.intp)
    share = np.divide(weights.data, own[weights.row], out=np.zeros(len(weights.data)), where=own[weights.row] > 0)
    close = np.zeros((n, n))
    close[weights.row, weights.col] = np.where(share >= LEAST_CLOSE, np.minimum(share, 1), 0) / 2
    close += close.T
    np.fill_diagonal(close, 0)
    total, degree = close.sum(), close.sum(1).tolist()
    members = [[i] for i in range(n)]
    joined, best, quality, highest = np.arange(n), 0, 0.0, 0.0
    merges = linkage(squareform(1 - close, checks=False), "average") if total else []
    for done, (a, b, distance, _) in enumerate(merges, 1):
        if distance >= 1:  # nothing is between them
            break
        a, b = int(a), int(b)
        between = (1 - distance) * len(members[a]) * len(members[b])
        quality += 2 * between / total - 2 * degree[a] * degree[b] / total**2
        members.append(members[a] + members[b])
        degree.append(degree[a] + degree[b])
        if quality > highest + 1e-9:
            best, highest = done, quality
    for group in members[n : n + best]:  # later ones hold earlier ones
        joined[group] = min(group)
    return np.unique(joined, return_inverse=True)[1]


def clusters_at(tables: Tables, place: int) -> Labels:
    """[N], the clusters of a round, from it and the few before."""
    return find_clusters(mean_weights([tables[at] for at in range(max(0, place - BEFORE), place + 1)]))


def clusters_by_round(tables: Tables, places: Sequence[int]) -> Any:
    """[rounds, N], the clusters of each of some rounds."""
    return np.stack([clusters_at(tables, place) for place in places])


def found_clusters(tables: Tables, names: Sequence[str | None], round: int | None = None) -> list[list[str]]:
    """The clusters of a round, by default the last, each as the names of its members, or their numbers."""
    if not len(tables):
        raise InputError("no round is done yet")
    labels = clusters_at(tables, place_of(tables.rounds, round))
    called = [name or str(number) for number, name in enumerate(names)]
    return [[called[k] for k in np.flatnonzero(labels == label)] for label in range(int(labels.max()) + 1)]


def place_of(rounds: Sequence[int], round: int | None) -> int:
    """Where a round stands among those recorded."""
    if round is None:
        return len(rounds) - 1
    if round not in rounds:
        raise InputError(f"round {round}: the run has rounds {rounds[0]} to {rounds[-1]}")
    return list(rounds).index(round)


class Blocks(NamedTuple):
    """Clusters as they are shown: the smallest of very many are put together as the last."""

    labels: Labels  #: [N], the block of each client
    sizes: list[int]
    rest: bool  #: whether the last is what is left

    @classmethod
    def of(cls, clusters: Sequence[int] | Labels) -> "Blocks":
        names, labels, sizes = np.unique(np.asarray(clusters), return_inverse=True, return_counts=True)
        rest = len(names) > MOST_BLOCKS
        if rest:
            largest = [int(c) for c in np.argsort(-sizes, kind="stable")[: MOST_BLOCKS - 1] if sizes[c] > 1]
            place = np.full(len(names), len(largest))
            place[sorted(largest)] = np.arange(len(largest))
            labels = place[labels]
        return cls(labels, np.bincount(labels).tolist(), rest)

    def weights(self, shot: Snapshot) -> Array:
        """[K, K]: what a member of one gives all members of another, mean over those who were there."""
        count, (i, k, w) = len(self.sizes), weights_of(shot)
        pair = self.labels[i] * count + self.labels[k]
        given = np.bincount(pair, w, count * count).reshape(count, count)
        there = np.bincount(self.labels, shot.present.numpy().astype(float), count)[:, None]
        return np.where(there > 0, given / np.maximum(there, 1), np.nan)
