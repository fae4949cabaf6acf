"""What leaves a client is private: clipped sample by sample, with noise that nobody else can draw, and counted."""

import math
import sys
from dataclasses import asdict
from functools import partial

import polars
import pytest
import torch
import torch.nn.functional as F
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from torch import nn

import allforone as afo
from allforone.collaboration import decision
from allforone.describe import described
from allforone.errors import InputError, Notice
from allforone.fleet import Optimizer, Privacy, Stacked, everybody
from allforone.fleet import private_passes as passes_module
from allforone.fleet.privacy import Question, different
from allforone.fleet.private_passes import PrivatePasses
from allforone.fleet.spending import Spending
from allforone.machines.loop import Loop
from allforone.problems.data import draw, places
from allforone.runs import Given, parse, prepare
from allforone.testing import small_problem, with_batch_norm

SECRET = "of the test"
PLAIN_SGD = partial(torch.optim.SGD, lr=1.0)
PLAIN = {"rounds": 2, "inner": 2, "progress": False}


def passes(privacy, model=None, loss=F.cross_entropy):
    problem = small_problem(model)
    first = draw(problem.clients[0].train, 4, seed=0, client=0, step=0, purpose="try")
    module = problem.initial_model(3)
    return PrivatePasses(module, loss, 3, first, "float32", privacy), first, dict(module.state_dict())


def by_hand(module, state, batch, clip):
    """One sample after the other, with autograd alone."""
    total = None
    for i in range(len(batch[1])):
        loss = F.cross_entropy(torch.func.functional_call(module, state, (batch[0][i : i + 1],)), batch[1][i : i + 1])
        found = torch.autograd.grad(loss, list(module.parameters()))
        length = torch.cat([part.flatten() for part in found]).norm()
        clipped = [part * min(1.0, clip / float(length)) for part in found]
        total = clipped if total is None else [a + b for a, b in zip(total, clipped, strict=True)]
    return [part / len(batch[1]) for part in total]


def same(a, b):
    return all(torch.equal(a.stacked[name], b.stacked[name]) for name in a.stacked)


@pytest.mark.parametrize("by_layer", [True, False])
@pytest.mark.parametrize("clip", [0.1, 0.8, 100.0])
def test_the_gradient_is_the_mean_of_clipped_ones_of_single_samples(clip, by_layer, monkeypatch):
    monkeypatch.setattr(passes_module, "PASSED_SAMPLES", 3)  # and does not depend on how many pass at once
    made, batch, state = passes(Privacy(clip=clip, noise=0.0))
    assert made.chain and made.per_sample == made._at_once
    made.chain = made.chain if by_layer else None
    found, _ = made.gradient(state, 0, 0, batch, 0)
    for part, expected in zip(found.values(), by_hand(made.module, {}, batch, clip), strict=True):
        torch.testing.assert_close(part, expected)


class Branches(nn.Linear):
    """Python looks at a number, which vmap cannot."""

    def forward(self, x):
        return super().forward(x) if float(x.sum()) < 1e9 else x


def test_a_model_that_cannot_be_vectorised_passes_one_sample_after_the_other():
    made, batch, state = passes(Privacy(clip=0.3, noise=0.0), lambda: Branches(6, 3))
    assert made.per_sample == made._one_by_one
    found, _ = made.gradient(state, 0, 0, batch, 0)
    for part, expected in zip(found.values(), by_hand(made.module, {}, batch, 0.3), strict=True):
        torch.testing.assert_close(part, expected)


def test_the_noise_has_the_standard_deviation_noise_times_clip_over_batch():
    made, batch, state = passes(Privacy(clip=0.5, noise=3.0), lambda: nn.Linear(6, 3))
    quiet, _, _ = passes(Privacy(clip=0.5, noise=0.0), lambda: nn.Linear(6, 3))
    expected = quiet.gradient(state, 0, 0, batch, 0)[0]
    drawn = [made.gradient(state, 0, 0, batch, step)[0]["weight"] - expected["weight"] for step in range(300)]
    found = torch.stack(drawn)
    assert float(found.std()) == pytest.approx(3.0 * 0.5 / 4, rel=0.05)
    assert abs(float(found.mean())) < 4 * float(found.std()) / math.sqrt(found.numel())


