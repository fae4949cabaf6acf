"""Ways to deal one labelled data set to many clients: pure functions from labels to lists of indices."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import InputError

#: How often samples are dealt, at most, until every client has enough.
MOST_DEALS = 1000


class Split(NamedTuple):
    parts: list[Tensor]  #: the indices that each client gets
    clusters: list[int] | None  #: each client's true cluster, where there is one


def cluster(labels: Tensor, clients: int, *, clusters: int = 2, first: int = 0, seed: int = 0) -> Split:
    """The labels fall into `clusters` groups of neighbours; client i gets samples of group i + `first`, mod `clusters`,
    only.

    Within a group the samples are dealt evenly and at random (sizes differ by at most one).
    """
    classes = labels.unique()
    if not 1 <= clusters <= min(clients, len(classes)):
        raise InputError(
            f"clusters is {clusters}: must be between 1 and {min(clients, len(classes))}, "
            "the lesser of the numbers of clients and of classes"
        )
    member = [(i + first) % clusters for i in range(clients)]
    parts: list[Tensor] = [torch.empty(0, dtype=torch.long)] * clients
    for number, group in enumerate(classes.tensor_split(clusters)):
        owners = [i for i in range(clients) if member[i] == number]
        indices = _shuffled(torch.isin(labels, group).nonzero().flatten(), seed, number)
        for owner, part in zip(owners, indices.tensor_split(len(owners)), strict=True):
            parts[owner] = part
    return Split(_all_served(parts, len(labels)), member)


def iid(labels: Tensor, clients: int, *, seed: int = 0) -> Split:
    """Every client gets an equal share drawn from the whole: one cluster."""
    parts = list(_shuffled(torch.arange(len(labels)), seed).tensor_split(clients))
    return Split(_all_served(parts, len(labels)), [0] * clients)


def dirichlet(
    labels: Tensor, clients: int, *, concentration: float = 0.5, least: int | None = None, seed: int = 0
) -> Split:
    """Each class is dealt in shares drawn from Dirichlet(concentration): the smaller, the more unlike the clients.

    With `least`, it is dealt anew until every client has so many samples.
    """
    if concentration <= 0:
        raise InputError(f"concentration is {concentration}: must be above 0")
    if least is not None and not 1 <= least <= len(labels) // clients:
        raise InputError(
            f"least is {least}: must be between 1 and {len(labels) // clients}, what each of {clients} clients would "
            f"have of {len(labels)} samples if all had as many"
        )
    random = torch.Generator().manual_seed(seed)
    for _ in range(1 if least is None else MOST_DEALS):
        parts = _in_shares(labels, clients, concentration, random)
        if least is None or min(map(len, parts)) >= least:
            return Split(_all_served(parts, len(labels)), None)
    raise InputError(
        f"least is {least}: in {MOST_DEALS} deals some client had fewer; ask for less, or for a concentration above "
        f"{concentration}"
    )


def _in_shares(labels: Tensor, clients: int, concentration: float, random: torch.Generator) -> list[Tensor]:
    parts: list[list[Tensor]] = [[] for _ in range(clients)]
    for label in labels.unique():
        indices = (labels == label).nonzero().flatten()
        indices = indices[torch.randperm(len(indices), generator=random)]
        shares = torch._standard_gamma(torch.full((clients,), concentration, dtype=torch.float64), generator=random)
        ends = (shares.cumsum(0) / shares.sum() * len(indices)).round().long().tolist()
        for part, start, end in zip(parts, [0, *ends[:-1]], ends, strict=True):
            part.append(indices[start:end])
    return [torch.cat(part) for part in parts]


def shards(labels: Tensor, clients: int, *, per_client: int = 2, seed: int = 0) -> Split:
    """Samples sorted by label are cut into clients × per_client shards; every client gets `per_client` of them."""
    if per_client < 1:
        raise InputError(f"per_client is {per_client}: must be at least 1")
    pieces = labels.argsort(stable=True).tensor_split(clients * per_client)
    order = _shuffled(torch.arange(len(pieces)), seed).tolist()
    parts = [torch.cat([pieces[j] for j in order[i::clients]]) for i in range(clients)]
    return Split(_all_served(parts, len(labels)), None)


def _shuffled(indices: Tensor, seed: int, stream: int = 0) -> Tensor:
    random = torch.Generator().manual_seed(1_000_003 * seed + stream)
    return indices[torch.randperm(len(indices), generator=random)]


def _all_served(parts: list[Tensor], samples: int) -> list[Tensor]:
    for number, part in enumerate(parts):
        if len(part) == 0:
            raise InputError(
                f"client {number} would get none of the {samples} samples: "
                "use fewer clients, another seed, or a milder split"
            )
    return parts
