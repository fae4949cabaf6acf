"""Going on from a result, joining it, and leaving it."""

from functools import partial

import pytest
import torch
from torch.optim import SGD

import allforone as afo
from allforone.errors import InputError
from allforone.fleet import Optimizer
from allforone.machines.loop import Loop

from .sites import hospital, hospitals


def rows(models, number):
    return {name: tensor[number] for name, tensor in models.items()}


def equal(one, other):
    return one.keys() == other.keys() and all(one[name].equal(other[name]) for name in one)


def test_going_on_alone_is_a_plain_loop_that_was_never_interrupted():
    plain = partial(SGD, lr=0.2)
    settings = {"algorithm": afo.Local(), "optimizer": plain, "inner": 2}
    first = afo.train(hospitals(), rounds=3, **settings)
    gone_on = afo.train(models=first, rounds=2)
    fleet = Loop(hospitals(), seed=127, batch_size=8)
    models, optimizer = fleet.initial(), Optimizer(plain)
    for number in range(1, 6):
        round = fleet.begin(number, range(2 * number - 2, 2 * number))
        models, optimizer = fleet.descend(models, torch.eye(3).double(), optimizer, round)
    assert all(gone_on.stacked[name].allclose(models[name], atol=1e-6) for name in models)
    assert gone_on.steps == 10


def test_settings_are_those_of_the_earlier_run_unless_others_are_given():
    first = afo.train(hospitals(), rounds=1, algorithm=afo.Ditto(), inner=4, seed=5)
    gone_on = afo.train(models=first)
    assert gone_on.config.inner == 4 and gone_on.config.seed == 5 and gone_on.config.algorithm.name == "ditto"
    other = afo.train(models=first, algorithm=afo.Local(), lr=0.5, rounds=2)
    assert other.config.optimizer.options["lr"] == 0.5 and other.config.algorithm.name == "local"
    first_loss = other.metrics.filter(other.metrics["round"] == 0)["loss"]
    assert first_loss.equals(first.metrics.filter(first.metrics["round"] == 1)["loss"])


def test_sites_are_found_by_name_in_any_order_and_number():
    first = afo.train(hospitals(), rounds=2)
    turned = [hospital("Hospital C", 0, 2), hospital("Hospital A", 0, 0)]
    problem = hospitals()
    gone_on = afo.train(problem.model(), turned, loss=problem.loss, models=first, lr=1e-30, rounds=1)
    assert equal(rows(gone_on.stacked, 0), rows(first.stacked, 2))
    assert equal(rows(gone_on.stacked, 1), rows(first.stacked, 0))
    stranger = [*turned, hospital("Hospital D", 0, 3)]
    with pytest.raises(InputError, match=r"none for Hospital D; a new site is added by result\.join"):
        afo.train(problem.model(), stranger, loss=problem.loss, models=first, rounds=1)
    nameless = [hospital(None, 0, 2), hospital(None, 0, 0)]
    with pytest.raises(InputError, match="not all of which have names"):
        afo.train(problem.model(), nameless, loss=problem.loss, models=first, rounds=1)


def test_models_of_another_architecture_are_refused():
    first, problem = afo.train(hospitals(), rounds=1), hospitals()
    with pytest.raises(InputError, match="others than the one that is trained: bias, weight differ"):
        afo.train(torch.nn.Linear(4, 3), problem.clients, loss=problem.loss, models=first, rounds=1)


def test_fedavg_goes_on_from_the_mean_of_the_models():
    first = afo.train(hospitals(), rounds=3, algorithm=afo.Local())
    gone_on = afo.train(models=first, algorithm=afo.FedAvg(), lr=1e-30, rounds=1)
    for name, tensor in first.stacked.items():
        assert gone_on.stacked[name].allclose(tensor.mean(0).expand_as(tensor), atol=1e-6)


