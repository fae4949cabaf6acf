"""All-for-one: what it is in the limits, and how near it comes to the best without being told which world it is."""

from functools import partial

import pytest
import torch

import allforone as afo
from allforone.algorithms import ALGORITHMS, AllForOne, Local
from allforone.errors import InputError
from allforone.fleet import Optimizer, Stacked, everybody
from allforone.problems import synthetic
from allforone.testing import MOMENTUM, small_problem

from ..rounds import at, evaluate, play, train


def run(problem, algorithm, rounds, seed=3):
    fleet = Stacked(problem, seed=seed)
    optimizer = Optimizer(partial(torch.optim.SGD, lr=problem.settings.optimizer["lr"]))
    return train(fleet, algorithm, optimizer, rounds, evaluate_every=rounds), fleet


def of(clients):
    """A small problem of these clients."""
    subject = small_problem()
    return afo.Problem(subject.model, subject.loss, settings=subject.settings, clients=clients)


def test_of_streams_the_first_round_is_local_and_every_row_sums_to_one():
    result, _ = run(synthetic(seed=5, dimension=3, clients=6), AllForOne(), 12)
    assert result.weights[0].equal(torch.eye(6, dtype=result.weights.dtype))
    torch.testing.assert_close(result.weights.sum(2), torch.ones(12, 6, dtype=result.weights.dtype))
    assert (result.weights[-1] > 0).sum() > 6


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_what_a_round_tells_is_finite_and_rows_of_those_present_sum_to_one(participation):
    fleet = Stacked(small_problem(), seed=3, participation=participation)
    result = train(fleet, AllForOne(), Optimizer(MOMENTUM), 8, inner=2)
    sums, there = result.weights.sum(2), result.metrics.filter(result.metrics["round"] > 0)["present"].to_torch()
    torch.testing.assert_close(sums, there.reshape(8, 4).to(sums.dtype))
    _, info = play(fleet, AllForOne(), MOMENTUM, rounds=8, inner=2)
    assert all(table.isfinite().all() for table in (info.noise, info.trust))
    for table in (info.bias, info.similarity):  # NaN of those who have not met
        assert (table.isfinite() | table.isnan()).all()


def test_identical_clients_are_averaged_and_one_alone_is_local():
    client = small_problem().clients[0]
    same = [afo.Client(client.train.tensors, client.test.tensors) for _ in range(4)]
    assert (afo.train(of(same), algorithm=AllForOne(), rounds=8).weights[-1] > 0.1).all()
    ours, local = (afo.train(of(same[:1]), algorithm=a, rounds=3).stacked for a in (AllForOne(), Local()))
    assert all(torch.allclose(ours[name], local[name]) for name in local)


