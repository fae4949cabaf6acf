"""Messages, counted by hand."""

import pytest
import torch

from allforone.reports.cost import cost, messages


def set_weights(run, matrix):
    run.weights["weights"] = torch.tensor(matrix, dtype=torch.float32).expand(len(run.weights["rounds"]), -1, -1)
    return run


ALONE = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
TWO_LISTEN = [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]]  # two ordered pairs of six


@pytest.mark.parametrize(
    ("name", "matrix", "tables", "options", "expected"),
    [
        ("local", ALONE, (), {}, 0),
        ("oracle", TWO_LISTEN, (), {}, 2 * 4 * 2),  # rounds · inner-wise: models out, gradients back
        ("fedavg", TWO_LISTEN, (), {}, 2 * 2 * 3),  # up and down, each round
        ("ifca", TWO_LISTEN, (), {"clusters": 3}, 2 * 4 * 3),
        ("wga-bc", TWO_LISTEN, (), {}, 2 * 4 * 6),
        ("cobo", TWO_LISTEN, (), {}, 2 * (9 + 2)),
        ("all-for-one", TWO_LISTEN, ("similarity", "trust"), {}, 2 * (4 * 2 + 2 * 4)),
        ("all-for-one", TWO_LISTEN, ("similarity", "trust"), {"every": 2}, 2 * 4 * 2 + 2 * 4),
        ("all-for-one-binary", TWO_LISTEN, ("similarity",), {}, 2 * (4 * 2 + 4 + 6)),
        ("AllForOne", TWO_LISTEN, ("similarity", "trust"), {}, None),  # of a folder written from Python
        ("AllForOne", TWO_LISTEN, ("similarity", "trust"), {"every": 2}, 2 * 4 * 2 + 2 * 4),
        ("of my own", TWO_LISTEN, (), {}, None),
    ],
)
def test_messages_of_two_rounds_of_two_updates(invented_run, name, matrix, tables, options, expected):
    run = set_weights(invented_run(name, 1, clients=3, rounds=2, tables=tables, inner=2, **options), matrix)
    assert messages(run) == expected
    found = cost([run, run])
    assert found.messages == expected
    assert found.bytes == (None if expected is None else 1000 * expected)
    assert found.samples == 32


def test_who_is_absent_sends_nothing(invented_run):
    run = set_weights(invented_run("fedavg", 1, clients=3, rounds=2), TWO_LISTEN)
    run.weights["present"][1, 2] = False
    assert messages(run) == 2 * 3 + 2 * 2
