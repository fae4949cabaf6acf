"""The weights of least error: limiting cases, what cannot be used, and the quadratic program behind them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import allforone as afo
from allforone.algorithms import ALGORITHMS, LeastError, advance
from allforone.collaboration import least_error as rule
from allforone.collaboration.simplex import least_quadratic
from allforone.fleet import Look, Optimizer, Sketch, Stacked
from allforone.testing import MOMENTUM, small_problem


def forms(seed, rows=3, size=5):
    random = torch.Generator().manual_seed(seed)
    roots = torch.randn(rows, size, size, generator=random, dtype=torch.float64)
    return roots @ roots.mT + 0.1 * torch.eye(size, dtype=torch.float64)


@given(st.integers(0, 10**6))
def test_no_exchange_between_two_places_lowers_the_form(seed):
    form = forms(seed)
    random = torch.Generator().manual_seed(seed)
    allowed = (torch.rand(3, 5, generator=random) < 0.7) | (torch.arange(5) == 0)
    found = least_quadratic(form, allowed)
    torch.testing.assert_close(found.sum(1), torch.ones(3).double())
    assert (found >= 0).all() and (found[~allowed] == 0).all()
    slope = torch.einsum("mij,mj->mi", form, found)
    least = torch.where(allowed, slope, torch.inf).amin(1, keepdim=True)
    assert torch.where(found > 1e-9, slope - least, 0).max() < 1e-6 * slope.abs().max()


def test_a_sketch_keeps_inner_products_and_short_vectors_as_they_are():
    random = torch.Generator().manual_seed(0)
    vectors = torch.randn(200, 5000, generator=random, dtype=torch.float64)
    vectors[1::2] = 0.8 * vectors[::2] + 0.6 * vectors[1::2]
    short = Sketch(5000, 64)(vectors)
    products = [(v[::2] * v[1::2]).sum(1) / 5000 for v in (vectors, short)]
    assert (products[1] - products[0]).mean().abs() < 0.05 and (products[1] - products[0]).std() < 2 / 64**0.5
    assert Sketch(64, 64)(vectors[:, :64]) is not None and Sketch(10, 64)(vectors[:, :10]).equal(vectors[:, :10])


def looked(a, b, read=16.0):
    """A look from halves [N, N, P] that are not sketched."""
    mean = (a + b) / 2
    own = mean.diagonal().T[:, None]
    tables = [v.square().sum(2) for v in (mean - own, mean, (a - b) / 2)]
    return Look(*tables, torch.stack([a, b], 2), torch.full((len(a),), read, dtype=torch.float64))


def weights_after(looks, sizes, batch=8):
    n = len(sizes)
    setting = rule.Setting(torch.full((n,), float(batch)).double(), 1 / torch.tensor(sizes, dtype=torch.float64))
    memory = rule.nothing(n, looks[0].halves.shape[-1])
    for look in looks:
        memory = rule.remember(memory, look, setting)
    terms = rule.weigh_up(memory, setting, torch.full((n,), 0.5, dtype=torch.float64))
    return rule.bounded(rule.least_error(terms), memory, looks[-1], setting)


def halves(gradients, noise, seed, count=12):
    """Looks at clients whose true gradient at every model is gradients[k]."""
    random = torch.Generator().manual_seed(seed)
    n, p = gradients.shape

    def half():
        return gradients.expand(n, n, p) + noise * torch.randn(n, n, p, generator=random, dtype=torch.float64)

    return [looked(half(), half()) for _ in range(count)]


def test_twins_share_alike_and_strangers_not_at_all():
    one = torch.randn(20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = weights_after(halves(torch.stack([one] * 4 + [-one] * 4), 0.5, 0), [float("inf")] * 8)
    assert (found[:4, 4:].sum(1) < 0.02).all() and (found[4:, :4].sum(1) < 0.02).all()
    assert (found[:4, :4].sum(1) > 0.98).all() and found[:4, :4].max() < 0.5


def test_without_noise_whoever_differs_trains_alone():
    gradients = torch.randn(6, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = weights_after(halves(gradients, 1e-6, 0), [float("inf")] * 6)
    assert found.diagonal().min() > 0.999


def test_few_samples_make_partners_of_those_that_many_would_tell_apart():
    random = torch.Generator().manual_seed(1)
    gradients = 1 + 0.3 * torch.randn(6, 20, generator=random, dtype=torch.float64)
    few, many = (weights_after(halves(gradients, 0.2, 0), [size] * 6).diagonal().mean() for size in (5.0, 1e9))
    assert few < many - 0.2


@given(
    scale=st.sampled_from([0.0, 1e-150, 1e-20, 1.0, 1e20, 1e100]),
    broken=st.sampled_from([torch.nan, torch.inf, 0.0]),
    n=st.sampled_from([1, 2, 5]),
    seed=st.integers(0, 10**4),
)
def test_whatever_arrives_rows_sum_to_one(scale, broken, n, seed):
    random = torch.Generator().manual_seed(seed)
    gradients = scale * torch.randn(n, 7, generator=random, dtype=torch.float64)
    looks = halves(gradients, scale, seed, count=3)
    for look in looks[1:]:
        for table in look[:4]:
            table[:, -1] = broken if n > 2 else table[:, -1]
    found = weights_after(looks, [float(1 + seed % 9)] * n)
    assert found.isfinite().all() and (found >= -1e-12).all()
    torch.testing.assert_close(found.sum(1), torch.ones(n).double())


def test_one_client_that_sends_nan_sends_nobody_else_to_local():
    one = torch.randn(20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    looks = halves(torch.stack([one] * 5), 0.5, 0)
    for look in looks:
        for table in look[:4]:
            table[:, 4] = torch.nan
    found = weights_after(looks, [float("inf")] * 5)
    assert (found[:4, 4] == 0).all() and found[:4].diagonal().max() < 0.5


def test_identical_clients_are_averaged_and_one_alone_is_local():
    client = small_problem().clients[0]
    same = [afo.Client(client.train.tensors, client.test.tensors) for _ in range(4)]
    subject = small_problem()
    problem = afo.Problem(subject.model, subject.loss, settings=subject.settings, clients=same)
    result = afo.train(problem, algorithm=LeastError(), rounds=8)
    assert (result.weights[-1] > 0.1).all()
    alone = afo.Problem(subject.model, subject.loss, settings=subject.settings, clients=same[:1])
    ours, local = (afo.train(alone, algorithm=a, rounds=3).stacked for a in (LeastError(), afo.Local()))
    assert all(torch.allclose(ours[name], local[name]) for name in local)


@pytest.mark.slow
@pytest.mark.parametrize("split", ["iid", "dirichlet", "cluster", "shards"])
def test_on_digits_it_is_within_a_point_of_the_best_whichever_that_is(split):
    def accuracy(name):
        found = afo.train(
            afo.digits(seed=2024, split=split), algorithm=ALGORITHMS[name](), seed=2024, evaluate_every=30
        )
        return found.metrics.filter(round=30)["accuracy"].mean()

    best = max(accuracy(name) for name in ("local", "fedavg", *(["oracle"] if split in ("iid", "cluster") else [])))
    assert accuracy("all-for-one-least-error") > best - 0.01


def test_under_adam_the_step_has_no_meaning_and_noise_counts_whole():
    optimizer = Optimizer(torch.optim.Adam)
    assert optimizer.step_size is None and Optimizer(MOMENTUM).step_size == pytest.approx(0.5)
    fleet = Stacked(small_problem(), seed=0)
    state, info = LeastError().init(fleet.initial(), optimizer), None
    for number in range(3):
        state, info = advance(LeastError(), state, fleet, fleet.begin(number + 1, range(number, number + 1)))
    torch.testing.assert_close(info.weights.sum(1), torch.ones(4).double())
