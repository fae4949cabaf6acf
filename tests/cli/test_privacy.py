"""`allforone privacy` on the command line."""

import pytest

MINE = """
import torch
import torch.nn.functional as F
from torch import nn
import allforone as afo

random = torch.Generator().manual_seed(0)
clients = [afo.Client((torch.randn(20, 5, generator=random), torch.randn(20, 1, generator=random)), None)]
problem = afo.Problem(nn.Linear(5, 1), F.mse_loss, clients=clients)
without_bias = afo.Problem(nn.Linear(5, 1, bias=False), F.mse_loss, clients=clients)
"""


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    return str(tmp_path / "mine.py")


def test_a_problem_of_ones_own_is_measured_and_the_table_says_that_it_is_a_lower_bound(cli, mine):
    code, out, err = cli("privacy", f"{mine}:problem", "--batch-size", "1,5", "--answers", 3)
    assert code == 0, err
    one, five = (line.split() for line in out.splitlines() if "analytic" in line)
    assert one[:4] == ["1", "analytic", "3", "3"] and one[-1] == "3"
    assert five[:4] == ["5", "analytic", "15", "0"] and five[-1] == "–"
    assert "lower bound" in out


def test_what_dp_sgd_would_send_is_labelled_as_such(cli, mine):
    code, out, _ = cli("privacy", f"{mine}:problem", "--batch-size", 1, "--clip", 1, "--noise", 50)
    assert code == 0 and "DP-SGD with clip 1 and noise 50" in " ".join(out.split())
    (row,) = (line.split() for line in out.splitlines() if "analytic" in line)
    assert row[3] == "0"


def test_a_search_that_ran_out_of_time_is_told(cli, mine):
    code, out, _ = cli("privacy", f"{mine}:without_bias", "--batch-size", 1, "--steps", 10**6, "--seconds", 0.1)
    assert code == 0 and "ran out of its 0.1 seconds" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{}:problem", "--batch-size", "0"], "batch size '0'"),
        (["{}:problem", "--batch-size", "1,x"], "batch size '1,x'"),
        (["{}:problem", "--batch-size", "21"], "has 20 samples"),
        (["{}:problem", "--client", "7"], "client 7: there are 1"),
        (["{}:problem", "--batch-size", "1", "--noise", "1"], "give clip, too"),
        (["{}:without_bias", "--batch-size", "1", "--analytic"], "leave out --analytic"),
        (["synthetic", "--batch-size", "1"], "all clients draw from streams"),
        (["digitz", "--batch-size", "1"], "did you mean 'digits'"),
    ],
)
def test_bad_input_is_one_line_with_exit_code_2(cli, mine, arguments, said):
    code, _, err = cli("privacy", *(argument.format(mine) for argument in arguments))
    assert code == 2 and said in err
    assert err.startswith("allforone: ") and err.count("\n") == 1
