"""Tables of the theory: sufficient clusters, a run next to its bound, and what a client can expect of the others."""

import torch
from torch import Tensor

from ..collaboration import Criterion
from ..theory import Constants, Trajectory, bounds, largest_weight_sum, sufficient_cluster, sufficient_variance
from .table import Table, plain


def cluster_sizes_table(epsilon: Tensor, sizes: dict[str, dict[float, Tensor]], clients: int) -> Table:
    """Of the sizes of client 1's sufficient cluster, corrected and as printed, by spread and precision."""

    def edges(size: Tensor) -> list[str]:
        everybody, alone = epsilon[size == clients], epsilon[size == 1]
        return [
            f"{float(everybody.min()):.1e}" if len(everybody) else "never",
            f"{float(alone.max()):.1e}" if len(alone) else "never",
        ]

    corrected, printed = sizes.values()
    return Table(
        ["v", "corrected: everybody", "alone", "as printed: everybody", "alone"],
        plain([f"{spread:g}", *edges(corrected[spread]), *edges(printed[spread])] for spread in corrected),
        f"Client 1 of {clients}: ε down to which its sufficient cluster is everybody, and where it is alone",
    )


def bound_table(found: Trajectory, title: str) -> Table:
    rows, last = [], len(found.excess) - 1
    for update in sorted({round(last * part / 5) for part in range(6)}):
        means = [f"{float(values[update].mean()):.2e}" for values in (found.excess, found.bound, found.sharper)]
        left = float((found.remaining / found.alone)[max(0, update - 1)].median())
        rows.append([str(update), *means, f"{left:.2f}"])
    return Table(
        ["update", "measured", "theorem 1", "sharper", "noise / alone"],
        plain(rows),
        f"{title}: excess loss and its bounds, means over clients; noise at equal progress, median",
    )


def partners_table(constants: Constants, criterion: Criterion, names: list[str], title: str) -> Table:
    """Who is a partner until which excess loss: as the constants promise and, where they are estimates, as was seen."""
    known = {"partners promised, until its excess loss is": constants.least_precision(criterion)}
    if constants.estimated:
        known["partners seen on its path, until"] = constants.estimated.seen.least_excess(criterion)

    def partners(i: int, least: Tensor) -> str:
        groups: dict[str, list[str]] = {}
        for k in sorted(range(len(names)), key=lambda k: float(least[k])):
            if k != i and least[k] < constants.excess[i]:
                how = "any" if least[k] == 0 else f"{float(least[k]):.2g}"
                groups.setdefault(how, []).append(names[k])
        return " · ".join(f"{', '.join(group)}: {how}" for how, group in groups.items()) or "none"

    rows = plain([name, *(partners(i, least[i]) for least in known.values())] for i, name in enumerate(names))
    return Table(["client", *known], rows, title, prose=True)


def savings_table(constants: Constants, criterion: Criterion, names: list[str], epsilon: float) -> Table:
    """T_ε in samples of one client, with the same decreasing step, C = 2: alone, and with the sufficient cluster."""
    heterogeneity, mu, beta = constants.heterogeneity(epsilon), constants.convexity, constants.smoothness
    variance = sufficient_variance(heterogeneity, criterion, constants.variance, mu, epsilon)
    members = sufficient_cluster(heterogeneity, criterion, mu, epsilon).sum(1) - 1
    weight_sum = largest_weight_sum(criterion, constants.variance)
    noises = {"alone": constants.variance, "together": torch.minimum(variance, constants.variance)}
    if constants.estimated:
        seen = constants.estimated.seen.effective_variance(criterion, constants.variance, epsilon)
        noises["as seen"] = torch.minimum(seen, constants.variance)
    samples = {
        title: constants.batch_size
        * bounds.updates_needed(epsilon, constants.excess, beta, mu, noise, weight_sum=weight_sum)
        for title, noise in noises.items()
    }
    rows = []
    for i, name in enumerate(names):
        before, *others = (int(needed[i]) for needed in samples.values())
        cells = [cell for after in others for cell in (f"{after:,}", f"{100 * (before - after) / max(before, 1):.0f}")]
        rows.append([name, str(int(members[i])), f"{before:,}", *cells])
    return Table(
        ["client", "partners", "alone", *(head for title in list(samples)[1:] for head in (title, "saved %"))],
        plain(rows),
        f"To reach an excess loss of {epsilon:g}: samples of each client that the bound asks for",
    )
