"""The quadratic program behind the weights of least error, and whom it is not worth to ask."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from allforone.collaboration import least_error as rule
from allforone.collaboration.simplex import least_quadratic


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


def terms_of(form):
    """Rows whose first place is their owner's, with errors αᵀHα, a tenth of it by noise."""
    rows, size = form.shape[:2]
    cost = form.diagonal(dim1=1, dim2=2) / 10
    itself = torch.zeros(rows, size, dtype=torch.bool)
    itself[:, 0] = True
    gram = form - torch.diag_embed(cost)
    return rule.Terms(gram.diagonal(dim1=1, dim2=2), gram, cost, torch.ones_like(itself), itself)


def error(weights, form):
    return torch.einsum("mi,mij,mj->m", weights, form, weights)


@given(seed=st.integers(0, 10_000))
def test_without_those_not_worth_asking_the_error_is_next_to_the_least_and_one_fewer_would_cost_more(seed):
    form = forms(seed, rows=20, size=6)
    terms = terms_of(form)
    least = rule.least_error(terms)
    kept = rule.worth_asking(least, terms)
    torch.testing.assert_close(kept.sum(1), torch.ones(20, dtype=torch.float64))
    assert (kept[least == 0] == 0).all() and (kept[terms.itself] >= least[terms.itself] - 1e-12).all()
    allowed = (1 + rule.SPARED) * error(least, form)
    assert (error(kept, form) <= allowed * (1 + 1e-9)).all()
    for row in range(20):
        others = kept[row].clone()
        others[0] = torch.inf
        others[others == 0] = torch.inf
        if others.min() < torch.inf:
            fewer = kept[row].clone()
            fewer[others.argmin()] = 0
            if fewer.sum() > 0:
                assert error(fewer[None] / fewer.sum(), form[[row]]) > allowed[row]


def test_a_stranger_with_a_weight_of_a_ten_thousandth_is_not_asked_and_every_twin_is():
    bias = torch.tensor([0, 0, 0, 3300.0], dtype=torch.float64)
    form = torch.diag(bias + 1)[None]
    least = rule.least_error(terms_of(form))
    assert 0 < least[0, 3] < 0.0002
    torch.testing.assert_close(rule.worth_asking(least, terms_of(form)), torch.tensor([[1, 1, 1, 0]]).double() / 3)
