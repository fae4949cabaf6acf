from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call

import allforone as afo
from allforone.errors import InputError
from allforone.fleet import Optimizer, Stacked, everybody, row
from allforone.machines.loop import Loop
from allforone.problems.data import draw

from ..rounds import at, evaluate, gradients, over, play
from .models import problem
from .pair_by_pair import PairByPair

FLEETS = [Loop, Stacked]


class Forbidden:
    """A client whose data must not be touched."""

    def draw(self, size, generator):
        if self.armed:
            raise AssertionError("a pair of weight 0 was computed")
        return torch.zeros(size, 2), torch.zeros(size, 1)

    armed = False


@pytest.mark.parametrize("fleet", FLEETS)
@pytest.mark.parametrize("width", [1, 20_000])  # small: all models at once; large: one by one
def test_pairs_of_weight_zero_are_never_computed(fleet, width):
    forbidden = Forbidden()
    data = (torch.randn(4, 2), torch.randn(4, 1))
    clients = [afo.Client(data, data), afo.Client(data, data), afo.Client(forbidden, data)]
    made = fleet(
        afo.Problem(lambda: nn.Sequential(nn.Linear(2, width), nn.Linear(width, 1)), F.mse_loss, clients=clients),
        seed=0,
        batch_size=2,
    )
    forbidden.armed = True
    mix = torch.tensor([[0.5, 0.5, 0], [0, 1, 0], [0.2, 0.8, 0]])
    gradients(made, made.initial(), mix, 0)
    assert made.ledger.samples.tolist() == [2, 2, 0]
    with pytest.raises(InputError, match="weight 0"):
        gradients(made, made.initial(), torch.eye(3), 1)


@pytest.mark.parametrize("fleet", FLEETS)
def test_a_row_of_zeros_gives_no_gradient(fleet):
    made = fleet(problem("perceptron"), seed=0)
    mix = torch.eye(4)
    mix[2] = 0
    found = gradients(made, made.initial(), mix, 0)
    for tensor in found.values():
        assert tensor[2].count_nonzero() == 0
        assert tensor[1].count_nonzero() > 0


@pytest.mark.slow
@pytest.mark.parametrize("fleet", FLEETS)
@pytest.mark.parametrize("model", ["perceptron", "wide", "batch norm"])
def test_gradients_are_linear_in_the_weights(fleet, model):
    made = fleet(problem(model), seed=0)
    models = made.initial()
    each = [gradients(made, models, torch.eye(4)[[k] * 4], 5) for k in range(4)]  # row i: g_k(θ_i)

    @settings(max_examples=30)
    @given(weights=st.lists(st.floats(-2, 2), min_size=4, max_size=4))
    def check(weights):
        mixed = gradients(made, models, torch.tensor([weights] * 4), 5)
        for name in made.trained:
            expected = sum(w * gradient[name] for w, gradient in zip(weights, each, strict=True))
            torch.testing.assert_close(mixed[name], expected, rtol=1e-3, atol=1e-5)

    check()


@pytest.mark.parametrize("fleet", FLEETS)
def test_running_statistics_follow_the_owners_data_only(fleet):
    made = fleet(problem("batch norm"), seed=0)
    models = made.initial()
    mix = torch.full((4, 4), 0.25)
    after = gradients(made, models, mix, 0)
    module = made.passes.module.train()
    for i in range(4):
        own, _ = draw(made.problem.clients[i].train, 5, seed=0, client=i, step=0, purpose="update")
        expected = {name: tensor.clone() for name, tensor in row(models, i).items()}
        functional_call(module, expected, own)
        for name in ("1.running_mean", "1.running_var", "1.num_batches_tracked"):
            torch.testing.assert_close(after[name][i], expected[name])


@pytest.mark.parametrize("fleet", FLEETS)
def test_comparing_does_not_move_anything(fleet):
    made = fleet(problem("batch norm"), seed=0)
    models = made.initial()
    before = {name: tensor.clone() for name, tensor in models.items()}
    module = {name: tensor.clone() for name, tensor in made.passes.module.state_dict().items()}
    made.compare(models, at(made, 0), 9)
    for name, tensor in models.items():
        assert tensor.equal(before[name])
    for name, tensor in made.passes.module.state_dict().items():
        assert tensor.equal(module[name])


