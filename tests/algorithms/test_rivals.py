"""The rivals that weigh or choose peers: each against a plain loop of its equations, and where it must be simpler."""

from functools import partial
from itertools import combinations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import allforone as afo
from allforone.algorithms import CFL, FedALA, FedAMP, FedAvg, FedFomo, Local, PFedGraph, PFedMe, State, advance
from allforone.algorithms.cfl import apart
from allforone.algorithms.fedala import last
from allforone.algorithms.fedfomo import useful
from allforone.collaboration.simplex import nearest
from allforone.fleet import Optimizer, Round, Stacked, combined
from allforone.machines.loop import Loop
from allforone.problems import hold_out
from allforone.problems.data import draw

from ..fleet.models import problem
from ..rounds import go_on, play

LR, INNER, CLIENTS = 0.1, 2, 4
PLAIN = partial(torch.optim.SGD, lr=LR)
MOMENTUM = partial(torch.optim.SGD, lr=0.05, momentum=0.5)


def train(algorithm, subject=None, rounds=3, make=MOMENTUM, kind=Stacked):
    return play(kind(subject or problem("perceptron"), seed=3), algorithm, make, rounds, INNER)


def same(one, other):
    return all(torch.allclose(one.models[name], other.models[name], rtol=1e-5, atol=1e-7) for name in one.models)


class ByHand:
    """Clients whose models are vectors, and whose losses and gradients are asked of PyTorch one at a time."""

    def __init__(self, sizes=(12, 6)):
        self.subject = problem("perceptron", sizes=sizes)
        self.module = self.subject.initial_model(3)
        self.start = parameters_to_vector(self.module.parameters()).detach().double()
        sizes = torch.tensor([float(len(client.train)) for client in self.subject.clients])
        self.shares = (sizes / sizes.sum()).double()

    def loss(self, theta, k, step):
        x, y = draw(self.subject.clients[k].train, 5, seed=3, client=k, step=step, purpose="update")
        vector_to_parameters(theta.float(), self.module.parameters())
        return F.cross_entropy(self.module(x), y)

    def gradient(self, theta, k, step):
        found = torch.autograd.grad(self.loss(theta, k, step), list(self.module.parameters()))
        return torch.cat([part.flatten() for part in found]).double()

    def mean(self, models, group):
        return sum(self.shares[i] * models[i] for i in group) / self.shares[group].sum()

    def check(self, algorithm, models, rounds):
        """Train, and compare with the models [N, P] that were made by hand."""
        state, info = train(algorithm, self.subject, rounds, PLAIN)
        found = torch.cat([tensor.flatten(1) for tensor in state.models.values()], 1)
        torch.testing.assert_close(found.double(), torch.stack(list(models)), rtol=1e-3, atol=1e-5)
        return state, info


def rounds_of(count):
    return [range(INNER * number, INNER * (number + 1)) for number in range(count)]


@pytest.mark.parametrize("rate", [0.1, 3.0])
def test_fedamp_reads_like_its_equations(rate):
    hand, penalty, width = ByHand(), 0.5, 0.7
    theta = [hand.start.clone() for _ in range(CLIENTS)]
    for steps in rounds_of(3):
        centres = []
        for i in range(CLIENTS):
            xi = [rate / width * torch.exp(-(theta[i] - other).square().sum() / width) for other in theta]
            xi[i] = torch.tensor(0.0)
            total = sum(xi)
            xi = [weight / max(total, 1) for weight in xi]  # shortened where the own weight would be negative
            xi[i] = 1 - sum(xi)
            centres.append(sum(weight * other for weight, other in zip(xi, theta, strict=True)))
        for i, step in ((i, step) for i in range(CLIENTS) for step in steps):
            theta[i] = theta[i] - LR * (hand.gradient(theta[i], i, step) + penalty / rate * (theta[i] - centres[i]))
    _, info = hand.check(FedAMP(penalty, rate, width), theta, 3)
    torch.testing.assert_close(info.weights.sum(1), torch.ones(CLIENTS).double())
    assert (info.weights >= 0).all()


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


def test_fedfomo_reads_like_its_equations():
    hand = ByHand()
    theta = [hand.start.clone() for _ in range(CLIENTS)]
    before, heard = list(theta), 0.0
    for steps in rounds_of(4):
        loss = [[sum(hand.loss(m, i, s).item() for s in steps) / INNER for m in theta] for i in range(CLIENTS)]
        start = []
        for i in range(CLIENTS):
            was = sum(hand.loss(before[i], i, step).item() for step in steps) / INNER
            far = [(other - before[i]).norm() for other in theta]
            w = [max(0.0, (was - loss[i][k]) / far[k]) if far[k] > 0 else 0.0 for k in range(CLIENTS)]
            heard += sum(w) - w[i]
            mixed = sum(w[k] * (theta[k] - before[i]) for k in range(CLIENTS))
            start.append(before[i] + mixed / sum(w) if sum(w) else theta[i])
        before, theta = start, list(start)
        for i, step in ((i, step) for i in range(CLIENTS) for step in steps):
            theta[i] = theta[i] - LR * hand.gradient(theta[i], i, step)
    hand.check(FedFomo(), theta, 4)
    assert heard > 0.1


