"""A site's own policy is its own: what it refuses, what it has spent, and that no job can change either."""

import json
from functools import partial

import polars
import pytest
import torch

import allforone as afo
from allforone.errors import InputError
from allforone.fleet import Optimizer, Privacy
from allforone.machines.audit import Audit, read
from allforone.machines.checking import first_noises, variances
from allforone.machines.flare.own import POLICY, of_site, policy_of
from allforone.machines.optimizers import pack
from allforone.machines.policy import Policy
from allforone.machines.presence import Patience
from allforone.machines.site import Site
from allforone.machines.sites import Sites
from allforone.machines.transport import Direct
from allforone.machines.wire import decode, encode
from allforone.runs import Given, execute, parse, prepare
from allforone.testing import small_problem

PROBLEM = small_problem()
PRIVATE = Privacy(noise=5.0, secret="of the test")


def site(number=0, **options):
    return Site(PROBLEM.task, PROBLEM.clients[number], number, **{"seed": 3, "batch_size": 8, **options})


def models():
    return {name: tensor[None] for name, tensor in PROBLEM.initial_model(3).state_dict().items()}


QUESTIONS = {
    "gradients": {"step": 0},
    "descend": {"steps": [0, 2], "scale": 1.0, "near": None},
    "look": {"steps": [0, 2], "samples": 16, "sketch": 4, "whole": False, "told": 0},
    "walk": {"steps": [0, 2], "parts": 1},
    "losses": {"steps": [0, 2]},
    "new_losses": {"coming": [2, 4]},
    "evaluate": {},
}
SGD = pack(Optimizer(partial(torch.optim.SGD, lr=0.1)), models(), list(models()), None)


def ask(at, kind, **more):
    about = {"ask": kind, "round": 1, "owners": [0], "models": models(), "optimizer": SGD}
    return decode(at.answer(encode({**about, **QUESTIONS.get(kind, {}), **more})))


@pytest.mark.parametrize("kind", ["gradients", "descend", "walk", "losses", "describe"])
def test_a_batch_below_the_least_is_refused_with_the_remedy(kind):
    small = site(batch_size=7, policy=Policy())
    said = ask(small, kind)
    assert said["error"] == "Refused" and "8 samples or more, not of 7" in said["why"] and "--batch-size" in said["why"]
    assert "error" not in ask(site(batch_size=8, policy=Policy()), kind)
    assert "error" not in ask(site(batch_size=7), kind)  # without a policy everything is answered


def test_of_halves_each_must_have_the_least_number_of_samples():
    here = site(policy=Policy())
    assert "not of 4" in ask(here, "walk", parts=2)["why"]
    assert "not of 4: the algorithm's option samples" in ask(here, "look", samples=8)["why"]
    assert "error" not in ask(here, "look", samples=16)
    assert "error" not in ask(here, "look", samples=8, whole=True)


@pytest.mark.parametrize("kind", QUESTIONS)
def test_a_question_that_the_policy_does_not_name_is_not_answered(kind):
    others = tuple(question for question in QUESTIONS if question != kind)
    said = ask(site(policy=Policy(questions=others)), kind)
    assert said["why"] == f"its policy does not answer the question {kind}"
    assert "error" not in ask(site(policy=Policy()), kind)


def test_a_question_that_touches_too_many_samples_is_refused():
    here = site(policy=Policy(most_samples=20))
    assert "error" not in ask(here, "walk", steps=[0, 2])
    assert ask(here, "walk", steps=[0, 3])["why"].startswith("its policy lets a question touch 20 samples, not 24")


@pytest.mark.parametrize("kind", ["losses", "new_losses"])
def test_a_private_site_does_not_tell_losses_of_its_training_data(kind):
    assert "its answers are private" in ask(site(policy=Policy(privacy=PRIVATE)), kind)["why"]


def test_every_private_answer_and_its_log_tell_what_is_spent(tmp_path):
    here = site(policy=Policy(privacy=PRIVATE), audit=Audit(tmp_path / "audit.jsonl"))
    said = [ask(here, kind) for kind in ("gradients", "gradients", "walk", "evaluate")]
    told = [answer["epsilon"] for answer in said]
    assert told[0] == PRIVATE.epsilon(1) and told[1] == PRIVATE.epsilon(2) and told[2] == told[3]
    assert [entry.epsilon for entry in read(tmp_path / "audit.jsonl")] == told


def test_the_privacy_of_a_sites_policy_holds_whatever_else_it_is_given():
    assert site(policy=Policy(privacy=PRIVATE), privacy=Privacy(noise=0.0)).passes.privacy == PRIVATE
    assert site(policy=Policy(), privacy=PRIVATE).spending is None  # its owner has chosen none


def test_what_is_spent_outlives_the_process_and_other_data_do_not_inherit_it(tmp_path):
    kept = {"policy": Policy(privacy=PRIVATE), "spent": tmp_path / "spent"}
    before = ask(site(**kept), "gradients")["epsilon"]
    assert ask(site(**kept), "gradients")["epsilon"] == PRIVATE.epsilon(2) > before
    with pytest.raises(InputError, match="of other data"):
        site(1, **kept)
    (tmp_path / "spent").write_bytes(b"nothing")
    with pytest.raises(InputError, match="cannot be read"):
        site(**kept)


