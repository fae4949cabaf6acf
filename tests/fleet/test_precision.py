"""bf16: passes of training under autocast, everything else as it was."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import allforone as afo
from allforone.errors import InputError
from allforone.fleet import Stacked
from allforone.machines.loop import Loop
from allforone.problems import with_settings

from .test_device import clients, same, trained


def small():
    return nn.Linear(5, 3)


def normed():
    return nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


def problem(model, precision="bf16"):
    torch.manual_seed(0)
    return with_settings(afo.Problem(model(), F.cross_entropy, clients=clients()), precision=precision)


@pytest.mark.parametrize("model", [small, normed])
def test_in_bf16_loop_and_stacked_agree_as_far_as_it_can_tell(model):
    found = []
    for fleet in (Loop, Stacked):
        made = fleet(problem(model), seed=1, batch_size=8)
        mix = torch.full((4, 4), 0.25, dtype=torch.float64)
        found.append(made.gradients(made.initial(), mix, made.begin(1, range(1)), 0, made.roster.numbers))
    for name in made.trained:
        a, b = (gradient[name] for gradient in found)
        assert a.dtype == b.dtype == torch.float32
        assert (a - b).norm() <= 4 * torch.finfo(torch.bfloat16).eps * b.norm()


def test_bf16_is_seen_by_the_model_and_differs_from_float32_but_learns():
    seen = set()

    class Seeing(nn.Linear):
        def forward(self, x):
            found = super().forward(x)
            seen.add((self.training, found.dtype))
            return found

    told = {"model": lambda: Seeing(5, 3), "rounds": 12, "inner": 4, "algorithm": afo.FedAvg()}
    plain, half = trained(**told), trained(precision="bf16", **told)
    assert (True, torch.bfloat16) in seen and (False, torch.float32) in seen
    assert (False, torch.bfloat16) not in seen  # models are judged as they are
    assert all(tensor.dtype == torch.float32 for tensor in half.stacked.values())
    assert not torch.equal(plain.stacked["weight"], half.stacked["weight"])
    torch.testing.assert_close(plain.stacked["weight"], half.stacked["weight"], rtol=0.05, atol=0.02)
    first, last = (half.metrics.filter(half.metrics["round"] == number)["loss"].mean() for number in (0, 12))
    assert last < 0.8 * first


@pytest.mark.parametrize("algorithm", [afo.AllForOne(), afo.AllForOne(exchange="round")], ids=["update", "round"])
def test_all_for_one_runs_in_bf16_without_leaving_a_fast_way(algorithm, recwarn):
    result = trained(precision="bf16", algorithm=algorithm, rounds=3)
    assert result.metrics["loss"].is_finite().all()
    assert not [warning for warning in recwarn if "one by one" in str(warning.message)]


def test_float32_by_its_name_is_what_goes_without_saying():
    plain, told = trained(rounds=2), trained(rounds=2, precision="float32")
    assert same(plain, told)
    assert "precision" not in told.config.plain()


def test_bf16_of_the_settings_is_overruled_and_stays_so_in_the_config():
    result = afo.train(problem(small), rounds=1, precision="float32")
    assert result.config.plain()["precision"] == "float32"
    assert afo.train(problem(small), rounds=1).config.plain()["precision"] == "bf16"


def test_another_precision_is_refused():
    with pytest.raises(InputError, match=r"precision: expected 'float32' or 'bf16', got 'fp16'"):
        trained(precision="fp16")
    with pytest.raises(InputError, match="precision is 'half': must be"):
        afo.Settings(precision="half")