def test_the_same_question_has_the_same_noise_and_any_other_model_batch_or_purpose_another():
    made, batch, state = passes(Privacy(noise=1.0, secret=SECRET))
    other = {name: tensor + 1e-7 for name, tensor in state.items()}
    shown = (batch[0] + 1e-7, batch[1])
    first = made.gradient(state, 0, 0, batch, 0)[0]
    name = next(iter(first))
    assert torch.equal(first[name], made.gradient(state, 0, 0, batch, 0)[0][name])
    for question in ((other, 0, 0, batch, 0), (state, 0, 0, shown, 0), (state, 0, 0, batch, 0, "look 1")):
        assert (made.gradient(*question)[0][name] - first[name]).abs().max() > 1e-3


def test_two_runs_of_one_seed_differ_in_noise_and_those_of_one_secret_in_nothing():
    runs = [afo.train(small_problem(), privacy=Privacy(noise=2.0), **PLAIN) for _ in range(2)]
    assert not same(*runs)
    assert runs[0].metrics["samples"].equals(runs[1].metrics["samples"])
    known = [afo.train(small_problem(), privacy=Privacy(noise=2.0, secret=SECRET), **PLAIN) for _ in range(2)]
    assert same(*known)


@pytest.mark.parametrize(
    "algorithm", [afo.AllForOne(), afo.AllForOne(exchange="round"), afo.FedAvg(), afo.BySimilarity(afo.binary(0.1))]
)
def test_loop_and_stacked_fleet_agree_in_noise_and_in_what_is_spent(algorithm):
    privacy = Privacy(noise=2.0, secret=SECRET)
    a, b = (
        afo.train(small_problem(), algorithm=algorithm, privacy=privacy, fleet=fleet, **PLAIN)
        for fleet in ("stacked", "loop")
    )
    assert same(a, b)
    assert a.metrics["epsilon"].equals(b.metrics["epsilon"])
    assert a.metrics.filter(polars.col("round") == 2)["epsilon"].min() > 0


def test_the_compiled_fleet_is_private_as_the_stacked_one_is():
    told = {"privacy": Privacy(noise=2.0, secret=SECRET), **PLAIN}
    a, b = (afo.train(small_problem(), fleet=fleet, **told) for fleet in ("stacked", "compiled"))
    assert same(a, b) and a.metrics["epsilon"].equals(b.metrics["epsilon"])


@pytest.mark.parametrize("algorithm", [afo.AllForOne(), afo.AllForOne(exchange="round"), afo.FedAvg()])
def test_without_noise_and_with_a_clip_that_nothing_reaches_it_is_the_run_without_privacy(algorithm):
    plain = afo.train(small_problem(), algorithm=algorithm, **PLAIN)
    private = afo.train(small_problem(), algorithm=algorithm, privacy=Privacy(clip=1e6, noise=0.0), **PLAIN)
    for name, tensor in plain.stacked.items():
        torch.testing.assert_close(private.stacked[name], tensor, rtol=1e-4, atol=1e-5)
    assert plain.metrics["epsilon"].is_null().all() and private.metrics["epsilon"][-1] is None


def test_one_gaussian_answer_costs_what_its_closed_form_says():
    """δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) with μ = √answers/noise."""
    for noise, answers in ((1.0, 1), (2.0, 1), (4.0, 9), (10.0, 300)):
        epsilon, mu = Privacy(noise=noise).epsilon(answers), math.sqrt(answers) / noise

        def below(x):
            return math.erfc(-x / math.sqrt(2)) / 2

        delta = below(mu / 2 - epsilon / mu) - math.exp(epsilon) * below(-mu / 2 - epsilon / mu)
        assert delta == pytest.approx(1e-5, rel=1e-3)
    assert Privacy().epsilon(0) == 0 and Privacy(noise=0.0).epsilon(1) == math.inf


