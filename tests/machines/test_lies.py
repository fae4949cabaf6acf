"""Whatever a site sends: what is no answer is refused, counted and named, and the others' run goes on."""

import pytest
import torch

from allforone.algorithms import ALGORITHMS
from allforone.errors import Gone, InputError, Notice
from allforone.machines.wire import encode

from .test_absences import trained
from .wires import changed, fleet_with

LIES = {
    "not finite": lambda m: m["gradients"].update({"0.weight": m["gradients"]["0.weight"] * torch.nan}),
    "infinite": lambda m: m["gradients"]["0.bias"].fill_(torch.inf),
    "another shape": lambda m: m["gradients"].update({"0.weight": m["gradients"]["0.weight"][:, 1:]}),
    "another kind": lambda m: m["gradients"].update({"0.weight": m["gradients"]["0.weight"].double()}),
    "too few": lambda m: m["gradients"].pop("0.weight"),
    "no tensors": lambda m: m.update(gradients=[1, 2, 3]),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_is_no_gradient_is_refused_counted_and_named_and_the_others_take_its_weight(lie):
    def fault(site, asked, question):
        return changed(LIES[lie]) if site == "site-2" and asked["ask"] == "gradients" else None

    fleet, plain = fleet_with(fault), fleet_with(lambda *_: None)
    models, mix = plain.initial(), torch.full((4, 4), 0.25).double()
    without = torch.where(torch.arange(4) == 2, 0, mix) * 4 / 3
    owners, round = fleet.roster.numbers, plain.begin(1, range(2))
    with pytest.warns(Notice, match="site-2 sent what is no gradient"):
        found = fleet.gradients(models, mix, fleet.begin(1, range(2)), 0, owners)
    expected = plain.gradients(models, without, round, 0, owners)
    for name in fleet.trained:
        torch.testing.assert_close(found[name], expected[name])
    assert fleet.ledger.refused.tolist() == [0, 0, 4, 0]


#: What is beside an answer, and no gradient.
ODD = {
    "a gradient among the buffers": lambda m: m["buffers"].update({"0.weight": torch.full((1, 8, 6), 1e9)}),
    "a buffer that nobody knows": lambda m: m["buffers"].update(other=torch.ones(1)),
    "samples beyond counting": lambda m: m.update(drawn=[["update", 0, 2**39, 2**39]]),
    "steps beyond counting": lambda m: m.update(drawn=[["update", 0, 10**30, 1]]),
    "samples that are no list": lambda m: m.update(drawn={"update": 1}),
}


@pytest.mark.parametrize("odd", ODD)
def test_what_a_site_sends_beside_its_gradients_changes_nothing(odd):
    def fault(site, asked, question):
        return changed(ODD[odd]) if site == "site-2" and asked["ask"] == "gradients" else None

    fleet, plain = fleet_with(fault), fleet_with(lambda *_: None)
    models, mix, owners = plain.initial(), torch.full((4, 4), 0.25).double(), plain.roster.numbers
    found, expected = (f.gradients(models, mix, f.begin(1, range(2)), 0, owners) for f in (fleet, plain))
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert 0 <= fleet.ledger.samples[2] <= plain.ledger.samples[2]


LOOKS = {
    "more samples than a number holds": (lambda m: m.update(read=10**400), [0, 0, 0, 0]),
    "numbers that torch only stores": (lambda m: m.update(means=m["means"].to(torch.float8_e5m2)), [0, 0, 4, 0]),
}


@pytest.mark.filterwarnings("ignore::allforone.errors.Notice")
@pytest.mark.parametrize("lie", LOOKS)
def test_a_look_that_cannot_be_used_stops_nobody(lie):
    change, refused = LOOKS[lie]
    fleet = fleet_with(lambda site, asked, _: changed(change) if (site, asked["ask"]) == ("site-2", "look") else None)
    look = fleet.look(fleet.initial(), fleet.begin(1, range(2)), torch.arange(4).expand(4, -1), 8, 4)
    others = torch.tensor([0, 1, 3])
    assert look.distance[others][:, others].isfinite().all() and look.read.isfinite().all()
    assert fleet.ledger.refused.tolist() == refused


#: What a site may say of itself that is none of what is read.
SELVES = {
    "no member": lambda m: m.pop("member"),
    "a member of other fields": lambda m: m.update(member={"age": 3}),
    "a size that is none": lambda m: m["member"].update(size="many"),
    "a size beyond counting": lambda m: m["member"].update(size=10**30),
    "a name that is none": lambda m: m["member"].update(name=[1]),
    "nothing about what it holds out": lambda m: m.pop("held"),
    "a tensor for its number": lambda m: m.update(number=torch.zeros(2)),
}


@pytest.mark.parametrize("lie", SELVES)
def test_a_site_that_does_not_say_who_it_is_is_named_and_nothing_begins(lie):
    def fault(site, asked, question):
        return changed(SELVES[lie]) if (site, asked["ask"]) == ("site-1", "describe") else None

    with pytest.raises(InputError, match="what site-1 says of itself cannot be read"):
        fleet_with(fault)


def test_a_site_that_comes_back_with_nonsense_stays_away_and_the_others_go_on():
    fleet = fleet_with(lambda *_: None)
    lie = changed(SELVES["a tensor for its number"])
    fleet.transport.fault = lambda site, asked, _: lie if asked["ask"] == "describe" else None
    fleet.asking.lose(1, "cut off")
    fleet.asking.presence.now = lambda: 1e12
    assert fleet.begin(1, range(2)).present.tolist() == [True, False, True, True]
    assert "it is back with other data" in fleet.asking.presence.said()


def test_what_a_site_says_of_its_failure_cannot_move_the_cursor_of_a_terminal():
    told = encode({"error": "E", "why": "fine\x1b[2J\r\n" + 500 * "x"})
    fleet = fleet_with(lambda *_: None)
    fleet.transport.fault = lambda site, asked, _: told if site == "site-1" else None
    with pytest.raises(Gone) as raised:
        fleet.losses(fleet.initial(), fleet.begin(1, range(2)))
    assert "fine?[2J??" in str(raised.value) and len(str(raised.value)) < 300


@pytest.mark.filterwarnings("ignore::allforone.errors.Notice")
@pytest.mark.parametrize("name", ["all-for-one", "all-for-one-round", "local", "ifca", "fedavg"])
def test_a_site_that_lies_in_every_answer_stops_nobody_and_spoils_no_model(name):
    def nonsense(message):
        for key, value in message.items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                message[key] = value * torch.nan
            elif isinstance(value, dict) and key in ("gradients", "models"):
                message[key] = {n: t * torch.nan if t.is_floating_point() else t for n, t in value.items()}

    def fault(site, asked, question):
        return changed(nonsense) if site == "site-1" and asked["ask"] not in ("describe", "ping") else None

    result = trained(fleet_with(fault), ALGORITHMS[name]())
    assert all(t.isfinite().all() for t in result.stacked.values() if t.is_floating_point())
    assert result.metrics["present"].to_list()[4] == 1  # of site-0, in the first round