def test_fedala_reads_like_its_equations():
    hand, rate = ByHand(), 2.0
    size = sum(parameter.numel() for name, parameter in hand.module.named_parameters() if name.startswith("3."))
    w, theta = hand.start.clone(), [hand.start.clone() for _ in range(CLIENTS)]
    weights = [torch.ones(size, dtype=torch.float64) for _ in range(CLIENTS)]
    for number, steps in enumerate(rounds_of(3)):
        for i in range(CLIENTS):
            gap = (w - theta[i])[-size:]

            def start(i=i):
                return torch.cat([w[:-size], theta[i][-size:] + weights[i] * gap])  # noqa: B023  (called at once)

            for step in [*steps] * (0, 3, 1)[number]:
                slope = hand.gradient(start(), i, step)[-size:]
                weights[i] = (weights[i] - rate * slope * gap).clamp(0, 1)
            theta[i] = start()
            for step in steps:
                theta[i] = theta[i] - LR * hand.gradient(theta[i], i, step)
        w = sum(share * local for share, local in zip(hand.shares, theta, strict=True))
    state, _ = hand.check(FedALA(layers=1, rate=rate, first=3), theta, 3)
    found = torch.cat([tensor.flatten(1) for tensor in state.own["weights"].values()], 1)
    torch.testing.assert_close(found.double(), torch.stack(weights), rtol=1e-3, atol=1e-5)
    assert ((found > 0) & (found < 1)).any()
    model = torch.cat([tensor.flatten(1) for tensor in state.common["model"].values()], 1)[0]
    torch.testing.assert_close(model.double(), w, rtol=1e-3, atol=1e-5)


def test_pfedgraph_reads_like_its_equations():
    hand, spread, penalty = ByHand(), 0.3, 0.5
    theta = [hand.start.clone() for _ in range(CLIENTS)]
    for steps in rounds_of(3):
        local = []
        for i, u in enumerate(theta):
            model = u.clone()
            for step in steps:
                leaf = model.clone().requires_grad_()
                (-penalty * F.cosine_similarity(leaf, u, dim=0)).backward()
                model = model - LR * (hand.gradient(model, i, step) + leaf.grad)
            local.append(model)
        graph = torch.zeros(CLIENTS, CLIENTS, dtype=torch.float64)
        for i in range(CLIENTS):
            ways = [model - hand.start for model in local]
            point = hand.shares + torch.stack([F.cosine_similarity(ways[i], way, dim=0) for way in ways]) / (2 * spread)
            low, high = float(point.min()) - 1, float(point.max())
            for _ in range(100):  # what is taken off all so that the positive ones sum to one
                middle = (low + high) / 2
                low, high = (middle, high) if (point - middle).clamp(min=0).sum() > 1 else (low, middle)
            graph[i] = (point - low).clamp(min=0)
        theta = list(graph @ torch.stack(local))
    _, info = hand.check(PFedGraph(spread, penalty), theta, 3)
    torch.testing.assert_close(info.weights, graph, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("small", "large", "gap"), [(1.1, 0.0, 0.0), (0.95, 0.5, 0.65)])
def test_cfl_reads_like_its_equations(small, large, gap):
    hand = ByHand()
    clusters, greatest = [(list(range(CLIENTS)), hand.start.clone())], 0.0
    for steps in rounds_of(3):
        moved, local, still = [], {}, []
        for group, model in clusters:
            for i in group:
                local[i] = model.clone()
                for step in steps:
                    local[i] = local[i] - LR * hand.gradient(local[i], i, step)
            still.append((hand.mean(local, group) - model).norm())
        greatest = max(greatest, *still)
        for (group, model), length in zip(clusters, still, strict=True):
            ways = [local[i] - model for i in range(CLIENTS) if i in group]
            parts = [group]
            if len(group) > 1 and length < small * greatest and max(way.norm() for way in ways) > large * greatest:
                cut = min(sides(len(group)), key=partial(closest, ways))
                if ((1 - closest(ways, cut)) / 2) ** 0.5 > gap:
                    parts = [[group[place] for place in side] for side in cut]
            moved += [(part, hand.mean(local, part)) for part in parts]
        clusters = moved
    member = {i: (group, model) for group, model in clusters for i in group}
    _, info = hand.check(CFL(small, large, gap), [member[i][1] for i in range(CLIENTS)], 3)
    assert len(clusters) > 1
    assert [info.weights[i].nonzero().flatten().tolist() for i in range(CLIENTS)] == [
        member[i][0] for i in range(CLIENTS)
    ]


def sides(count):
    """Every way to cut into two."""
    whole = set(range(count))
    return [
        [sorted(side), sorted(whole - set(side))]
        for size in range(1, count // 2 + 1)
        for side in combinations(range(count), size)
    ]


def closest(ways, cut):
    return max(float(F.cosine_similarity(ways[i], ways[k], dim=0)) for i in cut[0] for k in cut[1])


def test_pfedme_reads_like_its_equations():
    hand, penalty, rate, blend = ByHand(), 2.0, 0.1, 0.7
    w, theta = hand.start.clone(), [hand.start.clone() for _ in range(CLIENTS)]
    for steps in rounds_of(3):
        local = [w.clone() for _ in range(CLIENTS)]
        for i, step in ((i, step) for i in range(CLIENTS) for step in steps):
            for _ in range(3):
                theta[i] = theta[i] - LR * (hand.gradient(theta[i], i, step) + penalty * (theta[i] - local[i]))
            local[i] = local[i] - rate * penalty * (local[i] - theta[i])
        w = (1 - blend) * w + blend * sum(share * one for share, one in zip(hand.shares, local, strict=True))
    state, _ = hand.check(PFedMe(3, penalty, rate, blend), theta, 3)
    model = torch.cat([tensor.flatten(1) for tensor in state.common["model"].values()], 1)[0]
    torch.testing.assert_close(model.double(), w, rtol=1e-3, atol=1e-5)


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
    fleet = Stacked(subject, seed=seed)
    _, info = play(fleet, CFL(), partial(torch.optim.SGD, lr=0.25), 40)
    member = torch.tensor(subject.clusters)
    assert ((info.weights > 0) == (member[:, None] == member[None, :])).all()


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
