import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import allforone as afo
from allforone.algorithms import ALGORITHMS
from allforone.collaboration import UpdateBatches, continuous, definition, normalised, trusted
from allforone.collaboration.update_batches import SMOOTHED, _nothing, remember, similarity_and_variance
from allforone.errors import InputError
from allforone.fleet import Optimizer, PairStatistics, Stacked
from allforone.problems import synthetic

from ..rounds import at, evaluate, train


def known(distance, norm, noise):
    """A memory that has seen these values, whole."""
    n = len(distance)
    tables = dict(zip(SMOOTHED, (distance, norm, noise, norm), strict=True))
    return {**_nothing(n), **{k: torch.as_tensor(v).double() for k, v in tables.items()}, "seen": torch.ones(n, n)}


def run(problem, algorithm, rounds, seed=3, inner=1, batch_size=None):
    fleet = Stacked(problem, seed=seed, batch_size=batch_size)
    lr = problem.settings.optimizer["lr"]
    optimizer = Optimizer(lambda parameters: torch.optim.SGD(parameters, lr=lr))
    return train(fleet, algorithm, optimizer, rounds, inner), fleet


@given(st.integers(2, 6), st.integers(0, 10**6))
def test_trusted_weights_are_the_clipped_gradients_weighted(n, seed):
    random = torch.Generator().manual_seed(seed)
    alpha = torch.rand(n, n, generator=random, dtype=torch.float64)
    trust = torch.rand(n, n, generator=random, dtype=torch.float64).fill_diagonal_(1)
    gradients = torch.randn(n, 4, generator=random, dtype=torch.float64)
    clipped = gradients[:, None] + trust[:, :, None] * (gradients[None] - gradients[:, None])
    torch.testing.assert_close(trusted(alpha, trust) @ gradients, (alpha[:, :, None] * clipped).sum(1))


def test_nobody_moves_a_client_further_than_its_own_gradient_is_long():
    random = torch.Generator().manual_seed(0)
    gradients = torch.randn(5, 7, generator=random, dtype=torch.float64) * torch.tensor([1, 1, 1, 1, 1e6])[:, None]
    distance = (gradients[:, None] - gradients).square().sum(2)
    norm = gradients.square().sum(1).expand(5, 5)
    memory = remember(_nothing(5), PairStatistics(distance, norm, torch.zeros(5, 5).double()), 0.9)
    added = memory["trust"][:, :, None] * (gradients[None] - gradients[:, None])
    assert (added.norm(dim=2) <= gradients.norm(dim=1)[:, None] * (1 + 1e-9)).all()


@pytest.mark.slow
def test_statistics_are_unbiased_whatever_the_noise():
    problem = synthetic(seed=5, dimension=3, clients=4, spread=1.0)
    slopes = -2 * torch.stack([client.train.optimum for client in problem.clients])  # ∇R_k(0) with H = I
    fleet = Stacked(problem, seed=1, batch_size=2)
    found = [fleet.compare(fleet.initial(), at(fleet, step)) for step in range(2000)]
    distance, norm, noise = (torch.stack(column) for column in zip(*found, strict=True))
    off = ~torch.eye(4, dtype=torch.bool)

    def assert_mean(values, true):
        error = values.std(0) / len(values) ** 0.5
        assert ((values.mean(0) - true).abs() < 4 * error).all()

    own = noise.diagonal(dim1=1, dim2=2)[:, :, None]
    assert_mean((distance - own - noise)[:, off], (slopes[:, None] - slopes).square().sum(2)[off])
    assert_mean((norm - noise).diagonal(dim1=1, dim2=2), slopes.square().sum(1))


def test_the_update_pays_for_it_no_sample_is_drawn_for_the_weights():
    problem = synthetic(seed=5, dimension=3, clients=4)
    for size in (1, 2, 3):
        _, together = run(problem, afo.AllForOne(), 7, batch_size=size)
        _, local = run(problem, afo.Local(), 7, batch_size=size)
        assert together.ledger.samples.equal(local.ledger.samples)


