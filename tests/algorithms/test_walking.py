"""One exchange a round: what it is in the limits, what it sends, and what it refuses."""

from functools import partial

import pytest
import torch

from allforone.algorithms import AllForOne, Local, Oracle
from allforone.algorithms.fedavg import fedavg_round, share
from allforone.algorithms.walking import moved, walk_together
from allforone.collaboration import least_error, uniform_within
from allforone.errors import Diverged, InputError
from allforone.fleet import Attack, Attacked, Optimizer, Stacked, everybody, pick, repeat
from allforone.machines.loop import Loop
from allforone.problems import Client, Problem, digits, synthetic
from allforone.testing import MOMENTUM, check_algorithm, small_problem, with_batch_norm

from ..fleet.models import problem
from ..rounds import over, play, train

SGD = partial(torch.optim.SGD, lr=0.05)
ROUND = AllForOne(exchange="round")


def walked(fleet, models, weights, steps, make=SGD, parts=1):
    """The models after one exchange with these weights."""
    round, everyone = over(fleet, steps), everybody(len(fleet.roster))
    move, buffers = walk_together(
        models, everyone, Optimizer(make), fleet, round, lambda walks: weights[walks.rows], parts
    )
    return moved(models, move, buffers, fleet.trained)


def assert_same(ours, theirs, tolerance=1e-6):
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-4, atol=tolerance, msg=name)


@pytest.mark.parametrize("fleet", [Stacked, Loop])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("model", ["perceptron", "wide"])
def test_at_one_update_of_plain_sgd_it_is_the_step_of_all_for_one(model, parts, fleet):
    made = fleet(problem(model), seed=3, batch_size=4)
    random = torch.Generator().manual_seed(0)
    models = {name: t + 0.1 * torch.randn(t.shape, generator=random) for name, t in made.initial().items()}
    mix = torch.rand(4, 4, generator=random, dtype=torch.float64)
    expected, _ = made.descend(models, mix, Optimizer(SGD), over(made, range(1)))
    assert_same(walked(made, models, mix, range(1), parts=parts), expected)


