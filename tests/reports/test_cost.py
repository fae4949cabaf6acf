"""Messages and bytes, counted by hand."""

import re

import pytest
import torch

import allforone as afo
from allforone.algorithms import CoBo, Info, State, WgaBc
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
        *((name, lambda pairs, number: 2 * CLIENTS) for name in ("fedamp", "fedala", "pfedgraph", "cfl", "pfedme")),
        ("fedfomo", lambda pairs, number: CLIENTS + EVERY_PAIR),  # up, and everybody else's down
        ("wga-bc", lambda pairs, number: 2 * INNER * EVERY_PAIR),
        ("cobo", lambda pairs, number: 3 * EVERY_PAIR // 2 + (INNER - 1) * pairs),
        ("all-for-one", lambda pairs, number: 2 * INNER * pairs + 2 * EVERY_PAIR - pairs),
        ("all-for-one-round", lambda pairs, number: 2 * EVERY_PAIR),  # a model to everybody, a way back
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
    assert found.bytes == expected * model_bytes(run)
    assert found.samples == run.metrics["samples"].max()


def model_bytes(run):
    """Of digits' network, which has no buffers: single precision."""
    return 4 * sum(parameter.numel() for parameter in afo.digits(clients=CLIENTS).initial_model(run.seed).parameters())


def with_buffers_and_frozen_parts():
    layers = torch.nn.Linear(64, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 10)
    layers[0].requires_grad_(False)
    return torch.nn.Sequential(*layers)


@pytest.mark.parametrize(
    ("algorithm", "models", "gradients"),
    [
        (afo.FedAvg(), 2 * CLIENTS, 0),
        (CoBo(), EVERY_PAIR + (INNER - 1) * EVERY_PAIR, EVERY_PAIR // 2),
        (WgaBc(), INNER * EVERY_PAIR, INNER * EVERY_PAIR),
        (afo.AllForOne(exchange="round"), EVERY_PAIR, EVERY_PAIR),
        (afo.BySimilarity(afo.binary(1e-9)), INNER * EVERY_PAIR, (1 + INNER) * EVERY_PAIR),
    ],
)
def test_a_model_is_sent_with_its_buffers_a_gradient_without_and_frozen_parameters_never(algorithm, models, gradients):
    digits = afo.digits(clients=CLIENTS, split="iid")
    result = afo.train(
        with_buffers_and_frozen_parts(),
        digits.clients,
        loss=torch.nn.functional.cross_entropy,
        algorithm=algorithm,
        rounds=1,
        inner=INNER,
    )
    trained, buffers = 4 * (8 + 8 + 80 + 10), 4 * (8 + 8) + 8
    last = result.metrics.filter(result.metrics["round"] == 1)
    assert last["messages"].to_list() == [models + gradients] * CLIENTS
    assert last["bytes"].to_list() == [models * (trained + buffers) + gradients * trained] * CLIENTS


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
    for column in ("messages", "bytes"):
        assert result.metrics[column].to_list() == [0] * 3 + [None] * 6
    page = open_page(result.report(tmp_path / "report.html").as_uri())
    assert page.locator("#costs tbody td").all_inner_texts()[1:3] == ["not known", "not known"]
    assert page.troubles == []


def test_costs_are_means_over_runs_and_unknown_where_one_of_them_is(invented_run):
    def of(seed, count, size):
        return invented_run("a", seed, columns={"messages": [count] * 4, "bytes": [size] * 4})

    few, many = of(1, 10, 1000), of(2, 30, 2000)
    assert cost([few, many])[2:] == (20, 1500, None)
    assert cost([few, of(3, None, None)])[2:] == (None, None, None)


def test_the_page_tells_what_clients_have_spent_of_their_privacy_where_answers_are_private(tmp_path, open_page):
    result = afo.train(afo.digits(clients=3), rounds=2, inner=1, privacy=afo.Privacy(noise=8.0, secret=1))
    spent = result.metrics.filter(result.metrics["round"] == 2)["epsilon"].to_list()
    page = open_page(result.report(tmp_path / "report.html").as_uri())
    assert page.locator("#costs thead th").all_inner_texts()[-1] == "ε spent, at most"
    assert float(page.locator("#costs tbody td").all_inner_texts()[-1]) == pytest.approx(max(spent), rel=0.01)
    page.evaluate("chosen.client = 1; showClient()")
    said = page.locator("#client-lead").inner_text()
    assert float(re.search(r"ε = ([0-9.]+) is spent", said)[1]) == pytest.approx(spent[1], rel=0.01)
    assert page.troubles == []


def test_without_privacy_the_page_says_nothing_of_it(tmp_path, open_page):
    page = open_page(afo.train(afo.digits(clients=3), rounds=1).report(tmp_path / "report.html").as_uri())
    assert page.locator("#costs thead th").all_inner_texts()[-1] == "seconds"
    assert "ε" not in page.locator("#client-lead").inner_text()
