"""β, μ, σ_k² and heterogeneity: exact on quadratics, and estimated close to that."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import allforone as afo
from allforone.errors import InputError
from allforone.problems.data import draw
from allforone.theory import (
    Seen,
    estimate,
    extremes,
    hessian_product,
    known_constants,
    quadratics,
    sufficient_cluster,
)
from allforone.theory.estimation import gradient_noise, moments

OPTIONS = {"dimension": 3, "clients": 4, "clusters": 2, "spectrum": [0.5, 1.0, 2.0], "noise": 0.5, "spread": 0.2}


@pytest.fixture(scope="module")
def problem():
    return afo.synthetic(**OPTIONS)


@pytest.mark.parametrize("dimension", [1, 5, 25])
def test_lanczos_finds_the_whole_spectrum_of_a_small_matrix(dimension):
    random = torch.Generator().manual_seed(dimension)
    matrix = torch.randn(dimension, dimension, generator=random, dtype=torch.float64)
    matrix = matrix + matrix.T
    found = extremes(lambda vector: matrix @ vector, torch.randn(dimension, generator=random, dtype=torch.float64))
    values = torch.linalg.eigvalsh(matrix)
    assert (found.least, found.greatest) == pytest.approx((float(values[0]), float(values[-1])), abs=1e-9)


def test_lanczos_brackets_the_extremes_of_a_large_matrix():
    random = torch.Generator().manual_seed(0)
    values = torch.cat([torch.rand(398, generator=random, dtype=torch.float64), torch.tensor([-2.0, 5.0]).double()])
    found = extremes(lambda vector: values * vector, torch.randn(400, generator=random, dtype=torch.float64))
    assert found.least == pytest.approx(-2, abs=max(found.error, 1e-6))
    assert found.greatest == pytest.approx(5, abs=max(found.error, 1e-6))
    assert found.error < 0.01


def test_the_hessian_product_is_that_of_the_second_derivative():
    point = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)

    def loss(x):
        return (x[0] * x[1] ** 2 + torch.sin(x[2]) * x[0]) ** 2

    hessian = torch.func.hessian(loss)(point)
    vector = torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64)
    torch.testing.assert_close(hessian_product(loss, point)(vector), hessian @ vector)


def test_the_constants_of_the_synthetic_problem_are_known(problem):
    known = known_constants(problem, seed=127)
    assert known.smoothness == pytest.approx(4)
    assert known.convexity == pytest.approx(1)
    assert known.estimated is None
    start = [client.test.excess({"weight": torch.zeros(1, 3, dtype=torch.float64)}) for client in problem.clients]
    torch.testing.assert_close(known.excess, torch.stack(start))
    assert known_constants(afo.digits(), seed=127) is None
    biased = afo.Problem(nn.Linear(3, 1, dtype=torch.float64), problem.loss, clients=problem.clients)
    assert known_constants(biased, seed=127) is None


def test_the_noise_in_closed_form_is_that_of_batches(problem):
    known, point = quadratics(problem), torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    exact = known.variance(point, batch_size=2)
    for k, client in enumerate(problem.clients):
        x, y = draw(client.train, 40_000, seed=0, client=k, step=0, purpose="test")
        each = 2 * x * (x @ point[:, None] - y)
        pairs = each.reshape(-1, 2, 3).mean(1)
        noise, error = gradient_noise(pairs)
        assert noise == pytest.approx(float(exact[k]), abs=5 * error)
        torch.testing.assert_close(pairs.mean(0), known.gradients(point)[k], rtol=0.1, atol=0.3)


def test_the_noise_is_greatest_at_a_corner_of_the_region(problem):
    known, constants = quadratics(problem), known_constants(problem, seed=127)
    share = torch.distributions.Dirichlet(torch.ones(5, dtype=torch.float64)).sample((200,))
    corners = torch.cat([torch.zeros(1, 3, dtype=torch.float64), known.optima])
    assert (known.variance(share @ corners, 2) <= constants.variance * (1 + 1e-9)).all()


def test_estimates_come_close_to_the_known_constants(problem):
    known, found = known_constants(problem, seed=127), estimate(problem, seed=127, rounds=15, points=10, samples=4096)
    assert found.estimated is not None and found.estimated.convex
    assert found.smoothness == pytest.approx(known.smoothness, rel=0.1)
    assert found.convexity == pytest.approx(known.convexity, rel=0.1)
    torch.testing.assert_close(found.excess, known.excess, rtol=0.15, atol=1.0)
    assert (found.variance < 2.5 * known.variance).all() and (found.variance > known.variance / 4).all()


def test_estimated_partners_are_not_promised_for_longer_than_the_exact_constants_do():
    problem = afo.synthetic(dimension=3, clients=4, clusters=1, spread=1.0)  # alike matrices: the constants are tight
    exact = known_constants(problem, seed=127).least_precision(afo.continuous())
    promised = estimate(problem, seed=127, rounds=15, points=10, samples=4096).least_precision(afo.continuous())
    assert (promised >= 0.9 * exact).all()
    assert promised.isfinite().all()


def test_nothing_is_promised_closer_to_the_optimum_than_was_looked():
    own, apart = torch.full((2, 2, 3), 4.0, dtype=torch.float64), torch.full((2, 2, 3), 1.0, dtype=torch.float64)
    apart[range(2), range(2)] = 0
    seen = Seen(own, apart, torch.ones(2, 3, dtype=torch.float64))
    assert sufficient_cluster(seen.heterogeneity(4.0), afo.continuous(), 1.0, 2.0).all()
    assert torch.equal(sufficient_cluster(seen.heterogeneity(3.9), afo.continuous(), 1.0, 1.95), torch.eye(2).bool())
    assert float(seen.least_gradient(afo.continuous())[0, 1]) == 4


def test_partners_seen_are_those_listened_to_without_a_break_from_the_start():
    excess = torch.tensor([[4.0, 1.0, 2.0, 3.0]] * 2, dtype=torch.float64)
    own = torch.ones(2, 2, 4, dtype=torch.float64)
    apart = torch.tensor([[[0.0] * 4, [0.2, 0.3, 1.5, 0.5]], [[2.0, 0.1, 0.1, 0.1], [0.0] * 4]], dtype=torch.float64)
    seen = Seen(own, apart, excess)
    torch.testing.assert_close(
        seen.least_excess(afo.continuous()), torch.tensor([[1.0, 3.0], [torch.inf, 1.0]], dtype=torch.float64)
    )
    variance = torch.tensor([1.0, 2.0], dtype=torch.float64)
    found = [float(seen.effective_variance(afo.continuous(), variance, epsilon)[0]) for epsilon in (2.5, 1.5, 9.0)]
    assert found == pytest.approx([1 / (1 + 0.5**2 / 2), 1.0, 1.0])  # at 2 the other one was of no use


def test_moments_lie_on_the_path():
    paths = torch.arange(5.0)[:, None, None].expand(5, 2, 3)
    found = moments(paths, 50, seed=0)
    assert found.shape == (50, 2, 3)
    assert 0 <= float(found.min()) < 1 and 3 < float(found.max()) <= 4


def test_constants_of_a_network_are_estimated_and_say_so():
    random = torch.Generator().manual_seed(0)
    data = [(torch.randn(40, 4, generator=random), torch.randint(3, (40,), generator=random)) for _ in range(3)]
    network = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))
    problem = afo.Problem(network, F.cross_entropy, clients=[afo.Client(pair, pair) for pair in data])
    found = estimate(problem, seed=1, rounds=4, points=5)
    assert found.smoothness > 0 and found.convexity > 0
    assert (found.variance > 0).all() and (found.excess > 0).all()
    assert found.estimated is not None and not found.estimated.convex
    heterogeneity = found.heterogeneity(1.0)
    assert (heterogeneity.b.diagonal() == 0).all() and (heterogeneity.c.diagonal() == 0).all()


def test_too_few_points_are_refused(problem):
    with pytest.raises(InputError, match="at least 3 points"):
        estimate(problem, seed=1, points=2)