def test_a_run_that_went_on_is_resumed_only_from_the_same_models(tmp_path):
    first, other = afo.train(hospitals(), rounds=1), afo.train(hospitals(), rounds=2)
    afo.train(models=first, rounds=2, out=tmp_path / "run")
    whole = afo.train(models=first, rounds=4)
    with pytest.raises(InputError, match="another start"):
        afo.train(models=other, rounds=4, out=tmp_path / "run", resume=True)
    assert equal(afo.train(models=first, rounds=4, out=tmp_path / "run", resume=True).stacked, whole.stacked)


@pytest.mark.parametrize("algorithm", [afo.AllForOne(), afo.AllForOne(exchange="round"), afo.Local(), afo.Ditto()])
def test_who_joins_learns_and_nobody_else_changes(algorithm):
    result = afo.train(hospitals(), rounds=3, algorithm=algorithm)
    joined = result.join(hospital("Hospital D", 1, 3), rounds=3)
    assert joined.names == [*result.names, "Hospital D"]
    for number in range(3):
        assert equal(rows(joined.stacked, number), rows(result.stacked, number))
        assert joined.weights[:, number, number].eq(1).all()
    assert not equal(rows(joined.stacked, 3), rows(result.stacked, 1))
    assert joined.config.identity["start"]["told"] == "Hospital D from the model of Hospital B"


def test_who_joins_listens_to_its_own_kind():
    result = afo.train(hospitals(), rounds=8, batch_size=16)
    joined = result.join(hospital("Hospital D", 1, 3), rounds=8)
    heard = joined.weights[-1, 3]
    assert heard[1] > heard[0] and heard[1] > heard[2]


def test_who_joins_alone_is_the_plain_model_trained_on():
    plain = {"algorithm": afo.Local(), "optimizer": partial(SGD, lr=0.2), "inner": 1, "batch_size": 30}
    result, newcomer = afo.train(hospitals(), rounds=3, **plain), hospital("Hospital D", 0, 3)
    joined = result.join(newcomer, rounds=4)
    models = [result.model(number) for number in range(3)]
    inputs, targets = newcomer.train.tensors
    loss = hospitals().loss
    model = min(models, key=lambda candidate: loss(candidate(inputs), targets).item())
    optimizer = SGD(model.parameters(), lr=0.2)
    for _ in range(4):  # whole batches, so their order is all one
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()
        optimizer.step()
    assert joined.model("Hospital D").weight.allclose(model.weight, atol=1e-6)


def test_a_name_that_is_taken_does_not_join():
    result = afo.train(hospitals(), rounds=1)
    with pytest.raises(InputError, match="called Hospital A already"):
        result.join(hospital("Hospital A", 0, 3))
    with pytest.raises(InputError, match="give an afo"):
        result.join("Hospital D")


def test_nobody_who_trains_alone_loses_by_a_departure():
    result = afo.train(hospitals(), rounds=3, algorithm=afo.Local())
    table, rerun = result.without("Hospital B")
    assert table["site"].to_list() == ["Hospital A", "Hospital C"]
    assert table["loses"].to_list() == [0, 0]
    assert equal(rows(rerun.stacked, 0), rows(result.stacked, 0))


def test_a_departure_is_told_by_the_models_without_it():
    result = afo.train(hospitals(), rounds=3, algorithm=afo.FedAvg())
    table, rerun = result.without("Hospital B", "loss")
    assert rerun.weights[:, :, 1].abs().max() == 0
    problem = hospitals()
    for number, line in zip((0, 2), table.iter_rows(named=True), strict=True):
        inputs, targets = problem.clients[number].test.tensors
        stays, leaves = (problem.loss(r.model(number)(inputs), targets).item() for r in (result, rerun))
        assert line["loses"] == pytest.approx(leaves - stays, abs=1e-6)
    with pytest.raises(InputError, match="metric 'acuracy'; did you mean 'accuracy'"):
        result.without("Hospital B", "acuracy")
