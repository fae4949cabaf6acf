"""Every algorithm with private parameters: what it must be in the cases where one can say it without it."""

import copy
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

import allforone as afo
from allforone.algorithms import ALGORITHMS, Guarded, Keeping, Local, advance, keeping
from allforone.fleet import Optimizer, Stacked, private_names
from allforone.problems import hold_out
from allforone.problems.data import draw
from allforone.testing import MOMENTUM, check_algorithm, small_problem, with_batch_norm

from ..rounds import play

#: What the paper's authors ran asks nothing else of a fleet than what it stands for.
NAMES = [name for name in ALGORITHMS if not name.endswith("-as-published")]
HEAD = ("2.weight", "2.bias")
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
#: One algorithm for each kind of question that is asked with private parts, with a model and how long they train by
#: themselves: looks, walks, losses, gradients at models half way, and at two models of each.
CONTRACTS = [
    ("all-for-one", with_batch_norm, 0),
    ("all-for-one-round", None, 3),
    ("ifca", with_batch_norm, 3),
    ("cobo", None, 0),
    ("apfl", with_batch_norm, 0),
]


def made(name):
    return ALGORITHMS[name](samples=6) if ("-binary" in name or "-continuous" in name) else ALGORITHMS[name]()


class Idle(nn.Module):
    """A network with a parameter that does nothing."""

    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
        self.idle = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.network(x)


def twins():
    """The same problem with and without that parameter."""
    whole = Idle()
    return small_problem(lambda: copy.deepcopy(whole)), small_problem(lambda: copy.deepcopy(whole.network))


def test_private_to_nothing_changes_nothing():
    subject = small_problem()
    found = [afo.train(subject, algorithm=afo.Ditto(), rounds=2, inner=2, **told) for told in ({}, {"private": []})]
    assert found[0].config == found[1].config
    assert all(torch.equal(found[0].stacked[key], tensor) for key, tensor in found[1].stacked.items())


@pytest.mark.parametrize("name", NAMES)
def test_private_to_what_does_nothing_changes_nothing(name):
    with_idle, plain = twins()
    ours, _ = play(Stacked(with_idle, seed=3), Keeping(made(name), ("idle",)), SGD, 2, 2)
    theirs, _ = play(Stacked(plain, seed=3), made(name), SGD, 2, 2)
    for key, tensor in theirs.models.items():
        torch.testing.assert_close(ours.models[f"network.{key}"], tensor, rtol=1e-4, atol=1e-6)


def test_private_to_all_is_local():
    subject = small_problem()
    ours = afo.train(subject, algorithm=afo.FedAvg(), private="*", rounds=2, inner=2)
    local = afo.train(subject, algorithm=Local(), rounds=2, inner=2)
    assert all(torch.equal(ours.stacked[key], tensor) for key, tensor in local.stacked.items())
    assert ours.metrics["messages"].max() == 0


ADAM = partial(torch.optim.Adam, lr=0.05)


@pytest.mark.parametrize(("name", "make"), [*((name, SGD) for name in NAMES), ("fedavg", ADAM), ("cobo", ADAM)])
def test_private_to_all_that_does_something_is_local(name, make):
    with_idle, _ = twins()
    names = tuple(key for key in with_idle.initial_model(3).state_dict() if key != "idle")
    ours, _ = play(Stacked(with_idle, seed=3), Keeping(made(name), names), make, 2, 2)
    local, _ = play(Stacked(with_idle, seed=3), Local(), make, 2, 2)
    for key in names:
        torch.testing.assert_close(ours.models[key], local.models[key], rtol=1e-4, atol=1e-6)


def test_local_stays_as_it_is_and_who_shares_nothing_is_local():
    assert keeping(Local(), HEAD, ["0.weight", *HEAD]) == Local()
    assert keeping(afo.FedAvg(), HEAD, [*HEAD]) == Local()
    assert keeping(afo.FedAvg(), (), ["0.weight", *HEAD]) == afo.FedAvg()
    assert keeping(afo.FedAvg(), HEAD, ["0.weight", *HEAD]) == Keeping(afo.FedAvg(), HEAD)