@pytest.mark.parametrize("exchange", ["update", "round"])
def test_together_for_all_rounds_is_one_model_trained_on_everybody(exchange):
    """With one update a round it is FedAvg with one local update; the halves of a batch are as large as each other."""
    told = {"rounds": 5, "inner": 1, "lr": 0.2, "batch_size": 8, "progress": False}
    ours = afo.train(small_problem(), algorithm=AllForOne(exchange=exchange, together=5), **told)
    average = afo.train(small_problem(), algorithm=afo.FedAvg(), **told)
    for name, models in ours.stacked.items():
        torch.testing.assert_close(models, models[:1].expand_as(models))
        torch.testing.assert_close(models, average.stacked[name], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(ours.weights, ours.weights[:1, :1].expand_as(ours.weights))


@pytest.mark.parametrize("exchange", ["update", "round"])
def test_together_ends_after_its_rounds_and_counts_those_present_alone(exchange):
    fleet = Stacked(small_problem(), seed=3, participation=0.6)
    result = train(fleet, AllForOne(exchange=exchange, together=6), Optimizer(MOMENTUM), 8, inner=2)
    there = result.metrics.filter(result.metrics["round"] > 0)["present"].to_torch().reshape(8, 4).bool()
    sizes = fleet.roster.sizes.double()
    for weights, here in zip(result.weights[:6], there[:6], strict=True):
        share = torch.where(here, sizes, 0) / sizes[here].sum().clamp(min=1)
        torch.testing.assert_close(weights, torch.where(here[:, None], share, 0), check_dtype=False)
    full = afo.train(small_problem(), algorithm=AllForOne(exchange=exchange, together=3), rounds=5, progress=False)
    assert full.weights[3].diagonal().min() > full.weights[2].diagonal().max()


@pytest.mark.parametrize("wrong", [{"together": 0}, {"together": 1.5}, {"together": 3, "correct": True}])
def test_together_must_be_a_number_of_rounds_and_nothing_is_corrected_in_them(wrong):
    with pytest.raises(InputError, match=r"together is|nothing to correct"):
        AllForOne(**wrong)


def test_clients_of_one_sample_train_with_finite_models():
    def first(client):
        return afo.Client(tuple(part[:1] for part in client.train.tensors), client.test.tensors)

    clients = small_problem().clients
    for given in ([first(c) for c in clients], [first(clients[0]), *clients[1:]]):
        result = afo.train(of(given), algorithm=AllForOne(), rounds=6)
        assert all(tensor.isfinite().all() for tensor in result.stacked.values())
        torch.testing.assert_close(result.weights.sum(2), torch.ones(6, 4, dtype=result.weights.dtype))


def test_gradients_of_zero_move_nobody():
    problem = small_problem()
    still = afo.Problem(problem.model, lambda o, t: 0 * o.sum(), settings=problem.settings, clients=problem.clients)
    result = afo.train(still, algorithm=AllForOne(), rounds=3, lr=0.1)
    start = Stacked(still, seed=result.config.seed).initial()
    assert all(result.stacked[name].equal(start[name]) for name in start)
    torch.testing.assert_close(result.weights.sum(2), torch.ones(3, 4, dtype=result.weights.dtype))


def test_under_adam_the_step_has_no_meaning_and_noise_counts_whole():
    optimizer = Optimizer(torch.optim.Adam)
    assert optimizer.step_size is None and Optimizer(MOMENTUM).step_size == pytest.approx(0.5)
    _, info = play(Stacked(small_problem(), seed=0), AllForOne(), torch.optim.Adam, rounds=3)
    torch.testing.assert_close(info.weights.sum(1), torch.ones(4).double())


@pytest.mark.slow
def test_distances_and_norms_are_unbiased_once_the_noise_is_taken_off():
    problem = synthetic(seed=5, dimension=3, clients=4, spread=1.0)
    slopes = -2 * torch.stack([client.train.optimum for client in problem.clients])  # ∇R_k(0) with H = I
    fleet = Stacked(problem, seed=1, batch_size=2)
    found = [fleet.look(fleet.initial(), at(fleet, step), everybody(4), 2, 0) for step in range(2000)]
    distance, norm, noise = (torch.stack(column) for column in list(zip(*found, strict=True))[1:4])
    off = ~torch.eye(4, dtype=torch.bool)

    def assert_mean(values, true):
        error = values.std(0) / len(values) ** 0.5
        assert ((values.mean(0) - true).abs() < 4 * error).all()

    own = noise.diagonal(dim1=1, dim2=2)[:, :, None]
    assert_mean((distance - own - noise)[:, off], (slopes[:, None] - slopes).square().sum(2)[off])
    assert_mean((norm - noise).diagonal(dim1=1, dim2=2), slopes.square().sum(1))


@pytest.mark.slow
@pytest.mark.parametrize(("dimension", "rounds", "target"), [(2, 40, -18.5), (10, 200, -26)])
def test_at_equal_samples_it_comes_near_the_oracle(dimension, rounds, target):
    ends = {}
    for name in ("all-for-one", "local"):
        made = [
            run(synthetic(seed=seed, dimension=dimension), ALGORITHMS[name](), rounds, seed)
            for seed in ((127, 496, 5) if dimension == 2 else (127,))
        ]
        ends[name] = torch.stack([evaluate(f, r.stacked).excess.clamp(min=1e-28).log10() for r, f in made])
    assert ends["all-for-one"].mean(1).max() <= target  # the oracle: −22 and −28
    assert ends["all-for-one"].mean() < ends["local"].mean() - 7
    assert (ends["all-for-one"] < ends["local"] + 1).all()  # nobody ends more than a decade above its training alone


@pytest.mark.slow
@pytest.mark.parametrize("split", ["dirichlet", "cluster"])  # `python -m benchmarks.judge` does more
def test_on_digits_it_is_within_a_point_of_the_best_whichever_that_is(split):
    def accuracy(name):
        problem = afo.digits(seed=2024, split=split)
        found = afo.train(problem, algorithm=ALGORITHMS[name](), seed=2024, evaluate_every=30)
        return found.metrics.filter(round=30)["accuracy"].mean()

    best = max(accuracy(name) for name in ("local", "fedavg", *(["oracle"] if split == "cluster" else [])))
    assert accuracy("all-for-one") > best - 0.01


def test_to_more_than_a_hundred_clients_few_partners_are_advised_unless_something_is_chosen():
    assert AllForOne().advice(100) is None
    said = AllForOne().advice(101)
    assert "101 clients" in said and "-a partners=16 -a candidates=32" in said and "\n" not in said
    for chosen in ({"partners": 8}, {"candidates": 8}, {"correct": True}, {"exchange": "round"}):
        assert AllForOne(**chosen).advice(1000) is None
    assert Local().advice(1000) is None
