"""Whoever is asked puts in its own private part: every question of a fleet, as its equation has it."""

import copy
from functools import partial

import pytest
import torch
from torch import nn

from allforone.errors import Diverged, InputError
from allforone.fleet import Optimizer, Privates, Spliced, Stacked, everybody, private_names
from allforone.fleet.optimizer import OfAnyPart
from allforone.machines.loop import Loop
from allforone.problems.data import draw
from allforone.testing import small_problem, with_batch_norm

from ..rounds import over
from .plain_loop import uneven

SEED, SIZE, N = 3, 4, 4
FLEETS = [Stacked, Loop]
HEAD = ("2.weight", "2.bias")
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)


def personal(fleet):
    """Models of which no two are the same."""
    random = torch.Generator().manual_seed(1)
    return {
        name: t + 0.3 * torch.randn(t.shape, generator=random) if t.is_floating_point() and "running" not in name else t
        for name, t in fleet.initial().items()
    }


def spliced(fleet, models, names=HEAD, make=SGD):
    privates = Privates({name: models[name] for name in names}, Optimizer(make), fleet.trained)
    return Spliced(fleet, privates), {name: t for name, t in models.items() if name not in names}


def modules(subject, models):
    """The same models as modules, in training."""
    found = []
    for i in range(N):
        module = copy.deepcopy(subject.initial_model(SEED)).train()
        module.load_state_dict({name: t[i].clone() for name, t in models.items()})
        found.append(module)
    return found


def meeting(shared, private, names):
    """(s of the one, p of the other), in memory of its own."""
    module = copy.deepcopy(shared)
    module.load_state_dict({**module.state_dict(), **{name: private.state_dict()[name] for name in names}})
    return module


def gradient(subject, module, batch):
    module.zero_grad()
    subject.loss(module(batch[0]), batch[1]).backward()
    return {name: parameter.grad.clone() for name, parameter in module.named_parameters()}


def batch_of(subject, k, step, purpose="update", size=SIZE):
    return draw(subject.clients[k].train, size, seed=SEED, client=k, step=step, purpose=purpose)


def by_the_equation(subject, models, names, mix, steps):
    """s_i ← s_i − η Σ_k α_ik g_k(s_i, p_k), p_i ← p_i − η g_i(s_i, p_i), all at once, with everybody's own momentum."""
    sites = modules(subject, models)
    optimizers = [SGD(site.parameters()) for site in sites]
    for step in range(steps):
        slopes, buffers = [], []
        for i, site in enumerate(sites):
            own = meeting(site, site, names)
            mine = gradient(subject, own, batch_of(subject, i, step))
            buffers.append({name: b.clone() for name, b in own.named_buffers()})
            total = {name: torch.zeros_like(g) for name, g in mine.items()}
            for k, other in enumerate(sites):
                found = gradient(subject, meeting(site, other, names), batch_of(subject, k, step))
                total = {name: t + float(mix[i, k]) * found[name] for name, t in total.items()}
            slopes.append({name: mine[name] if name in names else t for name, t in total.items()})
        for site, optimizer, slope, after in zip(sites, optimizers, slopes, buffers, strict=True):
            for name, parameter in site.named_parameters():
                parameter.grad = slope[name]
            optimizer.step()
            for name, buffer in site.named_buffers():
                buffer.copy_(after[name])
    return sites


