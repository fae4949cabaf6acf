import math

import polars
import pytest

from allforone.reports.curves import curve
from allforone.runs import Comparison, FinishedRun
from allforone.runs.history import schema
from allforone.runs.quantities import EXCESS, LOSS


def run(seed, losses):
    """One run of two clients; excess loss is the loss."""
    rows = [
        {"round": r, "client": c, "loss": loss, "excess_loss": loss, "samples": 10 * r, "seconds": 1.0 * r}
        for r, line in enumerate(losses)
        for c, loss in enumerate(line)
    ]
    return FinishedRun("local", seed, polars.DataFrame(rows, schema(rows[0])), {}, {}, [1, 1])


def test_a_curve_is_mean_and_deviation_over_clients_and_seeds():
    comparison = Comparison("p", [run(1, [[1.0, 10.0], [0.0, 0.1]]), run(2, [[100.0, 1.0], [0.01, 0.1]])], None)
    assert comparison.quantities == [EXCESS, LOSS]
    found = curve(comparison, "local", EXCESS)
    assert found.rounds == [0, 1]
    assert found.samples == [0, 10]
    assert found.mean == pytest.approx([0.75, (-28 - 1 - 2 - 1) / 4])
    assert found.std[0] == pytest.approx((11 / 16) ** 0.5)
    assert curve(comparison, "local", LOSS).mean[0] == pytest.approx(28.0)


def test_what_is_not_known_of_a_client_does_not_count():
    comparison = Comparison("p", [run(1, [[1.0, None], [None, None]]), run(2, [[None, 3.0], [None, None]])], None)
    found = curve(comparison, "local", LOSS)
    assert (found.mean[0], found.std[0]) == (2.0, 1.0)
    assert math.isnan(found.mean[1])
