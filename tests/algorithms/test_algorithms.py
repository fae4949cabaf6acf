"""What each algorithm must be in the cases where one can say it without it."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import allforone as afo
from allforone.algorithms import ALGORITHMS, BySimilarity, FedAvg, Local, Oracle
from allforone.collaboration import CustomCriterion, binary, continuous
from allforone.fleet import Stacked
from allforone.problems.data import draw

from ..fleet.models import problem
from ..rounds import at, gradients, play

SGD = partial(torch.optim.SGD, lr=0.05)


def train(subject, algorithm, rounds=3, inner=2, make=SGD):
    fleet = Stacked(subject, seed=3)
    state, info = play(fleet, algorithm, make, rounds, inner)
    return state.models, info, fleet


def assert_same(ours, theirs):
    for name in theirs:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("make", [SGD, partial(torch.optim.Adam, lr=0.01)])
def test_local_is_plain_training_of_each_model(make):
    subject = problem("perceptron")
    models, _, fleet = train(subject, Local(), make=make)
    for k, client in enumerate(subject.clients):
        model = subject.initial_model(3)
        optimizer = make(list(model.parameters()))
        for step in range(6):
            x, y = draw(client.train, 5, seed=3, client=k, step=step, purpose="update")
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(models[name][k], parameter.detach(), rtol=1e-4, atol=1e-6)
    assert fleet.ledger.samples.tolist() == [30] * 4


def test_by_similarity_reads_like_its_equation():
    subject = problem("linear")
    models, _, _ = train(subject, BySimilarity(binary(0.1), afo.FreshSamples(9), "normalised"), rounds=1, inner=1)
    fleet = Stacked(subject, seed=3)
    r = afo.FreshSamples(9)(fleet, fleet.initial(), {}, at(fleet, 0))[0].similarity
    for i in range(4):
        phi = 0.1 * (r[i] >= 0.1)
        alpha = phi / phi.sum()
        model = subject.initial_model(3)
        for k, client in enumerate(subject.clients):
            if alpha[k]:
                x, y = draw(client.train, 5, seed=3, client=k, step=0, purpose="update")
                (alpha[k] * F.cross_entropy(model(x), y)).backward()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(
                models[name][i], (parameter - 0.05 * parameter.grad).detach(), rtol=1e-4, atol=1e-6
            )


@pytest.mark.parametrize(
    "name",
    sorted(
        {*ALGORITHMS}
        - {"all-for-one-round", "ditto", "apfl", "apfl-as-published", "fedavg-finetune", "wga-bc-as-published"}
        - {"fedamp", "pfedgraph", "pfedme"}
    ),
)
def test_one_client_alone_is_local(name):
    subject = problem("perceptron", count=1)
    algorithm = ALGORITHMS[name](samples=9) if ("-binary" in name or "-continuous" in name) else ALGORITHMS[name]()
    assert_same(train(subject, algorithm)[0], train(subject, Local())[0])


def test_a_criterion_that_only_takes_the_identical_is_local():
    strict = CustomCriterion(lambda x: (x >= 1).to(x.dtype))
    subject = problem("perceptron")
    assert_same(train(subject, BySimilarity(strict, afo.FreshSamples(9)))[0], train(subject, Local())[0])


def test_the_oracle_with_one_cluster_keeps_all_models_equal():
    data = [afo.Client(c.train.tensors, c.test.tensors, cluster=0) for c in problem("linear").clients]
    model = nn.Sequential(nn.Flatten(), nn.Linear(32, 3))
    subject = afo.Problem(model, F.cross_entropy, settings=afo.Settings(batch_size=5), clients=data)
    models, _, _ = train(subject, Oracle())
    for tensor in models.values():
        torch.testing.assert_close(tensor, tensor[:1].expand_as(tensor))


def test_fedavg_with_one_step_is_gradient_descent_on_the_mean_loss():
    subject = problem("perceptron", sizes=(12, 6))
    models, info, _ = train(subject, FedAvg(), rounds=3, inner=1)
    model = subject.initial_model(3)
    optimizer = SGD(list(model.parameters()))
    for step in range(3):
        optimizer.zero_grad()
        for k, client in enumerate(subject.clients):
            x, y = draw(client.train, 5, seed=3, client=k, step=step, purpose="update")
            (len(client.train) / 36 * F.cross_entropy(model(x), y)).backward()
        optimizer.step()
    for name, parameter in model.named_parameters():
        for k in range(4):
            torch.testing.assert_close(models[name][k], parameter.detach(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(info.weights[2], torch.tensor([12, 6, 12, 6]).double() / 36)


def test_fedavg_gives_everyone_the_same_model_buffers_included():
    models, _, _ = train(problem("batch norm"), FedAvg())
    for tensor in models.values():
        assert (tensor == tensor[:1]).all()


def test_definition_and_normalised_weights_differ_and_both_are_recorded():
    subject = afo.synthetic(seed=3, dimension=3, clients=6)
    sums = {}
    for weighting in ("definition", "normalised"):
        _, info, _ = train(subject, BySimilarity(continuous(), afo.FreshSamples(4), weighting), rounds=1, inner=1)
        sums[weighting] = info.weights.sum(1)
    torch.testing.assert_close(sums["normalised"], torch.ones(6).double())
    assert (sums["definition"] >= 1 - 1e-9).all()
    assert sums["definition"].max() > 1.01


def test_where_beta_is_known_the_step_size_condition_is_enforced():
    subject = afo.synthetic(seed=3, dimension=3, clients=6)
    lr = 0.9 / subject.smoothness
    _, info, _ = train(
        subject,
        BySimilarity(binary(0.1), afo.FreshSamples(4), "definition"),
        rounds=1,
        inner=1,
        make=partial(torch.optim.SGD, lr=lr),
    )
    assert (lr * subject.smoothness * info.weights.sum(1) * info.scale <= 1 + 1e-9).all()
    assert (info.scale < 1).any()


def test_by_default_the_definition_is_used_only_where_beta_is_known():
    _, known, _ = train(
        afo.synthetic(seed=3, clients=6), BySimilarity(estimator=afo.FreshSamples(4)), rounds=1, inner=1
    )
    _, unknown, _ = train(problem("linear"), BySimilarity(estimator=afo.FreshSamples(9)), rounds=1, inner=1)
    assert known.scale is not None
    assert unknown.scale is None
    torch.testing.assert_close(unknown.weights.sum(1), torch.ones(4).double())


def test_the_oracle_says_when_it_cannot_know():
    clients = [afo.Client(c.train.tensors, c.test.tensors) for c in problem("linear").clients]
    model = nn.Sequential(nn.Flatten(), nn.Linear(32, 3))
    with pytest.raises(afo.InputError, match="true clusters"):
        train(afo.Problem(model, F.cross_entropy, clients=clients), Oracle())


def test_the_shortened_step_is_the_step_taken():
    subject = afo.synthetic(seed=3, dimension=3, clients=6)
    lr = 0.9 / subject.smoothness
    models, info, _ = train(
        subject,
        BySimilarity(binary(0.1), afo.FreshSamples(4), "definition"),
        rounds=1,
        inner=1,
        make=partial(torch.optim.SGD, lr=lr),
    )
    fleet = Stacked(subject, seed=3)
    gradient = gradients(fleet, fleet.initial(), info.weights, 0)["weight"]
    expected = fleet.initial()["weight"] - lr * info.scale[:, None, None] * gradient
    torch.testing.assert_close(models["weight"], expected)
    assert info.scale.min() < 0.9 < info.scale.max()  # rows differ, so columns would show


def test_among_similar_clients_those_with_more_data_count_more():
    subject = problem("linear", sizes=(12, 3, 7))
    _, info, fleet = train(subject, BySimilarity(continuous(), afo.FreshSamples(9), "normalised"), rounds=1, inner=1)
    sizes = torch.tensor([12, 3, 7, 12]).double()
    assert fleet.roster.sizes.equal(sizes)
    weighed = sizes * info.similarity
    torch.testing.assert_close(info.weights, weighed / weighed.sum(1, keepdim=True))
    assert (info.similarity > 0).sum() > 4
