"""The identities of the weights, for any similarity, noise and criterion."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from allforone.collaboration import (
    CustomCriterion,
    binary,
    continuous,
    definition,
    effective_variance,
    normalised,
    step_scale,
    trusted,
    uniform_within,
)

criteria = st.one_of(
    st.floats(0.01, 1).map(binary),
    st.just(continuous()),
    st.floats(1, 4).map(lambda power: CustomCriterion(lambda x: x**power)),
)


@st.composite
def cases(draw):
    n = draw(st.integers(1, 8))
    r = torch.from_numpy(draw(arrays(float, (n, n), elements=st.floats(0, 1)))).fill_diagonal_(1)
    variance = torch.from_numpy(draw(arrays(float, (n,), elements=st.floats(1e-3, 1e3))))
    return r, draw(criteria), variance


@given(cases())
def test_weights_times_similarity_sum_to_one(case):
    r, criterion, variance = case
    torch.testing.assert_close((definition(r, criterion, variance) * r).sum(1), torch.ones(len(r)).double())


@given(cases())
def test_noise_left_is_at_most_the_effective_variance(case):
    r, criterion, variance = case
    left = (definition(r, criterion, variance).square() * variance).sum(1)
    assert (left <= effective_variance(r, criterion, variance) * (1 + 1e-9)).all()


@given(cases())
def test_weights_sum_to_the_ratio_of_variances(case):
    r, criterion, variance = case
    ratio = effective_variance(r, criterion, variance) * (criterion.phi(r) / variance).sum(1)
    torch.testing.assert_close(definition(r, criterion, variance).sum(1), ratio)
    assert (ratio >= 1 - 1e-9).all()


@given(cases())
def test_normalised_rows_sum_to_one_and_keep_proportions(case):
    r, criterion, variance = case
    weights = definition(r, criterion, variance)
    rows = normalised(weights)
    torch.testing.assert_close(rows.sum(1), torch.ones(len(r)).double())
    torch.testing.assert_close(rows * weights.sum(1, keepdim=True), weights)


@given(cases(), st.floats(1e-3, 1e3))
def test_only_ratios_of_variances_matter(case, factor):
    r, criterion, variance = case
    torch.testing.assert_close(definition(r, criterion, factor * variance), definition(r, criterion, variance))


@given(cases())
def test_variance_from_sizes_weighs_by_size(case):
    r, criterion, sizes = case
    expected = sizes * criterion.phi(r) / (sizes * criterion.psi(r)).sum(1, keepdim=True)
    torch.testing.assert_close(definition(r, criterion, 1 / sizes), expected)


@given(cases())
def test_whoever_is_not_similar_is_not_listened_to(case):
    r, criterion, variance = case
    weights = definition(r, criterion, variance)
    assert ((weights == 0) == (criterion.phi(r) == 0)).all()


def test_among_the_similar_the_less_noisy_count_more_in_proportion():
    r = torch.ones(3, 3).double()
    weights = normalised(definition(r, continuous(), torch.tensor([1.0, 2.0, 4.0])))
    torch.testing.assert_close(weights[0], torch.tensor([4.0, 2.0, 1.0]).double() / 7)


def test_binary_counts_all_the_similar_the_same_and_continuous_does_not():
    r = torch.tensor([[1.0, 0.5, 0.2, 0.05]]).expand(4, 4).clone().double()
    even = definition(r, binary(0.1), torch.ones(4))[0]
    graded = definition(r, continuous(), torch.ones(4))[0]
    assert even[0] == even[1] == even[2] > even[3] == 0
    assert graded[0] > graded[1] > graded[2] > graded[3] > 0


@given(cases(), st.floats(1e-3, 10), st.floats(0.1, 10))
def test_the_step_size_condition_holds_and_only_shortens(case, lr, smoothness):
    r, criterion, variance = case
    weights = definition(r, criterion, variance)
    scale = step_scale(weights, lr, smoothness)
    assert (scale <= 1).all()
    assert (lr * scale * smoothness * weights.sum(1) <= 1 + 1e-9).all()
    free = lr * smoothness * weights.sum(1) < 1
    assert (scale[free] == 1).all()


def test_the_oracle_is_uniform_inside_the_cluster():
    expected = torch.tensor([[0.5, 0, 0.5], [0, 1, 0], [0.5, 0, 0.5]]).double()
    assert uniform_within([0, 1, 0]).equal(expected)
    assert uniform_within(["north", "south", "north"]).equal(expected)


@given(st.integers(2, 6), st.integers(0, 10**6))
def test_trusted_weights_are_the_clipped_gradients_weighted(n, seed):
    random = torch.Generator().manual_seed(seed)
    alpha = torch.rand(n, n, generator=random, dtype=torch.float64)
    trust = torch.rand(n, n, generator=random, dtype=torch.float64).fill_diagonal_(1)
    gradients = torch.randn(n, 4, generator=random, dtype=torch.float64)
    clipped = gradients[:, None] + trust[:, :, None] * (gradients[None] - gradients[:, None])
    torch.testing.assert_close(
        trusted(alpha, trust, torch.eye(n, dtype=torch.bool)) @ gradients, (alpha[:, :, None] * clipped).sum(1)
    )
