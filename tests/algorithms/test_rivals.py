"""The rivals that weigh or choose peers where they must be something simpler, and the parts that they are made of."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils import vector_to_parameters

import allforone as afo
from allforone.algorithms import CFL, FedALA, FedAMP, FedAvg, FedFomo, Local, PFedGraph, PFedMe, State, advance
from allforone.algorithms.cfl import apart
from allforone.algorithms.fedala import last
from allforone.algorithms.fedfomo import useful
from allforone.collaboration.simplex import nearest
from allforone.fleet import Optimizer, Round, Stacked, combined
from allforone.machines.loop import Loop
from allforone.problems import hold_out

from ..fleet.models import problem
from ..rounds import go_on, play
from .by_hand import INNER, PLAIN, closest, sides

MOMENTUM = partial(torch.optim.SGD, lr=0.05, momentum=0.5)


def train(algorithm, subject=None, rounds=3, make=MOMENTUM, kind=Stacked):
    return play(kind(subject or problem("perceptron"), seed=3), algorithm, make, rounds, INNER)


def same(one, other):
    return all(torch.allclose(one.models[name], other.models[name], rtol=1e-5, atol=1e-7) for name in one.models)


def test_heurfedamp_gives_others_what_the_own_weight_leaves_by_their_cosine():
    theta, here = torch.randn(4, 9, dtype=torch.float64), torch.tensor([True, True, False, True])
    xi = FedAMP(cosine=True, width=2.0, own=0.4).attention(theta, here)
    for i in (0, 1, 3):
        others = [k for k in (0, 1, 3) if k != i]
        scores = torch.stack([2 * F.cosine_similarity(theta[i], theta[k], dim=0) for k in others]).softmax(0)
        torch.testing.assert_close(xi[i, others], 0.6 * scores)
    torch.testing.assert_close(xi.diagonal(), torch.tensor([0.4, 0.4, 0, 0.4]).double())
    assert (xi[2] == 0).all() and (xi[:, 2] == 0).all()
    alone = FedAMP(cosine=True, own=0.4).attention(theta, torch.tensor([True, False, False, False]))
    assert alone[0].tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("model", ["perceptron", "batch norm"])
@pytest.mark.parametrize("algorithm", [FedAMP(penalty=0.0), PFedMe(steps=1, penalty=0.0)], ids=str)
def test_without_its_penalty_it_is_local(algorithm, model):
    subject = problem(model)
    assert same(train(algorithm, subject)[0], train(Local(), subject)[0])


@pytest.mark.parametrize("model", ["perceptron", "batch norm"])
def test_fedala_that_takes_nothing_is_local(model):
    subject, algorithm = problem(model), FedALA(layers=99, rate=0.0)
    fleet = Stacked(subject, seed=3)
    state, info = go_on(algorithm, algorithm.init(fleet.initial(), Optimizer(MOMENTUM)), fleet, 1, INNER)
    nothing = {name: torch.zeros_like(tensor) for name, tensor in state.own["weights"].items()}
    state, info = go_on(algorithm, state._replace(own={**state.own, "weights": nothing}), fleet, 2, INNER, done=1)
    assert same(state, train(Local(), subject)[0])
    torch.testing.assert_close(info.weights, torch.eye(4).double())


def test_fedala_that_takes_all_starts_where_fedavg_does():
    ours, theirs = train(FedALA(rate=0.0))[0], train(FedAvg())[0]
    for name, tensor in theirs.common["model"].items():
        torch.testing.assert_close(ours.common["model"][name], tensor)


@pytest.mark.parametrize(
    "algorithm", [PFedGraph(spread=1e9, penalty=0.0), CFL(small=0.0), CFL(large=1e9), CFL(small=9, gap=1.0)], ids=str
)
@pytest.mark.parametrize("model", ["perceptron", "batch norm"])
def test_that_everybody_is_in_one_cluster_is_fedavg(algorithm, model):
    subject = problem(model, sizes=(12, 6))
    (ours, info), (theirs, expected) = train(algorithm, subject), train(FedAvg(), subject)
    assert same(ours, theirs)
    torch.testing.assert_close(info.weights, expected.weights)


def test_pfedgraph_that_does_not_spread_follows_oneself_alone():
    (ours, info), (theirs, _) = train(PFedGraph(spread=1e-9, penalty=0.0)), train(Local())
    assert same(ours, theirs) and info.weights.equal(torch.eye(4).double())


class Deaf(Stacked):
    """Clients to whom every other model than their own is as bad as can be."""

    def losses(self, models, round):
        found = super().losses(models, round)
        return torch.where(torch.eye(len(found), dtype=torch.bool), found, torch.inf)


def test_fedfomo_to_whom_nobody_else_is_useful_is_local():
    (ours, info), (theirs, _) = train(FedFomo(), kind=Deaf), train(Local())
    assert same(ours, theirs) and info.weights.equal(torch.eye(4).double())


def test_fedfomo_weights_are_gains_by_distance_of_those_present_and_never_negative():
    gain = torch.tensor([[1.0, 4, -1, 9], [-1, -2, -3, 9], [1, torch.nan, -torch.inf, 9], [9, 9, 9, 9]])
    far = torch.tensor([[1.0, 2, 1, 1], [1, 1, 1, 1], [2, 1, 1, 1], [1, 1, 1, 1]])
    weights = useful(gain.double(), far.double(), torch.tensor([True, True, True, False]))
    assert weights.tolist() == [[1 / 3, 2 / 3, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize("kind", [Stacked, Loop])
def test_fedfomo_judges_by_held_out_data_where_that_is_wanted(kind):
    subject = hold_out(problem("perceptron", sizes=(25,)), 0.2, 3)
    fleet = kind(subject, seed=3)
    before, _ = play(fleet, Local(), PLAIN, 2, INNER)
    others = {name: tensor.flip(0) for name, tensor in before.models.items()}
    state = State(before.models, before.optimizer, {"before": others})
    _, info = advance(FedFomo(held=True), state, fleet, fleet.begin(3, range(4, 6)))
    module, gain = subject.initial_model(3).eval(), torch.zeros(4, 4, dtype=torch.float64)
    was, now = (torch.cat([t.flatten(1) for t in models.values()], 1) for models in (others, before.models))
    for i, client in enumerate(subject.clients):
        x, y = client.held.take(torch.arange(len(client.held)))
        parts = torch.arange(len(client.held)).tensor_split(min(20, len(client.held)))

        def loss(vector, x=x, y=y, parts=parts):
            vector_to_parameters(vector, module.parameters())
            return sum(F.cross_entropy(module(x[p]), y[p]).item() for p in parts) / len(parts)

        gain[i] = torch.tensor([loss(was[i]) - loss(model) for model in now])
    expected = useful(gain, torch.cdist(was.double(), now.double()), torch.ones(4, dtype=torch.bool))
    torch.testing.assert_close(info.weights, expected, rtol=1e-4, atol=1e-6)
    assert ((info.weights > 0).sum(1) > 1).any()


def test_fedfomo_says_what_it_needs_where_nothing_is_held_out():
    with pytest.raises(afo.InputError, match=r"nothing is held out: make the problem by problems\.hold_out"):
        train(FedFomo(held=True))


@pytest.mark.parametrize("seed", [127, 496, 1729])
def test_cfl_finds_the_clusters_of_the_synthetic_problem(seed):
    subject = afo.synthetic(seed=seed)
    fleet = Stacked(subject, seed=seed)  # of batches of one sample, which point anywhere: no gap is asked for
    _, info = play(fleet, CFL(small=0.1, gap=0.0), partial(torch.optim.SGD, lr=0.25), 40)
    member = torch.tensor(subject.clusters)
    assert ((info.weights > 0) == (member[:, None] == member[None, :])).all()


@pytest.mark.slow
@pytest.mark.parametrize("split", ["cluster", "iid"])
def test_cfl_cuts_digits_where_they_are_two_clusters_and_nowhere_else(split):
    subject = afo.digits(seed=11, split=split)
    last = afo.train(subject, algorithm=CFL(), seed=11, evaluate_every=30).weights[-1]
    member = torch.tensor(subject.clusters) if split == "cluster" else torch.zeros(10)
    assert ((last > 0) == (member[:, None] == member[None, :])).all()


def test_who_is_absent_when_its_cluster_is_cut_stays_with_the_side_that_keeps_the_number():
    fleet, algorithm = Stacked(problem("perceptron"), seed=3), CFL(small=1.1, large=0.0, gap=0.0)
    state = algorithm.init(fleet.initial(), Optimizer(PLAIN))
    state, _ = advance(algorithm, state, fleet, Round(1, range(2), torch.tensor([True, True, True, False])))
    assert state.own["cluster"][3] == 0 and sorted(state.own["cluster"][:3].unique().tolist()) == [0, 1]
    before = {name: tensor.clone() for name, tensor in state.common["models"].items()}
    only = Round(2, range(2, 4), torch.tensor([False, False, False, True]))
    state, _ = advance(algorithm, state, fleet, only)
    for name in fleet.trained:
        assert not state.common["models"][name][0].equal(before[name][0])
        assert state.common["models"][name][1].equal(before[name][1])
        assert state.models[name][3].equal(state.common["models"][name][0])


@given(st.integers(2, 7), st.integers(0, 10**6))
def test_a_cut_leaves_the_least_similar_sides_of_all_cuts(count, seed):
    ways = torch.randn(count, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    units = F.normalize(ways, dim=1)
    side = apart(units @ units.T)
    found = [side.nonzero().flatten().tolist(), (~side).nonzero().flatten().tolist()]
    assert all(found)
    assert closest(ways, found) == pytest.approx(min(closest(ways, cut) for cut in sides(count)))


@given(st.integers(1, 6), st.integers(0, 10**6), st.sampled_from([1e-3, 1.0, 1e3]))
def test_no_point_of_the_simplex_is_nearer_than_the_nearest(count, seed, scale):
    random = torch.Generator().manual_seed(seed)
    points = scale * torch.randn(5, count, generator=random, dtype=torch.float64)
    allowed = torch.rand(5, count, generator=random) < 0.7
    found = nearest(points, allowed)
    assert (found >= 0).all() and (found[~allowed] == 0).all()
    torch.testing.assert_close(found.sum(1), allowed.any(1).double())
    for k in range(count):  # to any corner that is allowed, the way leads away from the point
        corner = F.one_hot(torch.full((5,), k), count).double()
        uphill = ((found - points) * (corner - found)).sum(1)
        assert (uphill[allowed[:, k]] >= -1e-9 * max(1, scale)).all()


def test_models_are_combined_row_by_row_and_who_has_no_weight_is_not_read():
    models = {"a": torch.tensor([[1.0], [2], [torch.nan]]), "count": torch.tensor([5, 6, 7])}
    weights = torch.tensor([[0.5, 0.5, 0], [0, 1, 0], [0, 0, 0]], dtype=torch.float64)
    found = combined(models, weights)
    assert found["a"].tolist() == [[1.5], [2], [0]] and found["a"].dtype == torch.float32
    assert found["count"].tolist() == [5, 6, 7]


def test_what_all_models_have_alike_stays_bit_for_bit_a_mask_of_infinities_too():
    alike = torch.tensor([0.1, -torch.inf], dtype=torch.float64).expand(3, 2)
    thirds = torch.full((3, 3), 1 / 3, dtype=torch.float64)
    assert combined({"mask": alike}, thirds)["mask"].equal(alike)
    assert combined({"mask": alike}, torch.eye(3, dtype=torch.float64))["mask"].equal(alike)


def test_the_last_layers_are_modules_with_parameters_of_their_own():
    names = ["0.weight", "0.bias", "block.1.weight", "block.1.bias", "head.weight"]
    assert last(names, 1) == ["head.weight"] and last(names, 2) == names[2:] and last(names, 9) == names


@pytest.mark.parametrize(("lr", "penalty"), [(0.001, 15.0), (0.005, 15.0), (0.5, 0.15)])
def test_the_pull_of_pfedme_is_fifteen_or_as_much_as_the_step_size_bears(lr, penalty):
    make = partial(torch.optim.SGD, lr=lr)
    assert same(train(PFedMe(), make=make)[0], train(PFedMe(penalty=penalty, rate=lr), make=make)[0])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (FedAMP(1.0), FedAMP(2.0)),
        (FedAMP(rate=0.1), FedAMP(rate=0.2)),
        (FedAMP(rate=0.1, width=1.0), FedAMP(rate=0.1, width=2.0)),
        (FedAMP(), FedAMP(cosine=True)),
        (FedAMP(cosine=True, own=0.2), FedAMP(cosine=True, own=0.3)),
        (FedFomo(batches=1), FedFomo(batches=2)),
        (FedALA(1), FedALA(2)),
        (FedALA(rate=1.0), FedALA(rate=2.0)),
        (FedALA(rate=9.0, first=1), FedALA(rate=9.0, first=2)),
        (PFedGraph(0.8), PFedGraph(0.1)),
        (PFedGraph(penalty=0.0), PFedGraph(penalty=0.1)),
        (CFL(gap=0.0), CFL(small=1.1, gap=0.0)),
        (CFL(small=1.1, large=0.0, gap=0.0), CFL(small=1.1, large=9.0, gap=0.0)),
        (CFL(small=1.1, gap=0.0), CFL(small=1.1, gap=0.65)),
        (PFedMe(1), PFedMe(2)),
        (PFedMe(penalty=1.0), PFedMe(penalty=2.0)),
        (PFedMe(rate=0.005), PFedMe(rate=0.05)),
        (PFedMe(), PFedMe(rate=0.1)),
        (PFedMe(blend=0.5), PFedMe(blend=1.0)),
    ],
    ids=str,
)
def test_a_changed_setting_changes_the_models(one, other):
    assert not same(train(one)[0], train(other)[0])


@pytest.mark.parametrize(
    "make",
    [
        lambda: FedAMP(penalty=-1),
        lambda: FedAMP(rate=0),
        lambda: FedAMP(width=0),
        lambda: FedAMP(own=0.5),
        lambda: FedAMP(cosine=True, own=2),
        lambda: FedFomo(batches=0),
        lambda: FedALA(layers=0),
        lambda: FedALA(first=0),
        lambda: FedALA(rate=-1),
        lambda: PFedGraph(spread=0),
        lambda: PFedGraph(penalty=-1),
        lambda: CFL(small=-1),
        lambda: CFL(gap=2),
        lambda: PFedMe(steps=0),
        lambda: PFedMe(penalty=-1),
        lambda: PFedMe(blend=2),
    ],
)
def test_settings_out_of_range_are_refused(make):
    with pytest.raises(afo.InputError, match="must"):
        make()
