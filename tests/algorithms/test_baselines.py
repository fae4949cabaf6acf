"""Each baseline in the cases where it must equal something simpler, and proof that its terms are applied."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import allforone as afo
from allforone import algorithms
from allforone.algorithms import ALGORITHMS, Apfl, CoBo, Ditto, FedAvg, Ifca, Local, WgaBc, advance
from allforone.fleet import Optimizer, Stacked
from allforone.paper import as_published

from ..fleet.models import problem
from ..fleet.pair_by_pair import PairByPair
from ..rounds import at, evaluate, go_on, play

SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.5)


def train(algorithm, subject=None, rounds=3, inner=2, make=SGD, seed=3):
    made = Stacked(subject or problem("perceptron"), seed=seed)
    return *play(made, algorithm, make, rounds, inner), made


def same(one, other):
    return all(torch.allclose(one.models[name], other.models[name], rtol=1e-5, atol=1e-7) for name in one.models)


def exactly_same(one, other):
    return all(one.models[name].equal(other.models[name]) for name in one.models)


LOCAL = {
    "ditto": Ditto(penalty=0.0),
    "cobo": CoBo(penalty=0.0),
    "apfl": Apfl(mixture=1.0, adaptive=False),
    "wga-bc": WgaBc(share=0.0),
}


@pytest.mark.parametrize("model", ["perceptron", "wide", "batch norm"])
@pytest.mark.parametrize("name", LOCAL)
def test_without_its_penalty_it_is_exactly_local(name, model):
    subject = problem(model)
    local, baseline = train(Local(), subject)[0], train(LOCAL[name], subject)[0]
    for parameter in local.models:
        torch.testing.assert_close(baseline.models[parameter], local.models[parameter], rtol=1e-6, atol=1e-7)


def test_ditto_without_penalty_is_local_bit_for_bit():
    assert exactly_same(train(Ditto(penalty=0.0))[0], train(Local())[0])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Ditto(0.1), Ditto(0.2)),
        (Ditto(0.0), Ditto(1e-3)),
        (CoBo(0.05), CoBo(0.1)),
        (CoBo(0.0), CoBo(1e-3)),
        (CoBo(0.05, weight_step=0.0), CoBo(0.05, weight_step=10.0)),
        (WgaBc(0.5), WgaBc(0.6)),
        (WgaBc(rate=0.1), WgaBc(rate=0.2)),
        (Apfl(0.5), Apfl(0.6)),
        (Apfl(0.5), Apfl(0.5, adaptive=False)),
        (Apfl(0.5), Apfl(0.5, mixture_step=10.0)),
        (FedAvg(0.0), FedAvg(0.1)),
        (FedAvg(finetune=1), FedAvg(finetune=2)),
        (Ifca(1), Ifca(2)),
    ],
    ids=str,
)
def test_a_changed_penalty_changes_the_update(one, other):
    assert not same(train(one)[0], train(other)[0])


@pytest.mark.parametrize("algorithm", [Ditto(0.3), CoBo(0.3)], ids=str)
def test_the_penalty_is_applied_with_its_factor_from_the_first_step_it_acts(algorithm):
    """Doubling the penalty doubles the change it makes in one step, for the step is linear in it."""
    before = train(algorithm, rounds=2)[0]

    def step(changed):
        fleet = Stacked(problem("perceptron"), seed=3)
        return advance(changed, before, fleet, at(fleet, 4))[0].models

    kind = type(algorithm)
    none, once, twice = (step(kind(penalty)) for penalty in (0.0, 0.3, 0.6))
    for name in none:
        torch.testing.assert_close(twice[name] - none[name], 2 * (once[name] - none[name]), rtol=1e-3, atol=1e-6)
    assert any((once[name] - none[name]).abs().max() > 1e-4 for name in none)


@pytest.mark.slow
def test_ditto_pulls_towards_the_common_model_of_fedavg():
    state, _, fleet = train(Ditto(0.1))
    common = train(FedAvg())[0]
    for name in common.models:
        torch.testing.assert_close(state.common["model"][name], common.models[name][:1])
    strong, weak = (train(Ditto(penalty), rounds=20)[0] for penalty in (5.0, 0.01))
    for name in fleet.trained:
        near, far = ((s.models[name] - s.common["model"][name]).norm() for s in (strong, weak))
        assert near < far / 3


def test_apfl_with_mixture_zero_is_fedavgs_model():
    assert same(train(Apfl(mixture=0.0, adaptive=False))[0], train(FedAvg())[0])


@pytest.mark.slow
def test_apfl_descends_in_its_mixture():
    """The mixture moves against its slope: where the own model is better, it is used more."""
    state, _, _ = train(Apfl(mixture=0.5), rounds=30, make=partial(torch.optim.SGD, lr=0.1))
    mixture = state.own["mixture"]
    assert ((mixture >= 0) & (mixture <= 1)).all()
    assert mixture.mean() > 0.5  # clients in two clusters: own models fit better than the common one
    fixed, _, _ = train(Apfl(mixture=0.5, adaptive=False), rounds=30)
    assert (fixed.own["mixture"] == 0.5).all()


def test_apfl_slope_in_the_mixture_is_that_of_the_loss():
    before, _, _ = train(Apfl(mixture=0.4, adaptive=False), rounds=3)
    fleet = Stacked(problem("perceptron"), seed=3)
    after, _ = go_on(Apfl(mixture_step=1e-3), before, fleet, 1, inner=2, done=3)
    module = fleet.passes.module.train()
    batches = fleet.batches.of(torch.ones(4), 6)
    for i in range(4):
        alpha = torch.tensor(0.4, requires_grad=True)
        mixed = {
            name: alpha * before.own["model"][name][i] + (1 - alpha) * before.common["model"][name][0]
            for name in fleet.trained
        }
        F.cross_entropy(torch.func.functional_call(module, mixed, batches[i][0]), batches[i][1]).backward()
        assert after.own["mixture"][i] == pytest.approx(0.4 - 1e-3 * float(alpha.grad), abs=1e-7)


def test_cobo_weights_stay_in_the_unit_interval_persist_and_separate_the_clusters():
    subject = afo.synthetic(seed=127, clients=8)
    fleet = Stacked(subject, seed=127)
    algorithm = CoBo()
    state = algorithm.init(fleet.initial(), Optimizer(partial(torch.optim.SGD, lr=subject.settings.optimizer["lr"])))
    seen = []
    for number in range(40):
        state, info = advance(algorithm, state, fleet, at(fleet, number))
        weights = state.own["weights"]
        assert ((weights >= 0) & (weights <= 1)).all()
        assert weights.equal(weights.T)
        seen.append(weights)
    still = CoBo(weight_step=0.0)
    assert advance(still, state, fleet, at(fleet, 40))[0].own["weights"].equal(seen[-1])
    member = torch.tensor(subject.clusters)
    together = (member[:, None] == member[None, :]) & ~torch.eye(8, dtype=torch.bool)
    apart = member[:, None] != member[None, :]
    assert seen[-1][together].mean() > 0.9
    assert seen[-1][apart].max() < 0.1
    assert (info.weights.diagonal() == 1).all()


def test_cobo_agreement_is_the_inner_product_at_the_midpoint():
    from allforone.algorithms.cobo import agreement_half_way

    fleet = PairByPair(problem("linear"), seed=3)
    random = torch.Generator().manual_seed(1)
    models = {name: tensor + torch.randn(tensor.shape, generator=random) for name, tensor in fleet.initial().items()}
    agreement = agreement_half_way(fleet, models, at(fleet, 5))
    batches = fleet.batches.of(torch.ones(4), 5)
    for i in range(4):
        for k in range(4):
            middle = {name: (tensor[i] + tensor[k]) / 2 for name, tensor in models.items()}
            ours, theirs = (fleet.passes.gradient(middle, i, j, batches[j], 5)[0] for j in (i, k))
            expected = sum(float((ours[name] * theirs[name]).sum()) for name in ours)
            assert agreement[i, k] == pytest.approx(0 if i == k else expected, rel=1e-4, abs=1e-7)


def test_cobo_looks_at_the_pairs_of_those_present_also_where_there_are_as_many_pairs_as_clients():
    from allforone.algorithms.cobo import agreement_half_way

    here = torch.tensor([True, False, True])
    fleet = Stacked(problem("linear", count=3), seed=3, participation=lambda step: here)
    agreement = agreement_half_way(fleet, fleet.initial(), at(fleet, 5))
    assert (agreement != 0).equal((here[:, None] & here) & ~torch.eye(3, dtype=torch.bool))


def test_wga_bc_without_peers_is_local():
    subject = problem("perceptron", count=1)
    for share in (None, 0.5):
        assert exactly_same(train(WgaBc(share=share), subject)[0], train(Local(), subject)[0])


class Exact:
    """A client whose every batch is the same: no noise. R(θ) = ‖θ − optimum‖²."""

    def __init__(self, optimum):
        self.optimum, self.floor = optimum, 0.0

    def draw(self, size, generator):
        assert size % 2 == 0
        x = (torch.eye(2, dtype=torch.float64) * 2**0.5).repeat(size // 2, 1)
        return x, x @ self.optimum[:, None]

    def excess(self, model):
        return (model["weight"][0] - self.optimum).square().sum()


@pytest.mark.slow
def test_the_bias_correction_drives_the_bias_to_zero_on_a_quadratic():
    optima = torch.tensor([[1.0, 0], [-1, 0], [0, 3]], dtype=torch.float64)
    streams = [Exact(optimum) for optimum in optima]

    def linear():
        model = nn.Linear(2, 1, bias=False, dtype=torch.float64)
        nn.init.zeros_(model.weight)
        return model

    subject = afo.Problem(linear, F.mse_loss, clients=[afo.Client(s, s) for s in streams])
    plain = partial(torch.optim.SGD, lr=0.1)
    corrected, _, fleet = train(WgaBc(rate=0.1), subject, rounds=400, inner=1, make=plain)
    uncorrected, _, _ = train(WgaBc(rate=0.0), subject, rounds=100, inner=1, make=plain)
    assert evaluate(fleet, corrected.models).excess.max() < 1e-12
    assert evaluate(fleet, uncorrected.models).excess.min() > 0.1


@pytest.mark.parametrize("name", ["Ditto", "CoBo"])
def test_as_published_the_penalty_is_never_applied(name):
    published = train(getattr(as_published, name)())[0]
    assert exactly_same(published, train(Local())[0])
    assert not same(train(getattr(algorithms, name)(penalty=5.0))[0], published)


def test_as_published_wga_bc_is_local_on_streams_and_almost_deaf_to_its_own_gradient_on_data():
    stream = afo.synthetic(seed=3, clients=4)
    plain = partial(torch.optim.SGD, lr=0.1)
    published, local = (train(a, stream, make=plain)[0] for a in (as_published.WgaBc(), Local()))
    assert exactly_same(published, local)
    _, info, _ = train(as_published.WgaBc())  # 4 clients of 12 samples each
    torch.testing.assert_close(info.weights.diagonal(), torch.full((4,), 1 / 12).double())
    assert info.weights[0, 1:].tolist() == pytest.approx([11 / 12 / 16] * 3)
    assert info.weights.sum(1).max() < 0.3


def test_as_published_apfl_fixes_the_mixture_at_one_minus_the_step():
    state, _, _ = train(as_published.Apfl())
    assert state.own["mixture"].tolist() == pytest.approx([0.95] * 4)


def test_fedprox_holds_local_steps_near_the_common_model():
    far, near = (train(FedAvg(proximal), rounds=1, inner=20)[0] for proximal in (0.0, 10.0))
    fleet = train(Local())[2]
    start = fleet.initial()
    for name in fleet.trained:
        assert (near.models[name] - start[name]).norm() < 0.5 * (far.models[name] - start[name]).norm()


def test_finetuning_starts_from_fedavgs_model_and_leaves_it_as_it_was():
    tuned, _, fleet = train(FedAvg(finetune=2))
    plain, _, _ = train(FedAvg())
    for name in plain.models:
        torch.testing.assert_close(tuned.common["model"][name], plain.models[name][:1])
    assert not same(tuned, plain)
    assert fleet.ledger.samples.tolist() == [30] * 4  # on batches that were drawn already


@pytest.mark.parametrize("seed", [127, 496, 1729])
def test_ifca_finds_the_clusters_of_the_synthetic_problem(seed):
    subject = afo.synthetic(seed=seed)
    _, info, _ = train(Ifca(2), subject, rounds=20, inner=1, make=partial(torch.optim.SGD, lr=0.25), seed=seed)
    member = torch.tensor(subject.clusters)
    assert ((info.weights > 0) == (member[:, None] == member[None, :])).all()


def test_ifca_with_one_cluster_is_fedavg_after_its_first_round():
    before = train(Ifca(1), rounds=1)[0]
    fleet = Stacked(problem("perceptron"), seed=3)
    ours, _ = go_on(Ifca(1), before, fleet, 1, inner=2, done=1)
    common = {name: tensor[:1] for name, tensor in before.models.items()}
    theirs, _ = go_on(FedAvg(), before._replace(common={"model": common}), fleet, 1, inner=2, done=1)
    assert same(ours, theirs)


def test_a_batch_that_serves_two_models_is_counted_once():
    for name in ALGORITHMS:
        if not name.startswith("all-for-one"):
            assert train(ALGORITHMS[name]())[2].ledger.samples.tolist() == [30] * 4, name


@pytest.mark.parametrize(
    "make",
    [
        lambda: Ditto(penalty=-1),
        lambda: CoBo(penalty=-1),
        lambda: WgaBc(share=2),
        lambda: WgaBc(rate=-0.1),
        lambda: Apfl(mixture=1.5),
        lambda: FedAvg(proximal=-1),
        lambda: Ifca(clusters=0),
    ],
)
def test_settings_out_of_range_are_refused(make):
    with pytest.raises(afo.InputError, match=r"must|at least"):
        make()