@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_at_one_update_on_streams_the_weights_are_those_of_all_for_one_too_that_asks_everybody(momentum, monkeypatch):
    monkeypatch.setattr(least_error, "SPARED", 0)
    ends = []
    for algorithm in (AllForOne(), ROUND):
        fleet = Stacked(synthetic(seed=5, dimension=3, clients=6, noise=0.5), seed=3)
        ends.append(play(fleet, algorithm, partial(torch.optim.SGD, lr=0.1, momentum=momentum), rounds=25))
    (exact, told), (ours, said) = ends
    assert_same(ours.models, exact.models, 1e-9)
    torch.testing.assert_close(said.weights, told.weights, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("make", [SGD, MOMENTUM, partial(torch.optim.Adam, lr=0.01), torch.optim.Adagrad])
def test_with_all_weight_on_oneself_it_is_local_whose_optimizer_starts_anew_each_round(make):
    fleet = Stacked(small_problem(), seed=3)
    models, alone = fleet.initial(), torch.eye(4, dtype=torch.float64)
    expected, _ = fleet.descend(models, alone, Optimizer(make), over(fleet, range(5)))
    assert_same(walked(fleet, models, alone, range(5), make), expected)


def test_with_one_model_for_all_and_shares_of_the_data_it_is_fedavg():
    fleet = Stacked(small_problem(), seed=3)
    round = over(fleet, range(5))
    common, _ = fedavg_round(fleet, pick(fleet.initial(), torch.tensor([0])), Optimizer(SGD), round)
    ours = walked(fleet, fleet.initial(), share(fleet, round).expand(4, -1), range(5))
    assert_same(ours, repeat(common, 4))


def test_with_the_true_clusters_weights_it_is_the_oracle_at_one_update():
    fleet = Stacked(small_problem(), seed=3)
    oracle, _ = play(fleet, Oracle(), SGD, rounds=1)
    assert_same(walked(fleet, fleet.initial(), uniform_within(fleet.roster.clusters), range(1)), oracle.models)


def test_halves_of_a_batch_walk_to_both_sides_of_the_whole():
    fleet = Stacked(problem("perceptron"), seed=3, batch_size=8)
    (walks,) = fleet.walks(fleet.initial(), everybody(4), Optimizer(SGD), over(fleet, range(3)), 2)
    (whole,) = fleet.walks(fleet.initial(), everybody(4), Optimizer(SGD), over(fleet, range(3)), 1)
    noise = (walks.ways[:, :, 0] - walks.ways[:, :, 1]).square().sum(2)
    assert (noise > 0).all() and walks.read.eq(3 * 8).all()
    assert ((walks.ways.mean(2) - whole.ways[:, :, 0]).square().sum(2) < noise / 4).all()


@pytest.mark.parametrize("model", ["perceptron", "wide"])
def test_walks_tell_the_noise_of_their_first_update_alike_on_both_fleets(model):
    told = []
    for made in (Stacked(problem(model), seed=3, batch_size=8), Loop(problem(model), seed=3, batch_size=8)):
        (walks,) = made.walks(made.initial(), everybody(4), Optimizer(SGD), over(made, range(5)), 2)
        (alone,) = made.walks(made.initial(), everybody(4), Optimizer(SGD), over(made, range(1)), 2)
        a, b = alone.ways.double().unbind(2)
        along = (a * b).sum(2)
        plainly = torch.where(along > 0, (a - b).square().sum(2) / (4 * along), torch.inf)
        torch.testing.assert_close(walks.first, plainly, rtol=1e-6, atol=0)
        told.append(walks.first)
    torch.testing.assert_close(*told, rtol=1e-3, atol=0)
    (whole,) = made.walks(made.initial(), everybody(4), Optimizer(SGD), over(made, range(2)), 1)
    assert whole.first.isposinf().all()


@pytest.mark.parametrize("lr", [0.05, 0.5])
def test_long_steps_that_make_halves_part_do_not_make_strangers_look_alike(lr):
    """Forty updates on 60 images: with long steps the halves of a walk part by themselves, which is no chance."""
    made = digits(seed=51, split="shards", samples_per_client=60, clients=5)
    fleet = Stacked(made, seed=51)
    state, info = play(fleet, ROUND, partial(torch.optim.SGD, lr=lr), rounds=3, inner=40)
    assert info.weights.diagonal().mean() > 0.8
    assert fleet.evaluate(state.models, over(fleet, range(0))).metrics["accuracy"].min() > 0.9


@pytest.mark.parametrize("size", [1, 3])
def test_batches_that_cannot_be_halved_are_walked_on_all_the_same(size):
    fleet = Stacked(problem("perceptron"), seed=3, batch_size=size)
    state, info = play(fleet, ROUND, SGD, rounds=3, inner=4)
    torch.testing.assert_close(info.weights.sum(1), torch.ones(4).double())
    assert all(t.isfinite().all() for t in state.models.values()) and fleet.ledger.samples.eq(3 * 4 * size).all()


def test_noise_of_a_long_way_counts_once_so_that_two_kinds_are_told_apart_at_once():
    random = torch.Generator().manual_seed(0)
    sites = []
    for k in range(6):
        x = torch.randn(1000, 3, generator=random)
        y = x.sum(1, keepdim=True) * (1 + k % 2)
        sites.append(Client((x, y + 3 * torch.randn(y.shape, generator=random)), (x, y)))
    model = torch.nn.Linear(3, 1, bias=False)
    made = Problem(model, torch.nn.functional.mse_loss, clients=sites)
    _, info = play(Stacked(made, seed=1, batch_size=16), ROUND, partial(torch.optim.SGD, lr=0.1), rounds=1, inner=50)
    alike = torch.arange(6)[:, None] % 2 == torch.arange(6) % 2
    assert (info.weights * alike).sum(1).mean() > 0.8  # 0.67 if it counted once for every update


def test_in_a_round_a_model_goes_to_every_partner_once_and_a_way_comes_back():
    _, info = play(Stacked(small_problem(), seed=3), ROUND, SGD, rounds=2, inner=5)
    assert info.messages == 2 * 4 * 3
    _, info = play(
        Stacked(small_problem(clients=6), seed=3), AllForOne(exchange="round", candidates=2), SGD, rounds=2, inner=5
    )
    assert info.messages == 2 * 6 * 2
    _, again = play(
        Stacked(small_problem(clients=6), seed=3), AllForOne(exchange="round", partners=2), SGD, rounds=2, inner=5
    )
    assert again.messages == info.messages and again.weights.equal(info.weights)


def test_no_more_samples_are_drawn_than_by_local():
    fleets = [Stacked(small_problem(), seed=3) for _ in range(2)]
    for fleet, algorithm in zip(fleets, (ROUND, Local()), strict=True):
        play(fleet, algorithm, SGD, rounds=3, inner=5)
    assert fleets[0].ledger.samples.equal(fleets[1].ledger.samples)


def test_momentum_carries_the_moves_on():
    fleet = Stacked(small_problem(clients=1), seed=3)
    first, _ = play(fleet, AllForOne(exchange="round", momentum=0.5), SGD, rounds=1, inner=3)
    velocity = first.own["velocity"]
    second, _ = play(fleet, AllForOne(exchange="round", momentum=0.5), SGD, rounds=2, inner=3)
    plain = walked(fleet, first.models, torch.ones(1, 1).double(), range(3, 6), parts=2)
    name = fleet.trained[0]
    size = first.models[name][0].numel()
    expected = plain[name] + 0.5 * velocity[:, :size].reshape(first.models[name].shape)
    torch.testing.assert_close(second.models[name], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("momentum", "steps"), [(0.9, 1), (0.9, 20), (0.5, 7)])
def test_moves_keep_the_pace_that_momentum_loses_by_starting_anew(momentum, steps):
    made = Optimizer(partial(torch.optim.SGD, lr=0.1, momentum=momentum))
    way, velocity = 0.0, 0.0  # of one walk along a gradient of 1
    for _ in range(steps):
        velocity = momentum * velocity + 1
        way += 0.1 * velocity
    pace = way / (1 - made.forgotten(steps))  # a round, after many
    assert pace == pytest.approx(steps * made.step_size)


@pytest.mark.parametrize("make", [SGD, partial(torch.optim.Adam, lr=0.01)])
def test_without_momentum_moves_are_those_of_the_walks(make):
    assert Optimizer(make).forgotten(10) == 0
    state, _ = play(Stacked(small_problem(), seed=3), ROUND, make, rounds=2, inner=3)
    assert "velocity" not in state.own


@pytest.mark.parametrize("model", ["batch norm", "dropout", "convolution"])
def test_layers_that_mix_samples_or_draw_at_random_walk_alike_on_both_fleets(model):
    ends = [
        play(kind(problem(model), seed=3, batch_size=8), ROUND, SGD, rounds=2, inner=2)[0] for kind in (Stacked, Loop)
    ]
    assert_same(ends[0].models, ends[1].models, 1e-4)


@pytest.mark.slow
def test_with_candidates_and_momentum_the_form_keeps_what_every_algorithm_promises():
    algorithm = AllForOne(exchange="round", candidates=2, momentum=0.5)
    check_algorithm(algorithm)
    check_algorithm(algorithm, small_problem(with_batch_norm))


def test_the_scheduler_goes_on_though_optimizers_start_anew():
    made = Optimizer(SGD, partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5))
    fleet = Stacked(small_problem(), seed=3)
    state = ROUND.init(fleet.initial(), made)
    for number in range(3):
        state, _ = ROUND.step(state, fleet, fleet.begin(number + 1, range(2 * number, 2 * number + 2)))
    assert state.optimizer.lr == pytest.approx(0.05 / 8)


