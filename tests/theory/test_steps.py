"""Step sizes of the theory as torch schedulers, in any run."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import allforone as afo
from allforone.errors import InputError
from allforone.runs import Folder, execute, parse, prepare, resume
from allforone.theory import Constant, Decreasing, Horizon, decreasing_step, horizon_step, known_constants


def steps_of(make, rounds):
    tensor = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([tensor], lr=0.1)
    scheduler, found = make(optimizer), []
    for _ in range(rounds):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def test_schedulers_give_the_theorys_steps():
    assert steps_of(lambda o: Constant(o, smoothness=10.0), 3) == [0.1] * 3
    horizon = float(horizon_step(7.0, 50, 2.0, 1.0, 3.0))
    assert steps_of(lambda o: Horizon(o, 50, 2.0, 1.0, 3.0, 7.0), 3) == [horizon] * 3
    expected = [float(decreasing_step(number, 2.0, 0.5, 3.0)) for number in (1, 6, 11)]
    assert steps_of(lambda o: Decreasing(o, 2.0, 0.5, 3.0, inner=5), 3) == pytest.approx(expected)


def test_a_constant_step_above_one_over_beta_is_refused():
    with pytest.raises(InputError, match=r"above 1/β = 0\.05"):
        steps_of(lambda o: Constant(o, smoothness=20.0), 1)


def test_a_horizon_with_more_noise_than_gain_is_refused():
    with pytest.raises(InputError, match="no horizon step for 2 updates"):
        steps_of(lambda o: Horizon(o, 2, 2.0, 1.0, 300.0, 0.1), 1)


@pytest.mark.parametrize("name", ["constant", "horizon", "decreasing"])
@pytest.mark.parametrize("algorithm", ["all-for-one-binary", "local", "fedavg"])
def test_a_run_takes_its_constants_from_a_problem_that_knows_them(name, algorithm):
    run = prepare(parse({"problem": "synthetic", "schedule": name, "algorithm": algorithm, "rounds": 50}))
    known = known_constants(run.problem, run.config.seed).for_schedule()
    beta, mu, variance, excess = known.values()
    horizon = float(horizon_step(excess, 50, beta, mu, variance))
    expected = {"constant": 0.25, "decreasing": 1 / beta, "horizon": horizon}
    assert run.optimizer.lr == pytest.approx(expected[name])
    assert run.optimizer.lr <= 1 / beta * (1 + 1e-9)


def test_steps_fall_round_by_round_and_a_resumed_run_goes_on_with_them(tmp_path):
    given = {"problem": {"name": "synthetic", "clients": 4}, "schedule": "decreasing", "rounds": 6}
    whole = execute(prepare(parse(given)), tmp_path / "whole")
    folder = Folder.open(tmp_path / "whole")
    assert folder.config["schedule"] == {"name": "decreasing", "smoothness": 2.0, "convexity": pytest.approx(2.0)}
    execute(prepare(parse({**given, "rounds": 3})), tmp_path / "half")
    config = tmp_path / "half" / "config.yaml"
    config.write_text(config.read_text().replace("rounds: 3", "rounds: 6"))
    again = resume(tmp_path / "half")
    assert torch.equal(whole.stacked["weight"], again.stacked["weight"])
    plain = {**given, "schedule": None, "optimizer": {"name": "SGD", "lr": 0.5}}
    constant = execute(prepare(parse(plain)), tmp_path / "constant")
    assert not torch.equal(whole.stacked["weight"], constant.stacked["weight"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--schedule", "horizn"], "unknown schedule 'horizn'; did you mean 'horizon'?"),
        (["--schedule", "decreasing"], "schedule decreasing: smoothness, convexity of digits not known"),
        (["--schedule", "decreasing:convexity=0.1:smoothness=0"], "smoothness is 0: must be a number above 0"),
        (["--schedule", "decreasing:mu=0.1"], "unknown key 'mu'"),
        (["--schedule", "decreasing:convexity"], "expected name=value"),
        (["--schedule", "decreasing:convexity=0.1:smoothness=4:factor=1"], "must be above 1"),
        (["--schedule", "constant:smoothness=100"], "above 1/β = 0.01"),
    ],
)
def test_a_schedule_that_cannot_be_followed_says_why(cli, tmp_path, arguments, said):
    code, _, err = cli("run", "digits", *arguments, "--out", tmp_path / "out")
    assert code == 2
    assert said in err
    assert not (tmp_path / "out").exists()


def test_a_schedule_and_a_scheduler_exclude_each_other():
    with pytest.raises(InputError, match="leave one out"):
        prepare(parse({"problem": "synthetic", "schedule": "constant", "scheduler": "StepLR"}))


@pytest.mark.slow
def test_every_seed_of_a_comparison_has_its_own_constants(cli, tmp_path):
    code, _, err = cli(
        "compare",
        "synthetic",
        "--algorithms",
        "local",
        "--seeds",
        "1,2",
        "--rounds",
        40,
        "--schedule",
        "horizon",
        "--out",
        tmp_path / "out",
    )
    assert code == 0, err
    found = [Folder.open(tmp_path / "out" / "runs" / "local" / seed).config["schedule"]["excess"] for seed in "12"]
    assert found[0] != found[1]


def test_train_takes_a_schedule(tmp_path):
    random = torch.Generator().manual_seed(0)
    data = [(torch.randn(30, 3, generator=random), torch.randint(2, (30,), generator=random)) for _ in range(3)]
    clients = [afo.Client(pair, pair) for pair in data]
    given = {"loss": F.cross_entropy, "rounds": 4, "seed": 1}
    model = nn.Linear(3, 2)
    schedule = {"name": "decreasing", "smoothness": 2.0, "convexity": 0.5}
    ours = afo.train(model, clients, schedule=schedule, out=tmp_path / "run", **given)
    same = afo.train(model, clients, scheduler=lambda o: Decreasing(o, 2.0, 0.5), **given)
    assert torch.equal(ours.stacked["weight"], same.stacked["weight"])
    assert Folder.open(tmp_path / "run").config["schedule"] == schedule
    with pytest.raises(InputError, match="leave one out"):
        afo.train(model, clients, schedule="constant", scheduler=lambda o: Constant(o), **given)
    with pytest.raises(InputError, match="not known"):
        afo.train(model, clients, schedule="horizon", **given)
