"""Messages, counted by hand."""

import pytest
import torch

import allforone as afo
from allforone.algorithms import Info, State
from allforone.reports.cost import cost
from allforone.runs import execute, parse, prepare, read_run

CLIENTS, ROUNDS, INNER = 3, 2, 2
EVERY_PAIR = CLIENTS * (CLIENTS - 1)


@pytest.mark.parametrize(
    ("algorithm", "of_a_round"),
    [
        ("local", lambda pairs, number: 0),
        ("oracle", lambda pairs, number: 2 * INNER * pairs),  # at every update, models out and gradients back
        ("fedavg", lambda pairs, number: 2 * CLIENTS),  # up and down
        ("ditto", lambda pairs, number: 2 * CLIENTS),
        ({"name": "ifca", "clusters": 3}, lambda pairs, number: 4 * CLIENTS),
        ("wga-bc", lambda pairs, number: 2 * INNER * EVERY_PAIR),
        ("cobo", lambda pairs, number: 3 * EVERY_PAIR // 2 + (INNER - 1) * pairs),
        ("all-for-one", lambda pairs, number: 2 * INNER * pairs + 2 * EVERY_PAIR - pairs),
        ("all-for-one-binary", lambda pairs, number: 2 * INNER * pairs + (EVERY_PAIR - pairs) + EVERY_PAIR),
    ],
)
def test_messages_of_two_rounds_of_two_updates(tmp_path, algorithm, of_a_round):
    base = {"problem": {"name": "digits", "clients": CLIENTS}, "rounds": ROUNDS, "inner": INNER}
    execute(prepare(parse({**base, "algorithm": algorithm})), tmp_path / "run")
    run = read_run(tmp_path / "run")
    others = run.tables.dense() * (1 - torch.eye(CLIENTS))
    pairs = (others != 0).sum((1, 2)).tolist()
    expected = sum(of_a_round(count, number) for number, count in enumerate(pairs, 1))
    found = cost([run, run])
    assert found.messages == expected
    assert found.bytes == expected * run.model_bytes
    assert found.samples == run.metrics["samples"].max()


def test_who_is_absent_sends_nothing():
    here = torch.tensor([[True, True, True], [True, True, False]])
    result = afo.train(
        afo.digits(clients=3), algorithm=afo.FedAvg(), rounds=2, participation=lambda step: here[step // 20], inner=20
    )
    assert result.metrics.filter(result.metrics["round"] == 2)["messages"].to_list() == [2 * 3 + 2 * 2] * 3


class Silent(afo.Algorithm):
    """Does nothing, and does not say what that would send."""

    def step(self, state: State, fleet, round):
        return state, Info(torch.eye(len(fleet.roster), dtype=torch.float64))


def test_an_algorithm_that_does_not_say_what_it_sends_has_costs_that_are_not_known(tmp_path, open_page):
    result = afo.train(afo.digits(clients=3), algorithm=Silent(), rounds=2)
    assert result.metrics["messages"].to_list() == [0] * 3 + [None] * 6
    page = open_page(result.report(tmp_path / "report.html").as_uri())
    assert page.locator("#costs tbody td").all_inner_texts()[1:3] == ["not known", "not known"]
    assert page.troubles == []


def test_costs_are_means_over_runs_and_unknown_where_one_of_them_is(invented_run):
    few, many = (invented_run("a", seed, columns={"messages": [count] * 4}) for seed, count in ((1, 10), (2, 30)))
    assert cost([few, many]).messages == 20
    assert cost([few, many]).bytes == 20 * 1000
    assert cost([few, invented_run("a", 3, columns={"messages": [None] * 4})])[2:] == (None, None)
