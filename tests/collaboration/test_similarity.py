import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from allforone import FreshSamples, InputError, synthetic
from allforone.collaboration import similarity
from allforone.fleet import Stacked

from ..rounds import at

gradients = (
    st.integers(1, 6)
    .flatmap(
        lambda n: arrays(float, (n, n, 3), elements=st.floats(-5, 5, allow_subnormal=False))  # [model i, client k, :]
    )
    .map(torch.from_numpy)
)


def statistics(g):
    own = g.diagonal().T[:, None]  # [i, 1, :]
    return (g - own).square().sum(2), own[:, 0].square().sum(1)


@given(gradients)
def test_similarity_lies_in_the_unit_interval_with_one_on_the_diagonal(g):
    r = similarity(*statistics(g))
    assert ((r >= 0) & (r <= 1)).all()
    assert (r.diagonal() == 1).all()


@given(gradients, st.floats(0.01, 100))
def test_similarity_does_not_depend_on_the_scale_of_the_loss(g, factor):
    torch.testing.assert_close(similarity(*statistics(factor * g)), similarity(*statistics(g)), rtol=1e-6, atol=1e-6)


def test_equal_gradients_are_similar_and_opposite_ones_are_not():
    g = torch.tensor([[[1.0, 0], [1.0, 0], [-1.0, 0], [0, 1.0]]]).expand(4, 4, 2).clone()
    r = similarity(*statistics(g))
    assert r[0].tolist() == [1, 1, 0, 0]


def test_at_a_stationary_point_only_oneself_is_similar():
    r = similarity(torch.tensor([[0.0, 0.0], [1.0, 0.0]]), torch.tensor([0.0, 2.0]))
    assert r.tolist() == [[1, 0], [0.5, 1]]


@pytest.mark.slow
def test_with_many_samples_the_papers_estimate_nears_the_true_similarity():
    problem = synthetic(seed=5, dimension=3, clients=6, spread=1.0)
    fleet = Stacked(problem, seed=5)
    optima = torch.stack([client.train.optimum for client in problem.clients])
    slopes = 2 * (0 - optima)  # ∇R_k(0) with H = I
    distance = (slopes[:, None] - slopes[None, :]).square().sum(2)
    true = similarity(distance, slopes.square().sum(1))
    estimate = FreshSamples(samples=200_000)(fleet, fleet.initial(), {}, at(fleet, 0))[0].similarity
    torch.testing.assert_close(estimate, true, atol=0.03, rtol=0)
    assert fleet.ledger.samples.tolist() == [200_000] * 6


def test_an_estimate_needs_samples():
    with pytest.raises(InputError, match="at least 1"):
        FreshSamples(samples=0)