@pytest.mark.parametrize("fleet", FLEETS)
@pytest.mark.parametrize("model", ["perceptron", "batch norm", "dropout"])
def test_descend_leaves_its_arguments_as_they_were(fleet, model):
    made = fleet(problem(model), seed=0)
    models = made.initial()
    optimizer = Optimizer(lambda p: torch.optim.Adam(p, lr=0.1))
    _, optimizer = made.descend(models, torch.eye(4), optimizer, over(made, range(2)))
    before = {name: tensor.clone() for name, tensor in models.items()}
    first, _ = made.descend(models, torch.eye(4), optimizer, over(made, range(2, 5)))
    again, _ = made.descend(models, torch.eye(4), optimizer, over(made, range(2, 5)))
    for name in models:
        assert models[name].equal(before[name])
        assert first[name].equal(again[name])


@pytest.mark.parametrize("fleet", [PairByPair, Stacked])
def test_estimation_uses_samples_apart_from_the_updates(fleet):
    made = fleet(problem("linear"), seed=0)
    update = made.batches.of(torch.ones(4), 0)
    compare = made.batches.of(torch.ones(4), 0, purpose="compare")
    assert not any(update[k][0].equal(compare[k][0]) for k in range(4))


@pytest.mark.parametrize("fleet", FLEETS)
def test_pair_statistics_are_those_of_the_gradients(fleet):
    made = fleet(problem("linear"), seed=0)
    models = {
        name: tensor + 0.1 * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(1))
        for name, tensor in made.initial().items()
    }
    distance, norm = made.compare(models, at(made, 3), 6)
    for i in range(4):
        vectors = []
        for k in range(4):
            x, y = draw(made.problem.clients[k].train, 6, seed=0, client=k, step=3, purpose="compare")
            leaves = {name: tensor.clone().requires_grad_() for name, tensor in row(models, i).items()}
            loss = F.cross_entropy(functional_call(made.passes.module, leaves, x), y)
            vectors.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(leaves.values()))]))
        for k in range(4):
            assert distance[i, k] == pytest.approx(float((vectors[k] - vectors[i]).square().sum()), rel=1e-3, abs=1e-9)
            assert norm[i, k] == pytest.approx(float(vectors[k].square().sum()), rel=1e-3)


@pytest.mark.parametrize("fleet", [PairByPair, Stacked])
@pytest.mark.parametrize("model", ["linear", "perceptron", "wide"])
def test_a_look_without_a_sketch_at_whole_batches_is_a_comparison(model, fleet):
    made = fleet(problem(model), seed=0)
    models, whole = made.initial(), made.batches.of(torch.ones(4), 3, purpose="compare", size=6)
    compared = made.compare(models, at(made, 3), 6)
    look = made.looked(models, {k: [batch] for k, batch in whole.items()}, everybody(4), range(3, 4), 0)
    assert look.distance.equal(compared.distance) and look.norm.equal(compared.norm)
    assert look.halves.shape == (4, 4, 1, 0) and look.noise.eq(0).all() and look.read.eq(6).all()
    halved = made.looked(
        models, {k: [(x[:3], y[:3]), (x[3:], y[3:])] for k, (x, y) in whole.items()}, everybody(4), range(3, 4), 0
    )
    for mine, its in zip(halved[1:3], compared, strict=True):  # a mean of halves is the mean of the whole
        torch.testing.assert_close(mine, its, rtol=1e-3, atol=1e-7)
    assert (halved.noise > 0).all()


@pytest.mark.parametrize("fleet", FLEETS)
def test_a_batch_is_never_larger_than_the_data(fleet):
    made = fleet(problem("linear", sizes=(3, 12)), seed=0)
    gradients(made, made.initial(), torch.eye(4), 0)
    made.compare(made.initial(), at(made, 0), 100)
    assert made.ledger.samples.tolist() == [3 + 3, 5 + 12, 3 + 3, 5 + 12]


