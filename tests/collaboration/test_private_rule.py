"""What the rule of All-for-one makes of noise that was added for privacy."""

import pytest
import torch

from allforone.collaboration import least_error as rule
from allforone.collaboration.decision import decide

from .looks import each, halves, remembered, setting_of


def test_what_noise_for_privacy_may_hide_counts_as_bias_and_less_the_more_often_one_has_looked():
    one = torch.randn(20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    setting, kappa, hidden = setting_of([60, 60]), each(0.5, 2), []
    for count in (1, 4, 16):
        looks = halves(torch.stack([one, one]), 0.5, 0, count)
        private = [look._replace(added=look.noise) for look in looks]  # all of the noise is privacy's
        terms = rule.weigh_up(remembered(private, setting), setting, kappa)
        plain = rule.weigh_up(remembered(looks, setting), setting, kappa)
        hidden.append(float(terms.bias[0, 1]))
        assert hidden[-1] > 2 * float(plain.bias[0, 1]) and terms.bias[0, 0] == 0
        assert terms.cost[0, 0] < plain.cost[0, 0] / 10  # and it is no noise of samples
    assert hidden[0] > 2 * hidden[1] > 4 * hidden[2]


def decided(scale=1.0, walks=None, added=None):
    """The first row's weights after looks at two groups of three, of which a part of the noise is privacy's."""
    one, two = torch.randn(2, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    setting, kappa = setting_of([200] * 6), each(0.3, 6)
    memory = {**rule.nothing(6, 6, 20), "promise": torch.zeros(6, 6, dtype=torch.float64)}
    for look in halves(scale * torch.stack([one] * 3 + [two] * 3), 0.3 * scale, 0):
        told = look._replace(added=look.noise / 2 if added is None else added)
        found, memory = decide(memory, told, setting, kappa, walks=walks)
    return found.weights[0]


@pytest.mark.parametrize("walks", [None, 4])
def test_with_privacy_weights_do_not_depend_on_the_scale_of_gradients_either(walks):
    once, larger, smaller = (decided(scale, walks) for scale in (1.0, 1e3, 1e-3))
    torch.testing.assert_close(larger, once)
    torch.testing.assert_close(smaller, once)


def test_who_claims_any_noise_of_its_own_does_not_part_the_others():
    honest, lying = torch.zeros(2, 6, 6, dtype=torch.float64)
    lying[5, 5] = 1e60
    torch.testing.assert_close(decided(added=lying), decided(added=honest), rtol=0.0, atol=1e-3)
