import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from allforone import CustomCriterion, InputError, binary, continuous


@given(threshold=st.floats(0.001, 1), x=st.floats(0, 1))
def test_the_papers_criteria_keep_their_rules(threshold, x):
    at = torch.tensor(x, dtype=torch.float64)
    for criterion in (binary(threshold), continuous()):
        assert 0 <= criterion.phi(at) <= at
        assert criterion.psi(at) == at * criterion.phi(at)
    assert binary(threshold).phi(at) == (threshold if x >= threshold else 0)


@given(threshold=st.floats(0.001, 1), x=st.floats(0, 1))
def test_binary_psi_lies_between_lambda_squared_and_lambda_on_its_support(threshold, x):
    value = float(binary(threshold).psi(torch.tensor(x, dtype=torch.float64)))
    assert value == 0 or threshold**2 * (1 - 1e-12) <= value <= threshold


@pytest.mark.parametrize("threshold", [0, -0.1, 1.1, float("nan")])
def test_a_threshold_outside_its_range_is_refused(threshold):
    with pytest.raises(InputError, match=r"λ is .*: must be in \(0, 1\]"):
        binary(threshold)


@pytest.mark.parametrize(
    ("phi", "rule"),
    [
        (lambda x: 2 * x, "φ\\(x\\) ≤ x"),
        (lambda x: x.sqrt(), "φ\\(x\\) ≤ x"),
        (lambda x: -x, "not negative"),
        (lambda x: x * (1 - x), "not decrease"),
        (lambda x: x + 0.1 * (x == 0), "be 0 at 0"),
        (lambda x: 0 * x, "above 0 at 1"),
        (lambda x: x * torch.nan, "finite"),
        (lambda x: x.sum(), "same shape"),
        (lambda x: 0.5, "same shape"),
    ],
)
def test_a_criterion_that_breaks_a_rule_is_told_which(phi, rule):
    with pytest.raises(InputError, match=rule):
        CustomCriterion(phi)


def test_any_criterion_that_keeps_the_rules_is_taken():
    assert CustomCriterion(lambda x: x**2).psi(torch.tensor(0.5)) == 0.125