def test_a_private_site_refuses_a_guarded_job_by_what_a_guard_asks_and_not_as_other_data(tmp_path):
    policy, spent = Policy(privacy=PRIVATE), tmp_path / "spent"
    ask(site(policy=policy, spent=spent), "gradients", step=0)
    with pytest.raises(InputError, match="its answers are private, and a guard asks for losses"):
        site(policy=policy, spent=spent, held_out=0.2)


def federation(policies, **options):
    sites = {f"site-{k}": site(k, policy=policy, **options) for k, policy in enumerate(policies)}
    return Sites(PROBLEM.task, Direct(sites), seed=3, batch_size=8, patience=Patience(pause=0.0, wait=0.0))


def trained(fleet, rounds=6):
    config = parse({"problem": "python", "seed": 3, "rounds": rounds, "inner": 2, "batch_size": 8})
    return execute(prepare(config, Given(PROBLEM, afo.AllForOne())), fleet=fleet)


def test_a_site_whose_budget_is_spent_leaves_with_its_model_and_the_others_go_on():
    budget = Policy(privacy=PRIVATE, budget=PRIVATE.epsilon(12))
    fleet = federation([Policy(), budget, Policy(), Policy()])
    result = trained(fleet)
    there = result.metrics.filter(polars.col("round") > 0)
    left = there.filter(polars.col("client") == 1)["present"].to_list()
    assert left[0] == 1 and left[-1] == 0 and left == sorted(left, reverse=True)
    others = there.filter(polars.col("client") != 1)
    assert others["present"].min() == 1 and others["epsilon"].is_null().all()
    spent = there.filter(polars.col("client") == 1)["epsilon"].drop_nulls()
    assert 0 < spent.max() <= budget.budget
    why = {contact.site: contact.why for contact in fleet.contacts()}
    assert why["site-1"] == "its privacy budget is spent, so it leaves the run" and why["site-0"] is None
    short = trained(federation([Policy(), Policy(privacy=PRIVATE), Policy(), Policy()]), sum(left))
    assert all(torch.equal(result.stacked[name][1], short.stacked[name][1]) for name in short.stacked)


def test_the_more_noise_a_site_adds_the_less_it_is_listened_to():
    heard = []
    for loud in (0.1, 2.0):
        policies = [Policy(privacy=Privacy(noise=noise, secret="of the test")) for noise in (0.1, 0.1, loud, 0.1)]
        heard.append(trained(federation(policies), 2).weights[-1, 0, 2])  # by the one that is like it
    assert heard[1] < heard[0] / 2


def test_a_question_about_many_models_spends_as_one_and_that_of_a_walk_about_its_own_apart():
    models = {name: torch.stack([t, t + 1, t + 1]) for name, t in PROBLEM.initial_model(3).state_dict().items()}
    here = site(policy=Policy(privacy=PRIVATE))
    assert ask(here, "gradients", models=models, owners=[0, 1, 2])["epsilon"] == PRIVATE.epsilon(1)
    found = ask(site(policy=Policy(privacy=PRIVATE)), "walk", models=models, owners=[0, 1, 2], steps=[0, 1])
    assert found["epsilon"] == PRIVATE.epsilon(2)
    assert found["added"][1] == found["added"][0]  # the models of others are equal, so they are one


def test_who_calls_many_models_a_sites_own_is_answered_with_the_noise_of_many():
    models = {name: torch.stack([t, t + 1, t + 2]) for name, t in PROBLEM.initial_model(3).state_dict().items()}
    honest, sly = (
        ask(site(policy=Policy(privacy=PRIVATE)), "walk", models=models, owners=owners, steps=[0, 1])
        for owners in ([0, 1, 2], [0, 0, 0])
    )
    assert honest["added"].tolist() == [honest["added"][0], *2 * [2 * honest["added"][0]]]
    assert sly["added"].tolist() == 3 * [3 * honest["added"][0]] and sly["epsilon"] == PRIVATE.epsilon(1)


def test_models_that_are_not_the_tasks_are_not_answered_since_noise_is_drawn_by_them():
    """The same bytes under other names would have the same noise, which a difference takes off."""
    here, right = site(policy=Policy(privacy=PRIVATE)), models()
    weight, bias = list(right)[:2]
    for wrong in (
        {**right, "junk": torch.zeros(1, 3)},
        {name: tensor for name, tensor in right.items() if name != bias},
        {**right, weight: right[weight].flatten(1)},
        {**right, weight: right[weight].double()},
        {**right, bias: right[bias].repeat(2, 1)},
    ):
        assert ask(here, "gradients", models=wrong)["why"] == "what it is asked about is no model of its task"
    assert here.spending.most(0) == 0
    turned = dict(reversed(right.items()))
    found = [ask(here, "gradients", models=given)["gradients"][weight] for given in (right, turned)]
    assert torch.equal(*found)  # the order of names is no other question


