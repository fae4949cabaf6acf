"""The weights of least error: limiting cases, and what cannot be used."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from allforone.collaboration import least_error as rule
from allforone.collaboration import trusted
from allforone.fleet import Sketch, everybody

from .looks import each, halves, looked, remembered, setting_of


def test_a_sketch_keeps_inner_products_and_short_vectors_as_they_are():
    random = torch.Generator().manual_seed(0)
    vectors = torch.randn(200, 5000, generator=random, dtype=torch.float64)
    vectors[1::2] = 0.8 * vectors[::2] + 0.6 * vectors[1::2]
    short = Sketch(5000, 64)(vectors)
    products = [(v[::2] * v[1::2]).sum(1) / 5000 for v in (vectors, short)]
    assert (products[1] - products[0]).mean().abs() < 0.05 and (products[1] - products[0]).std() < 2 / 64**0.5
    assert Sketch(64, 64)(vectors[:, :64]) is not None and Sketch(10, 64)(vectors[:, :10]).equal(vectors[:, :10])


@pytest.mark.parametrize("said", [0.0, 1e-300, torch.inf, torch.nan])
def test_whatever_a_site_says_of_its_first_update_nobody_takes_its_own_data_for_a_stream(said):
    (look,) = halves(torch.ones(2, 5).double(), 0.5, seed=0, count=1)
    first = torch.tensor([[torch.inf, said], [said, torch.inf]]).double()
    share = rule.sampled(rule.nothing(2, 2, 5), look, first, 20)
    assert (share > 0).all() and (share <= 1).all()
    assert share.eq(1).all() or said < 1  # what cannot be told takes nothing off


def test_walks_that_pass_the_samples_often_leave_less_to_chance():
    random = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 2, 2, 20, generator=random, dtype=torch.float64)
    a[0, 0] = b[0, 0] = 1.0  # one's own samples are fitted: they show no noise
    chances = []
    for updates in (1, 5, 10, 100):  # of 8 samples, by a client that has 40
        setting = setting_of([40, 40], parameters=50, updates=updates)
        memory = remembered([looked(a, b)], setting)
        noise = rule.noises(memory, setting)
        chances.append(float(rule.differences(memory, setting, noise.own, noise.fresh).chance[0, 1]))
    assert chances[0] == chances[1] > chances[2] > chances[3]


def weights_after(looks, sizes):
    setting, kappa = setting_of(sizes), each(0.5, len(sizes))
    memory = remembered(looks, setting)
    weights = rule.least_error(rule.weigh_up(memory, setting, kappa))
    return trusted(weights, rule.trust(memory, looks[-1], setting, kappa), setting.itself)


def test_twins_share_alike_and_strangers_not_at_all():
    one = torch.randn(20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = weights_after(halves(torch.stack([one] * 4 + [-one] * 4), 0.5, 0), [torch.inf] * 8)
    assert (found[:4, 4:].sum(1) < 0.02).all() and (found[4:, :4].sum(1) < 0.02).all()
    assert (found[:4, :4].sum(1) > 0.98).all() and found[:4, :4].max() < 0.5


def test_without_noise_whoever_differs_trains_alone():
    gradients = torch.randn(6, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = weights_after(halves(gradients, 1e-6, 0), [torch.inf] * 6)
    assert found.diagonal().min() > 0.999


def test_few_samples_make_partners_of_those_that_many_would_tell_apart():
    random = torch.Generator().manual_seed(1)
    gradients = 1 + 0.3 * torch.randn(6, 20, generator=random, dtype=torch.float64)
    few, many = (weights_after(halves(gradients, 0.2, 0), [size] * 6).diagonal().mean() for size in (5, 10**9))
    assert few < many - 0.2


@given(
    scale=st.sampled_from([0.0, 1e-150, 1e-20, 1.0, 1e20, 1e100]),
    broken=st.sampled_from([torch.nan, torch.inf, 0.0, 1e200]),
    n=st.sampled_from([1, 2, 3, 5]),
    seed=st.integers(0, 10**4),
)
def test_whatever_arrives_rows_sum_to_one(scale, broken, n, seed):
    random = torch.Generator().manual_seed(seed)
    gradients = scale * torch.randn(n, 7, generator=random, dtype=torch.float64)
    looks = halves(gradients, scale * (seed % 3), seed, count=3)
    for look in looks[1:]:
        for table in look[1:5]:
            table[:, -1] = broken if n > 2 else table[:, -1]
    found = weights_after(looks, [[1, 2, 9, torch.inf][seed % 4]] * n)
    assert found.isfinite().all() and (found >= -1e-12).all()
    torch.testing.assert_close(found.sum(1), torch.ones(n).double())


def test_one_client_that_sends_nan_sends_nobody_else_to_local():
    one = torch.randn(20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    looks = halves(torch.stack([one] * 5), 0.5, 0)
    for look in looks:
        for table in look[1:5]:
            table[:, 4] = torch.nan
    found = weights_after(looks, [torch.inf] * 5)
    assert (found[:4, 4] == 0).all() and found[:4].diagonal().max() < 0.5


def test_identical_clients_count_the_same_however_few_samples_they_have():
    one = torch.randn(1, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    a, b = one.expand(5, 5, 20), -0.5 * one.expand(5, 5, 20)
    for size in (1, 4, 1000, torch.inf):
        torch.testing.assert_close(weights_after([looked(a, b)] * 3, [size] * 5), torch.full((5, 5), 0.2).double())


def test_samples_are_wholly_fitted_by_as_many_parameters_and_hardly_by_half_as_many():
    sizes = [1, 20, 40, 2000, torch.inf]
    assert setting_of(sizes, parameters=20).unfitted.tolist() == [0, 0, 1 - 0.5**4, 1 - 0.01**4, 1]
    assert setting_of(sizes, batch=8).batch[0].tolist() == [1, 8, 8, 8, 8]
    assert setting_of(sizes).rarity[0].tolist() == [1, 1 / 20, 1 / 40, 1 / 2000, 0]


def test_samples_of_one_population_differ_by_what_is_said_to_be_chance():
    random = torch.Generator().manual_seed(5)
    n, size, parameters = 20, 40, 14
    x = torch.randn(n, size, parameters, generator=random, dtype=torch.float64)
    y = (torch.rand(n, size, generator=random) < torch.sigmoid(x.sum(2) / 2)).double()
    model = torch.zeros(parameters, dtype=torch.float64)
    for _ in range(20):  # trained on everybody's samples, as with partners
        model -= 0.5 * ((torch.sigmoid(x @ model) - y)[..., None] * x).mean((0, 1))
    each_sample = (torch.sigmoid(x @ model) - y)[..., None] * x
    setting, looks = setting_of([size] * n, parameters), []
    for _ in range(40):
        shown = each_sample[:, torch.randperm(size, generator=random)[:16]]
        looks.append(looked(*(shown[:, half].mean(1).expand(n, n, -1) for half in (slice(8), slice(8, 16)))))
    memory = remembered(looks, setting)
    of_looks = memory["spread"] / memory["weight"].square()
    noise = rule.noises(memory, setting)
    said = rule.differences(memory, setting, noise.own, noise.least).chance - of_looks
    mean = each_sample.mean(1)
    found = (mean[:, None] - mean).square().sum(2) / memory["size"].exp()[:, None]
    others = ~torch.eye(n, dtype=torch.bool)
    assert 0.8 < said[others].mean() / found[others].mean() < 1.2


def test_of_streams_chance_is_taken_off_the_difference_by_and_by():
    one = torch.randn(20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    looks, setting = halves(torch.stack([one, -one]), 0.5, 0, count=40), setting_of([torch.inf] * 2)
    for count in (1, 5, 40):
        memory = remembered(looks[:count], setting)
        length = (memory["difference"] / memory["weight"][..., None]).square().sum(2)
        drawn = memory["spread"] / memory["weight"].square()
        bias = rule.weigh_up(memory, setting, each(0.5, 2)).bias
        seen = 1 - rule.NOISE_KEPT**count
        torch.testing.assert_close(bias[0, 1], (length - seen * drawn)[0, 1])


def test_of_finite_data_all_chance_is_taken_off_from_the_first_look_on():
    one = torch.randn(20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    looks, setting = halves(torch.stack([one] * 6), 2.0, 0, count=3), setting_of([5000] * 6)
    for count in (1, 3):
        memory = remembered(looks[:count], setting)
        noise = rule.noises(memory, setting)
        chance = rule.differences(memory, setting, noise.own, noise.own).chance
        assert (chance >= memory["spread"] / memory["weight"].square()).all()
    assert weights_after(looks, [5000] * 6).diagonal().mean() < 0.3


def test_a_twin_stream_is_a_stranger_at_first_sight_and_one_of_us_later():
    one = torch.randn(20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    looks = halves(torch.stack([one] * 6), 2.0, 0, count=60)
    first, later = (weights_after(looks[:count], [torch.inf] * 6).diagonal().mean() for count in (1, 60))
    assert later < 0.3 < first


def test_a_partner_may_add_more_the_smaller_the_step():
    random = torch.Generator().manual_seed(0)
    gradients = torch.randn(5, 7, generator=random, dtype=torch.float64) * torch.tensor([1, 1, 1, 1, 1e6])[:, None]
    look, setting = looked(*[gradients.expand(5, 5, 7)] * 2), setting_of([torch.inf] * 5)
    memory, before = remembered([look], setting), torch.zeros(5, 5)
    for kappa in (1, 0.5, 0.1, rule.LEAST_CURVATURE):
        share = rule.trust(memory, look, setting, each(kappa, 5))
        added = share[:, :, None] * (gradients - gradients[:, None])
        reach = (rule.REACH / kappa) ** 0.5 * gradients.norm(dim=1)
        assert (added.norm(dim=2) <= reach[:, None] * (1 + 1e-9)).all()
        assert (share >= before).all() and 0 < share[0, 4] < 1 and share[0, 4] > before[0, 4]
        before = share
    assert (share.diagonal() == 1).all()


def test_who_does_not_answer_is_not_trusted():
    look = looked(*[torch.ones(3, 3, 7).double()] * 2)
    for table in look[1:5]:
        table[1] = table[:, 1] = torch.nan
    setting = setting_of([9] * 3)
    share = rule.trust(remembered([look], setting), look, setting, each(0.5, 3))
    assert share.tolist() == [[1, 0, 1], [0, 0, 0], [1, 0, 1]]


def costs(noise, sizes, parameters=1, kappa=0.5):
    """What squared weight costs, of clients with equal gradients of size 1 and this noise of a sample [N] or [N, N]."""
    n = len(sizes)
    noise = torch.as_tensor(noise).double().expand(n, n)
    memory = {**rule.nothing(n, n, 1), "noise": noise, "seen": torch.ones_like(noise), "weight": torch.ones_like(noise)}
    return rule.weigh_up(memory, setting_of(sizes, parameters), each(kappa, n))


def test_where_ones_own_samples_are_fitted_the_least_noisy_quarter_of_others_tells_the_noise():
    noise = torch.tensor([[0.01, 1, 2, 3, 4]] * 5)
    for parameters in (100, 10**6):
        found = costs(noise, [100] * 5, parameters).cost[0, 0]
        torch.testing.assert_close(found, 0.5 / 8 * noise[0, 0] + 1.75 / 100, check_dtype=False)


def test_who_surely_differs_tells_nothing_of_ones_own_noise():
    shape = (5, 5)
    noise = torch.tensor([[0.01, 1, 2, 3, 4]] * 5).double()
    setting, found = setting_of([100] * 5, 10**6), []
    for apart in (0.0, 0.1, 1.0, 1e3, 1e9):
        pulled = torch.full((*shape, 1), apart).double()
        known = {"noise": noise, "seen": torch.ones(shape).double(), "weight": torch.ones(shape).double()}
        memory = {**rule.nothing(*shape, 1), **known, "difference": pulled}
        found.append(rule.noises(memory, setting).least[0, 0].item())
    assert found[0] == 1.75 and found == sorted(found, reverse=True)
    assert abs(found[-1] - 0.01) < 1e-6


@pytest.mark.parametrize("growth", [1.0, 3.0, 100.0])
def test_a_gradient_that_has_grown_fast_is_not_taken_for_noise(growth):
    """Of a client that was at rest at its optimum, was drawn away, and came to a stop there."""
    gradients = torch.randn(3, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    looks = []
    for t, look in enumerate(halves(gradients, 0.5, 0, count=22)):
        factor = growth ** min(t, 15)
        tables = [table * factor**2 for table in look[1:4]]
        looks.append(look._replace(distance=tables[0], norm=tables[1], noise=tables[2], halves=look.halves * factor))
    setting = setting_of([1000] * 3)
    memory = remembered(looks, setting)
    said = rule.noises(memory, setting).own[0, 0] * memory["size"].exp()[0]
    assert 0.3 < said / (16 * looks[-1].noise[0, 0]) < 10


def test_where_samples_are_many_ones_own_noise_is_what_it_seems():
    noise = torch.tensor([[0.01, 1, 2, 3, 4]] * 5)
    found = costs(noise, [100] * 5, parameters=1).cost[0, 0]
    torch.testing.assert_close(found, 0.5 / 8 * noise[0, 0] + 0.01 / 0.99 / 100, check_dtype=False)
    assert costs(noise, [torch.inf] * 5, parameters=10**6).cost[0, 0] == 0.5 / 8 * noise[0, 0].double()


def test_a_noisy_client_counts_less_in_proportion_to_its_noise():
    noise = torch.tensor([1.0, 1.0, 4.0, 10.0])
    weights = rule.least_error(costs(noise, [torch.inf] * 4))
    torch.testing.assert_close(weights[0] / weights[0, 0], 1 / noise.double())
    torch.testing.assert_close(weights[3], torch.full((4,), 0.25).double())  # to the noisiest, all are as good as it is


def test_who_reports_no_noise_gains_nothing_by_it():
    found = costs([1.0, 0.0, 1.0], [torch.inf] * 3).cost
    assert found[0].tolist() == [found[0, 0]] * 3
    assert costs([1.0, 0.0, 1.0], [50] * 3).cost[0, 1] >= costs([1.0, 1.0, 1.0], [50] * 3).cost[0, 0]


def test_who_sends_next_to_nothing_is_not_a_partner():
    gradients = torch.ones(3, 20).double()
    gradients[1] *= 0.05
    found = weights_after(halves(gradients, 0.02, 0), [9] * 3)
    assert found[0, 1] == 0 and found[0, 2] > 0


def test_pairs_never_seen_together_do_not_listen_to_each_other():
    looks, setting = halves(torch.ones(3, 20).double(), 0.5, 0), setting_of([9] * 3)
    for look in looks:
        for table in look[1:5]:
            table[1] = table[:, 1] = torch.nan
    memory = remembered(looks, setting)
    assert all(value.isfinite().all() for value in memory.values())
    weights = rule.least_error(rule.weigh_up(memory, setting, each(0.5, 3)))
    assert weights[1].tolist() == [0, 1, 0] and (weights[[0, 2], 1] == 0).all() and weights[0, 2] > 0


def test_liars_that_cancel_each_other_are_no_partner_even_where_their_mean_is_the_truth():
    random = torch.Generator().manual_seed(1)
    one, pull = torch.randn(2, 20, generator=random, dtype=torch.float64)
    gradients = torch.stack([*[one] * 4, one + 3 * pull, one - 3 * pull])
    found = weights_after(halves(gradients, 0.5, 0, count=30), [torch.inf] * 6)
    assert found[:4, 4:].sum(1).max() < 0.05


def test_a_difference_that_turns_while_models_move_is_not_averaged_away():
    looks = []
    for turn in torch.arange(60) / 10:
        mine, theirs = torch.tensor([0.0, 0.0, 1.0]), torch.stack([turn.cos(), turn.sin(), torch.tensor(1.0)])
        halves = torch.stack([mine, theirs]).double().expand(2, 2, 3)
        looks.append(looked(halves, halves))
    setting = setting_of([torch.inf, torch.inf])
    bias = rule.weigh_up(remembered(looks, setting), setting, each(0.5, 2)).bias
    assert bias[0, 1] > 0.15  # of 1


@given(st.floats(0.01, 5), st.floats(1e-3, 0.1), st.integers(0, 10**6))
def test_curvature_between_models_is_the_step_times_smoothness(smoothness, step, seed):
    random = torch.Generator().manual_seed(seed)
    points, optima = torch.randn(2, 4, 8, generator=random, dtype=torch.float64)
    gradients = smoothness * (points[:, None] - optima)  # [i, k], of k at the model of i
    halves = gradients[:, :, None].expand(-1, -1, 2, -1)
    memory = rule.bend(rule.nothing(4, 4, 8), everybody(4), halves, points, step)
    expected = each(min(max(smoothness * step, rule.LEAST_CURVATURE), 1), 4)
    torch.testing.assert_close(rule.curvature(memory), expected)


def test_curvature_is_not_known_while_models_coincide():
    halves, points = torch.randn(3, 3, 2, 8).double(), torch.ones(3, 8).double()
    assert rule.curvature(rule.bend(rule.nothing(3, 3, 8), everybody(3), halves, points, 0.1)).isnan().all()
