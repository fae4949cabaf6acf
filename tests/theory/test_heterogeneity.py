"""Assumption 3 for quadratics, and the least upper line that estimates it elsewhere."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from allforone.theory import least_upper_line, of_quadratics, printed, share_above

from .simulation import random_quadratics

seeds = st.integers(0, 10**6)


def gaps(known, heterogeneity, seed):
    """b² + c‖∇R_i‖² − ‖∇R_i − ∇R_k‖² over ‖∇R_i‖², at random points near and far: [P, N, N]."""
    random = torch.Generator().manual_seed(seed)
    points = 3 * torch.randn(50, known.optima.shape[1], generator=random, dtype=torch.float64)
    gradients = known.gradients(torch.cat([points, known.optima + 1e-3 * points[: len(known.optima)]]))
    norm = gradients.square().sum(2)[:, :, None]
    apart = (gradients[:, :, None] - gradients[:, None]).square().sum(3)
    return (heterogeneity.b.square() + heterogeneity.c * norm - apart) / norm


@given(seeds)
def test_gradients_of_quadratics_differ_by_no_more_than_the_constants_say(seed):
    known = random_quadratics(seed)
    assert (gaps(known, of_quadratics(known.matrices, known.optima), seed) >= -1e-9).all()


@given(seeds)
def test_alike_matrices_differ_by_a_constant_exactly(seed):
    known = random_quadratics(seed, turn=0.0)
    b, c = of_quadratics(known.matrices, known.optima)
    gradients = known.gradients(torch.zeros(1, 3, dtype=torch.float64))[0]
    assert (c == 0).all()
    torch.testing.assert_close(b, (gradients[:, None] - gradients[None]).norm(dim=2))


@given(seeds)
def test_a_common_optimum_leaves_no_bias_and_halves_the_slope(seed):
    known = random_quadratics(seed, spread=0.0)
    b, c = of_quadratics(known.matrices, known.optima)
    assert (b == 0).all()
    torch.testing.assert_close(2 * c, printed.of_quadratics(known.matrices, known.optima).c)
    assert (gaps(known, of_quadratics(known.matrices, known.optima), seed) >= -1e-9).all()


def test_the_printed_bias_is_too_small_where_the_matrices_are_the_identity():
    matrices, optima = torch.eye(2).double().expand(2, 2, 2), torch.tensor([[0.0, 0.0], [1.0, 0.0]]).double()
    b, c = printed.of_quadratics(matrices, optima)
    assert float(c[0, 1]) == 0
    assert float(b[0, 1]) == pytest.approx(2**0.5)  # yet the gradients are 2θ and 2θ − 2 everywhere
    assert float(of_quadratics(matrices, optima).b[0, 1]) == pytest.approx(2)


points = st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=12)


@given(points, st.floats(0.01, 12))
def test_the_least_upper_line_is_above_all_points_and_lowest_where_asked(found, at):
    x, y = torch.tensor(found, dtype=torch.float64).T
    b_squared, c = least_upper_line(x, y, torch.tensor(at, dtype=torch.float64))
    assert b_squared >= 0 and c >= 0
    assert (b_squared + c * x >= y - 1e-6).all()
    slopes = torch.cat([torch.linspace(0, 50, 5001, dtype=torch.float64), c[None]])
    others = (y - slopes[:, None] * x).amax(1).clamp(min=0) + slopes * at  # the lowest upper line of every slope
    assert float(b_squared + c * at) == pytest.approx(float(others.min()), rel=1e-6, abs=1e-6)


def test_fewer_points_than_stated_lie_above_the_line():
    """The scenario bound: at most 5 % of the lines are broken by a larger share than it says."""
    random = torch.Generator().manual_seed(0)
    x, y = torch.rand(2, 2000, 30, generator=random, dtype=torch.float64)
    b_squared, c = least_upper_line(x, y, torch.full((2000,), 0.3, dtype=torch.float64))
    across = torch.linspace(0, 1, 501, dtype=torch.float64)
    above = (1 - b_squared[:, None] - c[:, None] * across).clamp(min=0).mean(1)  # the area of the square over each line
    assert 0.02 < float((above > share_above(30)).double().mean()) <= 0.05


def test_the_share_above_shrinks_with_the_points():
    assert share_above(10) > share_above(100) > share_above(1000)
    assert (1 - share_above(24)) ** 24 + 24 * share_above(24) * (1 - share_above(24)) ** 23 == pytest.approx(0.05)
