"""The rivals that weigh or choose peers, each against a plain loop of its equations."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from allforone.algorithms import CFL, FedALA, FedAMP, FedFomo, PFedGraph, PFedMe

from .by_hand import CLIENTS, INNER, LR, ByHand, closest, rounds_of, sides


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
