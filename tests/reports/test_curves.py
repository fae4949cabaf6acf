import polars
import pytest

from allforone.reports.curves import curve, quantities
from allforone.runs import Comparison, FinishedRun
from allforone.runs.history import COLUMNS


def run(seed, losses):
    """One run of two clients over two rounds; excess loss is the loss."""
    rows = [
        {
            **dict.fromkeys(COLUMNS),
            "round": r,
            "client": c,
            "loss": loss,
            "excess_loss": loss,
            "samples": 10 * r,
            "seconds": 1.0 * r,
        }
        for r, line in enumerate(losses)
        for c, loss in enumerate(line)
    ]
    schema = {name: polars.Int64 if kind is int else polars.Float64 for name, kind in COLUMNS.items()}
    return FinishedRun("local", seed, polars.DataFrame(rows, schema=schema), {}, {}, [1, 1])


def test_a_curve_is_mean_and_deviation_over_clients_and_seeds():
    comparison = Comparison("p", [run(1, [[1.0, 10.0], [0.0, 0.1]]), run(2, [[100.0, 1.0], [0.01, 0.1]])], None)
    assert quantities(comparison) == ["log10_excess_loss", "loss"]
    found = curve(comparison, "local", "log10_excess_loss")
    assert found.rounds == [0, 1]
    assert found.samples == [0, 10]
    assert found.mean == pytest.approx([0.75, (-28 - 1 - 2 - 1) / 4])
    assert found.std[0] == pytest.approx((11 / 16) ** 0.5)
    assert curve(comparison, "local", "loss").mean[0] == pytest.approx(28.0)
