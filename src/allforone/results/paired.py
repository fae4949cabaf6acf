"""Whether one algorithm is better than another: paired differences over sites and seeds, with an interval."""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

#: The confidence of all intervals of a comparison together.
SURE = 0.95


class Difference(NamedTuple):
    """The mean of paired differences, as sure as it is over other sites and other seeds."""

    mean: float
    error: float  #: its standard error
    freedom: float  #: degrees of freedom
    p: float  #: by Student, two-sided, of no difference

    def interval(self, comparisons: int = 1) -> tuple[float, float]:
        """In which, with those of as many `comparisons`, all true differences lie with 95 % (Bonferroni)."""
        from scipy.special import stdtrit  # type: ignore[import-untyped]  # slow to import

        if not math.isfinite(self.error):
            return -math.inf, math.inf
        reach = float(stdtrit(self.freedom, 1 - (1 - SURE) / 2 / comparisons)) * self.error
        return self.mean - reach, self.mean + reach


def paired(differences: npt.NDArray[np.float64]) -> Difference:
    """Of differences [sites, seeds], both drawn at random: d = μ + a_site + b_seed + e.

    The variance of the mean is that of two crossed effects, (MS_a + MS_b − MS_e)/(sites · seeds), never less than by
    one of them alone; degrees of freedom by Satterthwaite. Sites that are not known in every seed do not count.
    """
    from scipy.special import stdtr

    d = differences[np.isfinite(differences).all(1)]
    n, s = d.shape
    if n * s < 2:
        return Difference(float(d.mean()) if n * s else math.nan, math.inf, 1, 1.0)
    mean, by_site, by_seed = d.mean(), d.mean(1), d.mean(0)
    rest = d - by_site[:, None] - by_seed + mean
    squares = {  # name → mean square and its degrees of freedom
        "site": (s * np.square(by_site - mean).sum() / max(n - 1, 1), n - 1),
        "seed": (n * np.square(by_seed - mean).sum() / max(s - 1, 1), s - 1),
        "rest": (np.square(rest).sum() / max((n - 1) * (s - 1), 1), (n - 1) * (s - 1)),
    }
    (a, a_free), (b, b_free), (e, e_free) = squares.values()
    total, freedom = max(((a, a_free), (b, b_free)), key=lambda part: part[0])
    if a_free and b_free and a + b - e > total:
        total = a + b - e
        freedom = total**2 / (a**2 / a_free + b**2 / b_free + e**2 / e_free)
    error = math.sqrt(total / (n * s))
    if error == 0:
        return Difference(float(mean), 0.0, max(freedom, 1), 1.0 if mean == 0 else 0.0)
    p = 2 * float(stdtr(freedom, -abs(mean) / error))
    return Difference(float(mean), error, freedom, p)


def holm(ps: list[float]) -> list[float]:
    """The same for many comparisons at once: each the smallest level at which Holm's procedure would reject it."""
    order, adjusted, highest = sorted(range(len(ps)), key=lambda j: ps[j]), [0.0] * len(ps), 0.0
    for place, j in enumerate(order):
        highest = max(highest, min(1.0, (len(ps) - place) * ps[j]))
        adjusted[j] = highest
    return adjusted