def test_several_questions_cost_what_the_accountant_composes():
    composed = PLDAccountant().compose(SelfComposedDpEvent(GaussianDpEvent(5.0), 12)).get_epsilon(1e-5)
    assert Privacy(noise=5.0).epsilon(12) == pytest.approx(composed, rel=1e-2)


def test_every_sample_spends_once_an_epoch_for_every_question():
    clients = small_problem().clients
    spending = Spending(clients, 3, 4, Privacy())
    answers = torch.tensor([3, 0, 1, 2])
    size = clients[0].size
    for step in range(size // 4):  # one epoch of the first
        spending.update(answers, step)
    assert spending.counts[0].sum() == 3 * 4 * (size // 4) and spending.most(0) == 3
    assert spending.most(1) == 0 and spending.epsilon(1) == 0
    for step in range(size // 4, 10 * size // 4):
        spending.update(answers, step)
    assert 30 <= spending.most(0) <= 33


def test_a_sample_that_is_twice_in_a_batch_moves_it_twice_as_far_and_spends_four_times():
    client = afo.Client((torch.zeros(5, 6), torch.zeros(5, dtype=torch.long)), None)
    spending = Spending([client], 3, 4, Privacy())
    found = next(s for s in range(99) if len(places(5, 4, range(s, s + 1), 3, 0, "update").unique()) < 4)
    spending.update(torch.tensor([1]), found)
    assert spending.most(0) == 4


def asked(made, state, count, batch, owner=1):
    """Answers at one of so many models that are asked about at once, in some updates."""
    made.question = Question(torch.tensor([count, count]), torch.tensor([True, False]))
    found = [made.gradient(state, owner, 0, batch, step)[0].values() for step in range(30)]
    return torch.cat([part.flatten() for parts in found for part in parts])


def test_answers_at_m_different_models_have_the_noise_of_one_times_the_root_of_m_and_are_no_function_of_each_other():
    made, batch, state = passes(Privacy(noise=4.0, secret=SECRET))
    quiet, _, _ = passes(Privacy(noise=0.0))
    exact = asked(quiet, state, 1, batch)
    one, many = (asked(made, state, count, batch) - exact for count in (1, 9))
    assert float(many.norm() / one.norm()) == pytest.approx(3.0, rel=0.1)
    assert abs(float(many @ one / many.norm() / one.norm())) < 0.15  # who knew the ratio could take the noise off
    assert torch.equal(asked(made, state, 9, batch, owner=0), asked(made, state, 1, batch, owner=0))  # its own is apart


def test_equal_models_are_one_question_so_the_oracle_spends_what_training_alone_does():
    models = {"a": torch.tensor([[1.0, 0.0], [1.0, -0.0], [1.0, 0.0]])}
    assert different(models).tolist() == [0, 1, 0]
    told = {"privacy": Privacy(noise=2.0), **PLAIN}
    oracle, local = (afo.train(small_problem(), algorithm=who, **told) for who in (afo.Oracle(), afo.Local()))
    assert oracle.metrics["epsilon"].equals(local.metrics["epsilon"])
    fleet = Stacked(small_problem(), seed=3, privacy=Privacy())
    fleet.gradients(fleet.initial(), torch.full((4, 4), 0.25), fleet.begin(1, range(1)), 0, torch.arange(4))
    assert fleet.private.question.models.tolist() == [1, 1, 1, 1]  # so the noise is that of one model


@pytest.mark.parametrize("batch", [1, 3, 8])
@pytest.mark.parametrize("make", [PLAIN_SGD, partial(torch.optim.SGD, lr=1.0, momentum=0.9), torch.optim.Adam])
def test_a_walk_is_not_said_to_have_more_noise_for_privacy_than_it_has(batch, make):
    fleet = Stacked(small_problem(), seed=3, batch_size=batch, privacy=Privacy(noise=40.0, secret=SECRET))
    algorithm = afo.AllForOne(exchange="round", sketch=64)
    seen = []

    def decide(memory, look, *rest, **more):
        seen.append(look)
        return decision.decide(memory, look, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("allforone.algorithms.walking.decide", decide)
        state = algorithm.init(fleet.initial(), Optimizer(make))
        algorithm.step(state, fleet, fleet.begin(1, range(4)))
    look = seen[0]
    assert (look.added > 0).all() and (look.added <= look.noise).all()
    if make == PLAIN_SGD:  # of others no more is said than that
        assert float((look.added / look.noise).mean()) > 0.7


@pytest.mark.parametrize("exchange", ["update", "round"])
def test_what_the_look_says_of_the_noise_for_privacy_is_what_was_added(exchange):
    problem, size = small_problem(), sum(p.numel() for p in small_problem().initial_model(3).parameters())
    found = {}
    for noise in (0.0, 40.0):
        fleet = Stacked(problem, seed=3, batch_size=8, privacy=Privacy(noise=noise, secret=SECRET))
        models = {name: t + torch.arange(4.0).view(4, *[1] * (t.dim() - 1)) for name, t in fleet.initial().items()}
        round = fleet.begin(1, range(1))
        if exchange == "update":
            look = fleet.look(models, round, everybody(4), 8, size)
            found[noise] = look.halves.mean(2), look.added
        else:
            plain = Optimizer(lambda parameters: torch.optim.SGD(parameters, lr=1.0))
            walks = next(iter(fleet.walks(models, everybody(4), plain, round, 2)))
            found[noise] = walks.ways.mean(2), walks.added
    seen = (found[40.0][0] - found[0.0][0]).square().sum(2)
    own = torch.eye(4, dtype=torch.bool)
    torch.testing.assert_close(seen[own].mean(), found[40.0][1][own].mean(), rtol=0.4, atol=0.0, check_dtype=False)
    torch.testing.assert_close(seen[~own].mean(), found[40.0][1][~own].mean(), rtol=0.3, atol=0.0, check_dtype=False)
    assert torch.equal(found[40.0][1][~own], 3 * found[40.0][1][own].repeat_interleave(3))
    assert not found[0.0][1].any()


@pytest.mark.parametrize(("exchange", "least"), [("update", 0.99), ("round", 0.5)])  # walks of others are there already
def test_where_noise_hides_who_is_alike_all_for_one_listens_to_itself(exchange, least):
    told = {"rounds": 2, "inner": 2, "batch_size": 16, "progress": False}
    weights = [
        afo.train(small_problem(), algorithm=afo.AllForOne(exchange=exchange), privacy=privacy, **told).weights[-1]
        for privacy in (Privacy(noise=50.0, secret=SECRET), Privacy(noise=1e-4, secret=SECRET))
    ]
    assert weights[0].diagonal().min() > least and weights[1].diagonal().mean() < 0.9


def test_halves_of_looks_and_walks_spend_each_sample_of_them_once():
    clients = small_problem().clients
    spending = Spending(clients, 3, 4, Privacy())
    spending.look(torch.tensor([2, 0, 0, 0]), range(2), 8)
    assert spending.counts[0].sum() == 2 * 8 and spending.most(0) == 2
    spending.walk(torch.tensor([0, 1, 0, 0]), range(3), 2)
    assert spending.counts[1].sum() == 3 * 4 and spending.most(1) == 1


def test_all_for_one_sees_the_noise_of_privacy_as_noise():
    problem = small_problem()
    seen = []
    for noise in (0.0, 4.0):
        fleet = Stacked(problem, seed=3, privacy=Privacy(clip=1.0, noise=noise, secret=SECRET))
        look = fleet.look(fleet.initial(), fleet.begin(1, range(2)), everybody(4), 16, 8)
        seen.append(look.noise)
    size = sum(p.numel() for p in problem.initial_model(3).parameters())
    expected = (4.0 / 8) ** 2 * size / 2  # of the mean of two halves of eight, each with noise of its own
    assert float((seen[1] - seen[0]).mean()) == pytest.approx(expected, rel=0.3)


def test_the_secret_is_in_no_description_config_or_folder(tmp_path):
    privacy = Privacy(noise=2.0, secret="never-to-be-seen")
    assert "never" not in repr(privacy) and "never" not in str(asdict(privacy)) + str(described(privacy))
    afo.train(small_problem(), privacy=privacy, out=tmp_path / "run", **PLAIN)
    written = [path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert written and not any(b"never-to-be-seen" in content for content in written)


def test_a_private_run_goes_on_with_its_secret_bit_for_bit_and_without_it_says_so(tmp_path):
    problem, privacy, fresh = small_problem(), Privacy(noise=2.0, secret=SECRET), Privacy(noise=2.0)
    whole = afo.train(problem, privacy=privacy, rounds=3, progress=False)
    for place in ("known", "lost"):
        afo.train(problem, privacy=privacy, rounds=1, progress=False, out=tmp_path / place)
    more = {"rounds": 3, "progress": False, "resume": True}
    known = afo.train(problem, privacy=privacy, out=tmp_path / "known", **more)
    with pytest.warns(Notice, match="the secret of the noise is not known any more"):
        lost = afo.train(problem, privacy=fresh, out=tmp_path / "lost", **more)
    assert same(known, whole) and not same(lost, whole)
    spent = [run.metrics["epsilon"].to_list() for run in (whole, known, lost)]
    assert spent[0] == spent[1]
    n = len(problem.clients)
    assert spent[2][: 2 * n] == spent[0][: 2 * n]  # rounds 0 and 1
    assert all(later >= before for later, before in zip(spent[2][-n:], spent[0][n : 2 * n], strict=True))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"clip": 1.0}, "leave clip out"),
        ({"guard": True}, "would leave it as they are"),
        ({"attack": "flip:1"}, "leave attack out"),
        ({"fleet": "flare"}, "policy of each"),
    ],
)
def test_what_privacy_cannot_go_with_is_refused_before_the_run(given, said):
    config = parse({"problem": "python", "privacy": {"noise": 1.0}, **given})
    with pytest.raises(InputError, match=said):
        prepare(config, Given(small_problem(), afo.Local()))


def test_what_cannot_be_private_is_refused_with_what_to_do():
    with pytest.raises(InputError, match="GroupNorm"):
        Stacked(small_problem(with_batch_norm), seed=3, privacy=Privacy())
    with pytest.raises(InputError, match="give finite data"):
        Loop(afo.synthetic(clients=2, clusters=1), seed=3, privacy=Privacy())
    for judging in (afo.Ifca(), afo.FedFomo(), afo.FedFomo(held=True)):
        with pytest.raises(InputError, match="would leave it as they are"):
            afo.train(small_problem(), algorithm=judging, privacy=Privacy(), **PLAIN)
    for wrong in ({"clip": 0}, {"noise": -1}, {"delta": 1.0}, {"clip": math.nan}, {"noise": True}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            Privacy(**wrong)
    with pytest.raises(InputError, match="no secret"):
        parse({"problem": "digits", "privacy": {"secret": 3}})
    with pytest.raises(InputError, match=r"give afo\.Privacy"):
        afo.train(small_problem(), privacy={"noise": 1.0})


def test_without_the_accountant_it_says_which_extra_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(InputError, match=r"allforone\[privacy\]"):
        passes(Privacy())