def test_the_first_round_is_local_and_every_row_sums_to_one():
    result, _ = run(synthetic(seed=5, dimension=3, clients=6), afo.AllForOne(), 12)
    assert result.weights[0].equal(torch.eye(6, dtype=result.weights.dtype))
    torch.testing.assert_close(result.weights.sum(2), torch.ones(12, 6, dtype=result.weights.dtype))
    assert (result.weights[-1] > 0).sum() > 6


def test_a_noisy_client_gets_less_weight_in_proportion_to_its_variance():
    noise = torch.tensor([1.0, 1.0, 4.0, 10.0]).expand(4, 4)
    r, variance = similarity_and_variance(known(torch.zeros(4, 4), torch.ones(4, 4), noise))
    weights = normalised(definition(r, continuous(), variance))
    torch.testing.assert_close(weights[0] / weights[0, 0], 1 / noise[0].double())
    torch.testing.assert_close(weights[3], torch.full((4,), 0.25).double())  # to the noisiest, all are as good as it is


def test_who_reports_no_noise_gains_nothing_by_it():
    noise = torch.tensor([1.0, 0.0, 1.0]).expand(3, 3)
    _, variance = similarity_and_variance(known(torch.zeros(3, 3), torch.ones(3, 3), noise))
    assert variance[0].tolist() == [1, 1, 1]


def test_who_sends_nothing_is_not_a_partner():
    memory = known(torch.full((2, 2), 0.1), torch.ones(2, 2), torch.ones(2, 2))
    assert similarity_and_variance(memory)[0][0, 1] > 0.5
    memory["length"] = torch.tensor([[1.0, 0.001], [1.0, 0.001]]).double()
    assert similarity_and_variance(memory)[0][0, 1] == 0


def test_pairs_never_seen_together_do_not_listen_to_each_other():
    statistics = PairStatistics(torch.zeros(3, 3).double(), torch.ones(3, 3).double(), torch.ones(3, 3).double())
    for table in statistics:
        table[1] = table[:, 1] = torch.nan
    memory = remember(_nothing(3), statistics, 0.9)
    r, variance = similarity_and_variance(memory)
    assert r.tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 1]] and variance.isfinite().all()
    assert all(value.isfinite().all() for value in memory.values())


def test_gradients_of_zero_and_without_noise_are_no_trouble():
    zero = torch.zeros(3, 3).double()
    memory = remember(_nothing(3), PairStatistics(zero, zero, zero), 0.9)
    r, variance = similarity_and_variance(memory)
    assert r.equal(torch.eye(3).double()) and variance.isfinite().all() and (variance > 0).all()


def test_statistics_may_be_refreshed_less_often():
    problem = synthetic(seed=5, dimension=3, clients=4)
    result, _ = run(problem, ALGORITHMS["all-for-one"](every=4), 12)
    changed = [not a.equal(b) for a, b in zip(result.weights[:-1], result.weights[1:], strict=True)]
    assert 2 <= sum(changed) <= 6 and not all(changed)


@pytest.mark.parametrize("wrong", [{"memory": 1.0}, {"memory": -0.1}, {"every": 0}])
def test_wrong_options_are_refused(wrong):
    with pytest.raises(InputError, match="must be"):
        UpdateBatches(**wrong)


@pytest.mark.slow
@pytest.mark.parametrize(("dimension", "rounds", "target"), [(2, 40, -20), (10, 200, -26)])
def test_at_equal_samples_it_comes_near_the_oracle(dimension, rounds, target):
    ends = {}
    for algorithm in ("all-for-one", "local"):
        made = [
            run(synthetic(seed=seed, dimension=dimension), ALGORITHMS[algorithm](), rounds, seed)
            for seed in ((127, 496, 1729, 5, 6) if dimension == 2 else (127, 496))
        ]
        ends[algorithm] = torch.stack([evaluate(f, r.stacked).excess.clamp(min=1e-28).log10().mean() for r, f in made])
    assert ends["all-for-one"].mean() <= target
    assert ends["all-for-one"].mean() < ends["local"].mean() - 7