@pytest.mark.parametrize("fleet", FLEETS)
@pytest.mark.parametrize(
    ("model", "names"),
    [
        (None, HEAD),
        (None, ("0.weight", "0.bias")),
        (with_batch_norm, ("3.weight", "3.bias")),
        (with_batch_norm, ("1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked")),
        (with_batch_norm, ("1.running_mean", "1.running_var")),
    ],
)
def test_updates_are_those_of_the_equation(fleet, model, names):
    subject, mix = small_problem(model), uneven(N)
    made = fleet(subject, seed=SEED, batch_size=SIZE)
    models = personal(made)
    between, shared = spliced(made, models, names)
    after, _ = between.descend(shared, mix, Optimizer(SGD), over(made, range(4)))
    after |= between.privates.finish()[0]
    for i, site in enumerate(by_the_equation(subject, models, names, mix, 4)):
        for name, tensor in site.state_dict().items():
            torch.testing.assert_close(after[name][i], tensor, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("fleet", FLEETS)
@pytest.mark.parametrize("apart", [False, True])
def test_looks_are_about_the_shared_part(fleet, apart):
    subject = small_problem()
    made = fleet(subject, seed=SEED, batch_size=SIZE)
    models = personal(made)
    between, shared = spliced(made, models)
    look = between.look(shared, over(made, range(2)), everybody(N), 6, 1000, apart)
    sites = modules(subject, models)
    for i in range(N):
        told = []
        for k in range(N):
            x, y = batch_of(subject, k, 0, "compare" if apart else "look", 6)
            halves = [(x, y)] if apart else [(x[:3], y[:3]), (x[3:], y[3:])]
            found = [gradient(subject, meeting(sites[i], sites[k], HEAD), half) for half in halves]
            told.append(torch.stack([torch.cat([one[n].flatten() for n in between.trained]) for one in found]))
        told = torch.stack(told).double()
        mean = told.mean(1)
        torch.testing.assert_close(look.halves[i], told, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(look.norm[i], mean.square().sum(1), rtol=1e-4, atol=1e-7)
        torch.testing.assert_close(look.distance[i], (mean - mean[i]).square().sum(1), rtol=1e-4, atol=1e-7)
        noise = ((told[:, 0] - told[:, -1]) / 2).square().sum(1)
        torch.testing.assert_close(look.noise[i], noise, rtol=1e-4, atol=1e-7)
    assert (look.read == 6).all()


@pytest.mark.parametrize("fleet", FLEETS)
def test_walkers_take_their_private_part_along_and_tell_how_far_the_shared_one_came(fleet):
    subject = small_problem()
    made = fleet(subject, seed=SEED, batch_size=SIZE)
    models = personal(made)
    between, shared = spliced(made, models)
    ids = torch.tensor([[i, (i + 1) % N, -1] for i in range(N)])
    found = {int(walks.rows[0]): walks for walks in between.walks(shared, ids, Optimizer(SGD), over(made, range(3)), 1)}
    sites = modules(subject, models)
    for i in range(N):
        for c, k in enumerate((i, (i + 1) % N)):
            walker = meeting(sites[i], sites[k], HEAD)
            start, optimizer = copy.deepcopy(walker.state_dict()), SGD(walker.parameters())
            for step in range(3):
                gradient(subject, walker, batch_of(subject, k, step))
                optimizer.step()
            way = torch.cat([(walker.state_dict()[name] - start[name]).flatten() for name in between.trained])
            torch.testing.assert_close(found[i].ways[0, c, 0], way, rtol=1e-4, atol=1e-6)
            if k == i:
                kept = between.privates.models
                for name in HEAD:
                    torch.testing.assert_close(kept[name][i], walker.state_dict()[name], rtol=1e-4, atol=1e-6)
        assert found[i].ways[0, 2].isnan().all()


@pytest.mark.parametrize("fleet", FLEETS)
def test_losses_are_of_nobodys_models_with_the_private_part_of_who_is_asked(fleet):
    subject = small_problem()
    made = fleet(subject, seed=SEED, batch_size=SIZE)
    models = personal(made)
    between, shared = spliced(made, models)
    found = between.losses({name: t[:2] for name, t in shared.items()}, over(made, range(2)))
    sites = modules(subject, models)
    for m in range(2):
        for k in range(N):
            module = meeting(sites[m], sites[k], HEAD)
            losses = [subject.loss(module(x), y) for x, y in (batch_of(subject, k, step) for step in range(2))]
            assert found[m, k] == pytest.approx(sum(losses).item() / 2, rel=1e-4)


def answers(fleet, models):
    """What each client k answers at the shared part of each client i, in every way of asking."""
    between, shared = spliced(fleet, models)
    round = over(fleet, range(2))
    pairs = torch.eye(N, dtype=torch.float64)
    at_all = [
        between.gradients({name: t[[i] * N] for name, t in shared.items()}, pairs, round, 0, None) for i in range(N)
    ]
    told = {f"gradient of {name}": torch.stack([found[name] for found in at_all]) for name in between.trained}
    told["look"] = between.look(shared, round, everybody(N), 6, 1000).halves
    told["losses"] = between.losses(shared, round)
    told["walks"] = torch.cat([w.ways for w in between.walks(shared, everybody(N), Optimizer(SGD), round, 2)])
    return told


@pytest.mark.parametrize("fleet", FLEETS)
def test_a_private_part_decides_the_answers_of_its_owner_and_no_other(fleet):
    made = fleet(small_problem(), seed=SEED, batch_size=SIZE)
    models = personal(made)
    other = {name: t.clone() for name, t in models.items()}
    for name in HEAD:
        other[name][1] *= 2
    before, after = answers(made, models), answers(made, other)
    others = torch.arange(N) != 1
    for what, told in before.items():
        assert torch.equal(told[:, others], after[what][:, others]), what
        assert not torch.isclose(told[:, 1], after[what][:, 1]).all(), what


@pytest.mark.parametrize("fleet", FLEETS)
def test_who_has_nothing_to_say_but_nan_is_not_heard_where_it_is_not_asked(fleet):
    made = fleet(small_problem(), seed=SEED, batch_size=SIZE)
    models = personal(made)
    models["2.weight"][1] = torch.nan
    between, shared = spliced(made, models)
    round = over(made, range(1))
    mix = (1 - torch.eye(N, dtype=torch.float64)) * (torch.arange(N) != 1)
    found = between.gradients(shared, mix, round, 0, owners=None)
    assert all(tensor.isfinite().all() for tensor in found.values()), "client 1's own model is among them"


@pytest.mark.parametrize("fleet", FLEETS)
def test_a_walker_whose_private_part_leads_astray_is_not_followed(fleet):
    made = fleet(small_problem(), seed=SEED, batch_size=SIZE)
    models = personal(made)
    models["2.weight"][1] = 1e30
    between, shared = spliced(made, models, make=partial(torch.optim.SGD, lr=0.0))
    round, ids = over(made, range(2))._replace(present=torch.tensor([True, True, True, False])), everybody(N)
    between.privates.stand_still()
    walks = between.walks(shared, ids, Optimizer(partial(torch.optim.SGD, lr=1e30)), round, 1)
    first = next(walks)
    assert first.rows.tolist() == [0] and first.ways[0, 1].isnan().all() and first.ways[0, 3].isnan().all()
    assert first.ways[0, 0].isfinite().all() and first.ways[0, 2].isfinite().all()
    with pytest.raises(Diverged, match="client 1's model on client 1's data"):
        list(walks)


def test_few_pairs_are_held_at_once_where_models_are_large(monkeypatch):
    made = Stacked(small_problem(), seed=SEED, batch_size=SIZE)
    models = personal(made)

    def found():
        between, shared = spliced(made, models)
        return between.gradients(shared, uneven(N), over(made, range(1)), 0, made.roster.numbers)

    whole = found()
    monkeypatch.setattr("allforone.fleet.spliced.HELD_NUMBERS", 1)
    for name, tensor in found().items():
        torch.testing.assert_close(tensor, whole[name])


def test_nobody_is_asked_about_no_model():
    made = Stacked(small_problem(), seed=SEED, batch_size=SIZE)
    between, shared = spliced(made, personal(made))
    none = {name: tensor[:0] for name, tensor in shared.items()}
    found = between.gradients(none, torch.zeros(0, N, dtype=torch.float64), over(made, range(1)), 0, None)
    assert all(len(tensor) == 0 for tensor in found.values()) and made.ledger.samples.sum() == 0


def test_names_are_patterns_modules_or_the_layers_that_normalise():
    model = with_batch_norm()
    assert private_names(model, ["3.*"]) == private_names(model, ["3"]) == ("3.weight", "3.bias")
    assert private_names(model, ["*.bias"]) == ("0.bias", "1.bias", "3.bias")
    norms = ("1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked")
    assert private_names(model, ["batchnorm"]) == norms
    assert private_names(model, ["statistics"]) == norms[2:]
    assert private_names(nn.Sequential(nn.GroupNorm(1, 2), nn.LayerNorm(2)), ["batchnorm", "0"])[-1] == "1.bias"
    assert private_names(model, ["batchnorm", "0.bias"]) == ("0.bias", *norms)
    assert private_names(model, []) == ()


def test_a_pattern_that_matches_nothing_is_told_in_one_line_with_the_names_that_there_are():
    for pattern, model in (("head.*", with_batch_norm()), ("batchnorm", nn.Linear(2, 2))):
        with pytest.raises(InputError) as error:
            private_names(model, [pattern])
        said = str(error.value)
        assert f"'{pattern}'" in said and "\n" not in said
        assert all(name in said for name in model.state_dict())


def test_an_optimizer_that_groups_parameters_by_their_places_sees_all_of_them():
    def grouped(parameters):
        first, *others = parameters
        return torch.optim.Adagrad([{"params": [first], "lr": 0.5}, {"params": others, "lr": 0.1}])

    shapes = {"a": (2,), "b": (3,), "c": (1,)}
    ones = {name: torch.ones(1, *shape) for name, shape in shapes.items()}
    whole = Optimizer(grouped, shapes=shapes).start(ones, list(shapes))
    whole.apply(ones)
    for part in (["a"], ["b", "c"], ["c"]):
        some = {name: ones[name] for name in part}
        optimizer = Optimizer(OfAnyPart(grouped, shapes), shapes=shapes)
        for _ in range(2):  # made, and made again from its state
            running = optimizer.start(some, part)
            running.apply(some)
            optimizer = running.finish()[1].fresh()
            for name in part:
                assert torch.equal(running.models[name], whole.models[name])


def test_an_optimizer_of_a_part_starts_anew_on_the_whole_with_its_step_size():
    make = partial(torch.optim.SGD, lr=1.0, momentum=0.9)
    part, whole = {"a": torch.ones(2, 3)}, {"a": torch.ones(2, 3), "b": torch.ones(2, 1)}
    optimizer = Optimizer(make, partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.1))
    running = optimizer.start(part, ["a"])
    running.apply(part)
    _, later = running.finish()
    running = later.anew(whole, ["a", "b"]).start(whole, ["a", "b"])
    running.apply(whole)
    assert all(torch.allclose(tensor, torch.tensor(0.9)) for tensor in running.models.values())
    assert optimizer.anew(whole, ["a", "b"]) is optimizer