@pytest.mark.parametrize("numbers", [1, 40, 100, 10**9])
def test_judging_in_pieces_gives_the_same(numbers, monkeypatch):
    from allforone.fleet import judge

    subject = problem("perceptron", sizes=(3, 12))
    whole = Stacked(subject, seed=0)
    expected = evaluate(whole, whole.initial())
    for k, client in enumerate(subject.clients):
        x, y = client.test.tensors
        assert expected.loss[k] == pytest.approx(F.cross_entropy(whole.passes.module.eval()(x), y).item(), rel=1e-5)
    monkeypatch.setattr(judge, "PASSED_NUMBERS", numbers)
    pieces = evaluate(Stacked(subject, seed=0), whole.initial())
    torch.testing.assert_close(pieces.loss, expected.loss)
    assert pieces.metrics["accuracy"].equal(expected.metrics["accuracy"])


def spread(output, target):
    """Of all outputs together; no mean of what it is on parts of them."""
    return output.std() + F.cross_entropy(output, target)


@pytest.mark.parametrize("fleet", FLEETS)
def test_a_loss_and_a_metric_see_all_test_data_of_a_client_at_once(fleet, monkeypatch):
    from allforone.fleet import judge

    monkeypatch.setattr(judge, "PASSED_NUMBERS", 40)  # one sample at a time passes through the model
    subject = replace(problem("perceptron", loss=spread), metrics={"range": lambda o, t: o.max() - o.min()})
    made = fleet(subject, seed=0)
    found, module = evaluate(made, made.initial()), made.passes.module.eval()
    for k, client in enumerate(subject.clients):
        x, y = client.test.tensors
        output = module(x).detach()
        assert found.loss[k] == pytest.approx(spread(output, y).item(), rel=1e-5)
        assert found.metrics["range"][k] == pytest.approx((output.max() - output.min()).item(), rel=1e-5)


@pytest.mark.parametrize("fleet", FLEETS)
def test_layers_that_the_user_froze_stay_frozen(fleet):
    made = fleet(problem("still norm"), seed=0)
    models, _ = made.descend(
        made.initial(), torch.eye(4), Optimizer(lambda p: torch.optim.SGD(p, lr=0.1)), over(made, range(2))
    )
    assert (models["1.num_batches_tracked"] == 0).all()
    assert (models["1.running_mean"] == 0).all()


@pytest.mark.parametrize("fleet", FLEETS)
def test_outputs_with_more_rows_than_samples_and_infinite_masks_are_fine(fleet):
    from .models import Tokens, clients

    def loss(output, target):
        return F.cross_entropy(output, target.repeat_interleave(2))

    result = afo.train(Tokens, clients(), loss=loss, metrics={}, rounds=2, fleet=fleet.__name__.lower())
    assert result.stacked["mask"].isinf().all()


@pytest.mark.parametrize("count", [3, 6, 7])
def test_fedavg_keeps_counters_whole(count):
    made = Stacked(problem("batch norm", count=count), seed=0)
    state, _ = play(made, afo.FedAvg(), lambda p: torch.optim.SGD(p, lr=0.1), rounds=3, inner=2)
    assert state.models["1.num_batches_tracked"].tolist() == [6] * count


@pytest.mark.parametrize("fleet", FLEETS)
def test_estimation_and_update_draw_other_dropout_masks(fleet):
    made = fleet(problem("dropout"), seed=0)
    masks = []
    made.passes.module[1].register_forward_hook(lambda *call: masks.append(call[2] != 0))
    made.compare(made.initial(), at(made, 0), 5)
    estimated = masks[0]
    masks.clear()
    gradients(made, made.initial(), torch.eye(4), 0)
    assert not estimated.equal(masks[0])


@pytest.mark.filterwarnings("error")
def test_layers_that_vmap_would_slow_down_are_computed_one_by_one_without_a_warning():
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.last = nn.LSTM(8, 4, batch_first=True), nn.Linear(4, 3)

        def forward(self, x):
            return self.last(self.lstm(x.flatten(1).unflatten(1, (4, 8)))[0][:, -1])

    subject = problem("linear")
    made = Stacked(afo.Problem(Reader, F.cross_entropy, clients=subject.clients), seed=0, batch_size=4)
    assert not made.fast.vectorises
    gradients(made, made.initial(), torch.eye(4), 0)
