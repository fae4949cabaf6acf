"""The parts of `python -m benchmarks.exchange`, on a few updates."""

from functools import partial

import pytest
from benchmarks import exchange
from benchmarks.worlds import World

from allforone.problems import digits

SMALL = partial(digits, clients=4, samples_per_client=20)
WORLDS = [World(f"digits, {split}", partial(SMALL, split=split), rounds=2, inner=2) for split in ("cluster", "shards")]
FAMILY = exchange.Family(WORLDS, (1, 4))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    path = tmp_path_factory.mktemp("exchange") / "out" / "found.jsonl"
    return path, exchange.measure(exchange.cases(FAMILY, [1]), path)


def test_everybody_does_the_same_number_of_updates():
    found = exchange.cases(FAMILY, [1])
    assert {case.exchanges * case.inner for case in found} == {4}
    assert {case.exchanges for case in found if case.algorithm in exchange.ONCE_A_ROUND} == {1, 4}


def test_what_was_measured_is_not_measured_again(kept, monkeypatch):
    path, found = kept
    written = path.read_text()
    monkeypatch.setattr(exchange, "run", lambda case: pytest.fail("measured again"))
    assert exchange.measure(exchange.cases(FAMILY, [1]), path) == found and path.read_text() == written


def test_accuracy_stands_beside_what_a_client_sends(kept, tmp_path):
    means = exchange.Means(FAMILY, kept[1], [1])
    world, size = WORLDS[0], exchange.MessageBytes.of(SMALL().initial_model(1)).model
    assert means.of(world, "local", 1).bytes == 0
    assert means.of(world, "fedavg", 4)[1:] == (4 * 2, 4 * 2 * size)
    assert means.of(world, "all-for-one-round", 4)[1:] == (4 * 2 * 3, 4 * 2 * 3 * size)
    assert means.of(WORLDS[1], "oracle", 1) is None  # nobody knows the clusters of shards
    scores, costs = exchange.score_table(means), exchange.cost_table(means)
    assert [len(table.rows) for table in (scores, costs)] == [4, 4] and scores.caption.endswith("of 4")
    exchange.draw(means, tmp_path / "exchange.png")
    assert (tmp_path / "exchange.png").stat().st_size > 10_000