def test_whether_a_sample_has_a_finite_gradient_is_not_told_by_a_private_answer():
    made = {name: torch.zeros_like(tensor) for name, tensor in models().items()}
    made["0.weight"][:, :, 0] = 1e3
    made["2.weight"][0, 0] = 3e38  # the first output overflows, up or down by the sign of a sample's first number
    assert ask(site(), "gradients", models=made)["why"].endswith("is not finite")
    here = site(policy=Policy(privacy=PRIVATE))
    for plainly in (False, True):
        here.passes.chain = None if plainly else here.passes.chain
        assert all(tensor.isfinite().all() for tensor in ask(here, "gradients", models=made)["gradients"].values())
    broken = {name: torch.full_like(tensor, torch.nan) for name, tensor in models().items()}
    assert "error" in ask(site(policy=Policy(privacy=PRIVATE)), "gradients", models=broken)  # whatever the data are


def test_what_a_site_says_of_its_noise_is_read_as_none_where_it_cannot_be():
    assert variances(torch.tensor([1.0, torch.nan, -1.0]).double(), 3).tolist() == [1.0, 0.0, 0.0]
    for said in (None, 3.0, torch.ones(2).double(), torch.ones(3)):
        assert variances(said, 3).tolist() == [0.0, 0.0, 0.0]


def test_what_a_site_says_of_its_first_update_is_read_as_unknown_where_it_cannot_be():
    inf = float("inf")
    said = torch.tensor([0.0, 2.0, inf, torch.nan, -1.0]).double()
    assert first_noises(said, 5).tolist() == [0.0, 2.0, inf, inf, inf]
    for wrong in (None, 3.0, torch.ones(2).double(), torch.ones(3)):
        assert first_noises(wrong, 3).tolist() == [inf, inf, inf]


KIT = {"least_batch": 12, "budget": {"epsilon": 2.0, "delta": 1e-6}, "privacy": {"clip": 0.5, "noise": 4.0}}


def test_a_job_cannot_raise_a_budget_or_lower_the_least_batch(tmp_path, monkeypatch):
    from allforone.machines.flare import child

    (tmp_path / "local").mkdir()
    (tmp_path / POLICY).write_text(json.dumps(KIT))
    (tmp_path / "task.py").write_text("from allforone.testing import small_problem\ntask = small_problem()\n")
    (tmp_path / "mine.py").write_text("from allforone.testing import small_problem\nc = small_problem().clients[0]\n")
    of_site(tmp_path, f"{tmp_path}/task.py:task", f"{tmp_path}/mine.py:c", None).write(tmp_path)
    monkeypatch.setattr(child.Kit, "open", lambda path, kind: type("Kit", (), {"name": "geneva"}))
    wanted = {"least_batch": 1, "budget": {"epsilon": 99}, "privacy": {"clip": 9.0, "noise": 0.0}, "policy": "none"}
    config = {"seed": 3, "batch_size": 8, **wanted}
    made = child.site_of(tmp_path, {"config": config, "sites": ["geneva"], **wanted})
    assert made.door.policy == Policy(12, privacy=Privacy(0.5, 4.0, 1e-6), budget=2.0)
    assert "12 samples or more, not of 8" in ask(made, "gradients")["why"]


def test_a_site_without_a_policy_file_has_the_default_and_the_one_given_is_before_that_of_the_kit(tmp_path):
    assert policy_of(of_site(tmp_path, "t.py:t", "c.py:c", None)) == Policy(least_batch=8)
    (tmp_path / POLICY).write_text("least_batch: 20")
    (tmp_path / "other.yaml").write_text("least_batch: 30\nquestions: [gradients, evaluate]\nmost_samples: 100")
    assert policy_of(of_site(tmp_path, "t.py:t", "c.py:c", None)).least_batch == 20
    given = policy_of(of_site(tmp_path, "t.py:t", "c.py:c", None, tmp_path / "other.yaml"))
    assert given == Policy(30, ("gradients", "evaluate"), 100)
    assert "no answer to descend, look, walk" in given.told


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"least": 3}, "unknown key 'least'"),
        ({"least_batch": 0}, "least_batch is 0"),
        ({"most_samples": "many"}, "most_samples"),
        ({"questions": ["gradient"]}, "did you mean 'gradients'"),
        ({"questions": "look"}, "must be a list"),
        ({"budget": {"epsilon": 2}}, "add privacy"),
        ({"budget": {"epsilon": 0}, "privacy": {}}, "epsilon is 0"),
        ({"budget": 3, "privacy": {}}, "budget must be"),
        ({"privacy": {"secret": 1}}, "privacy must be"),
        ({"privacy": {"clip": -1}}, "clip is -1"),
        ([], "expected keys"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused(written, said):
    with pytest.raises(InputError, match=said):
        Policy.of(written, "policy.yaml")