@pytest.mark.parametrize("kind", ["zeros", "nan", "stale", "mimicry", "cancelling"])  # others: fleet/test_attacks.py
def test_honest_clients_do_not_lose_their_way_to_liars(kind):
    fleet = Attacked(Stacked(synthetic(seed=5, dimension=3, clients=12), seed=3), Attack(kind, 3))
    result = train(fleet, ROUND, Optimizer(partial(torch.optim.SGD, lr=0.1)), 30, inner=2, evaluate_every=30)
    honest = [k for k in range(12) if k not in fleet.liars]
    start = fleet.evaluate(fleet.initial(), fleet.begin(0, range(0))).excess[honest]
    end = fleet.evaluate(result.stacked, fleet.begin(0, range(0))).excess[honest]
    assert (end < 1e-3 * start).all()
    if kind == "nan":
        assert fleet.ledger.refused.nonzero().flatten().tolist() == fleet.liars


class Exploding(torch.nn.Module):
    """Its loss is not finite on inputs above 50."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 3)

    def forward(self, x):
        return self.layer(x) + torch.where(x.amax(1, keepdim=True) > 50, torch.nan, 0.0)


@pytest.mark.parametrize("fleet", [Stacked, Loop])
def test_who_leads_astray_is_not_followed_and_who_loses_its_own_way_is_named(fleet):
    subject = small_problem(Exploding)
    made = fleet(subject, seed=3)
    subject.clients[2].train.tensors[0].fill_(100.0)
    everyone = torch.tensor([[0, 1, 2], [1, 0, -1], [2, -1, -1], [3, -1, -1]])
    round = over(made, range(2))
    heard = round._replace(present=torch.tensor([True, True, False, True]))
    (walks,) = made.walks(made.initial(), everyone, Optimizer(SGD), heard, 2)
    assert walks.rows.tolist() == [0, 1, 3] and walks.ways[0, 2].isnan().all() and walks.ways[0, :2].isfinite().all()
    with pytest.raises(Diverged, match="client 2"):
        list(made.walks(made.initial(), everyone, Optimizer(SGD), round, 2))


class Counting(torch.optim.SGD):
    """Keeps how often it was asked among its settings, as schedule-free optimizers do."""

    def step(self, closure=None):
        for group in self.param_groups:
            group["count"] = group.get("count", 0) + 1
            group["lr"] = 0.1 / group["count"]
            group["momentum"] = 1 - 1 / group["count"]
        return super().step(closure)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exchange": "never"}, "exchange is 'never'"),
        ({"partners": 0}, "partners is 0"),
        ({"candidates": -1}, "candidates is -1"),
        ({"exchange": "round", "every": 2}, "every"),
        ({"exchange": "round", "correct": True}, "correct"),
        ({"momentum": 0.5}, "exchange='round'"),
        ({"exchange": "round", "momentum": 1.0}, "momentum is 1.0"),
    ],
)
def test_options_that_mean_nothing_are_refused_in_one_line(options, message):
    with pytest.raises(InputError, match=message) as refused:
        AllForOne(**options)
    assert "\n" not in str(refused.value)


def test_an_optimizer_that_cannot_be_started_anew_is_refused_before_anything_runs():
    with pytest.raises(InputError, match="cannot be started anew"):
        ROUND.init(Stacked(small_problem(), seed=3).initial(), Optimizer(partial(Counting, lr=0.1, momentum=0.5)))