def plainly(subject, private, rounds, inner, alternate=0, size=4, seed=3):
    """FedAvg of what is not private as anybody would write it; with `alternate`, heads first, then bodies."""
    sites = [copy.deepcopy(subject.initial_model(seed)).train() for _ in subject.clients]
    shares = torch.tensor([float(client.size) for client in subject.clients])
    shares = shares / shares.sum()
    head, body = (
        [SGD([{"params": [p for n, p in site.named_parameters() if (n in private) == kept]}]) for site in sites]
        for kept in (True, False)
    )

    def update(k, step, optimizers):
        x, y = draw(subject.clients[k].train, size, seed=seed, client=k, step=step, purpose="update")
        sites[k].zero_grad()
        subject.loss(sites[k](x), y).backward()
        for optimizer in optimizers:
            optimizer.step()

    for number in range(rounds):
        steps = range(inner * number, inner * (number + 1))
        for k in range(len(sites)):
            for turn in range(alternate):
                update(k, steps[turn % inner], [head[k]])
            for step in steps:
                update(k, step, [body[k]] if alternate else [head[k], body[k]])
        states = [site.state_dict() for site in sites]
        for name in states[0].keys() - {*private}:
            mean = sum(share * state[name] for share, state in zip(shares, states, strict=True))
            for state in states:
                state[name].copy_(mean)
    return sites


@pytest.mark.parametrize("alternate", [0, 5])
def test_fedavg_with_a_private_head_is_fedper_and_alternating_fedrep(alternate):
    subject = small_problem()
    found, _ = play(Stacked(subject, seed=3), Keeping(afo.FedAvg(), HEAD, alternate), SGD, 3, 4)
    for i, site in enumerate(plainly(subject, HEAD, 3, 4, alternate)):
        for name, tensor in site.state_dict().items():
            torch.testing.assert_close(found.models[name][i], tensor, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("word", ["batchnorm", "statistics"])
def test_fedavg_with_private_batchnorm_is_fedbn_and_with_its_statistics_averages_parameters_alone(word):
    subject = small_problem(with_batch_norm)
    names = private_names(with_batch_norm(), [word])
    found, _ = play(Stacked(subject, seed=3), Keeping(afo.FedAvg(), names), SGD, 3, 4)
    for i, site in enumerate(plainly(subject, names, 3, 4)):
        for name, tensor in site.state_dict().items():
            torch.testing.assert_close(found.models[name][i], tensor, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(found.models["1.running_mean"][0], found.models["1.running_mean"][1])
    assert torch.equal(found.models["0.weight"][0], found.models["0.weight"][1])
    assert torch.equal(found.models["1.weight"][0], found.models["1.weight"][1]) == (word == "statistics")


def test_fedavg_with_a_private_head_keeps_the_contract_of_algorithms():
    check_algorithm(Keeping(afo.FedAvg(), HEAD))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "model", "alternate"), CONTRACTS)
def test_whatever_is_asked_the_contract_is_kept_with_private_parts(name, model, alternate):
    names = HEAD if model is None else ("1.weight", "1.bias", "1.running_mean", "1.running_var", "3.bias")
    check_algorithm(Keeping(made(name), names, alternate), small_problem(model, clients=3))


@pytest.mark.slow
def test_a_guard_around_private_parts_keeps_the_contract_and_its_local_models_are_wholly_local():
    subject = hold_out(small_problem(clients=3), 0.3, 0)
    guarded = Guarded(Keeping(afo.FedAvg(), HEAD))
    check_algorithm(guarded, subject)
    state, _ = play(Stacked(subject, seed=3), guarded, SGD, 3, 2)
    local, _ = play(Stacked(subject, seed=3), Local(), SGD, 3, 2)
    assert all(torch.equal(state.own["alone"][name], tensor) for name, tensor in local.models.items())


@pytest.mark.parametrize("name", NAMES)
def test_nan_in_the_private_part_of_who_is_absent_touches_nobody(name):
    present = torch.tensor([True, False, True, True])
    fleet = Stacked(small_problem(), seed=3, participation=lambda step: present)
    algorithm = Keeping(made(name), HEAD)
    start = algorithm.init(fleet.initial(), Optimizer(MOMENTUM))
    spoiled = start._replace(models={key: tensor.clone() for key, tensor in start.models.items()})
    for key in HEAD:
        spoiled.models[key][1] = torch.nan
    for number in range(2):
        round = fleet.begin(number + 1, range(2 * number, 2 * number + 2))
        start, info = advance(algorithm, start, fleet, round)
        spoiled, told = advance(algorithm, spoiled, fleet, round)
        assert torch.equal(info.weights, told.weights)
    for key, tensor in start.models.items():
        assert torch.equal(spoiled.models[key][present], tensor[present])
    assert all(spoiled.models[key][1].isnan().all() for key in HEAD)


@pytest.mark.slow
def test_all_for_one_on_streams_races_with_private_parts_too():
    def with_bias():
        return nn.Linear(3, 1, dtype=torch.float64)

    streams = replace(afo.synthetic(seed=5, dimension=3, clients=3), model=with_bias)
    check_algorithm(Keeping(afo.AllForOne(), ("bias",)), streams)
