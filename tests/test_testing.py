"""The checks for outsiders hold for all of ours, and find what is wrong with others."""

from dataclasses import dataclass, field
from functools import partial

import pytest
import torch

import allforone as afo
from allforone.algorithms import ALGORITHMS, Guarded, Local, State, advance
from allforone.algorithms.base import Info, identity
from allforone.errors import InputError
from allforone.fleet import Attack, Attacked, Compiled, Optimizer, Stacked
from allforone.machines.loop import Loop
from allforone.problems import hold_out
from allforone.testing import MOMENTUM, ContractOnly, check_algorithm, check_fleet, small_problem, with_batch_norm

from .rounds import play


def made(name):
    return ALGORITHMS[name](samples=6) if ("-binary" in name or "-continuous" in name) else ALGORITHMS[name]()


#: One for each kind of question that an algorithm asks. The others meet buffers, and all of them several who are absent
#: at once, in tests/algorithms/test_absence.py.
OF_EACH_KIND = ["all-for-one", "all-for-one-round", "all-for-one-binary", "apfl", "cobo", "ditto", "fedala", "ifca"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model"), [*((name, None) for name in ALGORITHMS), *((name, with_batch_norm) for name in OF_EACH_KIND)]
)
def test_every_algorithm_keeps_the_contract(name, model):
    check_algorithm(made(name), small_problem(model, clients=3))


@pytest.mark.slow
def test_a_guarded_algorithm_keeps_the_contract():
    check_algorithm(Guarded(afo.AllForOne()), hold_out(small_problem(clients=3), 0.3, 0))


@pytest.mark.slow
def test_the_stacked_fleet_answers_as_the_loop():  # that the loop does: tests/machines/test_loop.py, bit for bit
    check_fleet(Stacked)


def test_the_compiled_fleet_answers_as_the_loop_with_any_machine_code_that_gives_the_same(monkeypatch):
    made = []

    def replayed(graph, tensors):
        made.append(graph)
        return graph.forward

    monkeypatch.setattr("allforone.fleet.recorded.machine_code", replayed)  # minutes, of each shape that is asked
    check_fleet(Compiled)
    assert made


@dataclass(frozen=True)
class Asking(Local):
    """Asks everybody, there or not, by going around the contract."""

    def step(self, state, fleet, round):
        fleet.batches.of(torch.ones(len(fleet.roster)).bool(), round.steps[0])
        return super().step(state, fleet, round)


@dataclass(frozen=True)
class Counting(Local):
    """Keeps something outside its state."""

    seen: list = field(default_factory=list)

    def step(self, state, fleet, round):
        self.seen.append(round.number)
        state, info = super().step(state, fleet, round)
        return state._replace(models={name: t + len(self.seen) for name, t in state.models.items()}), info


@dataclass(frozen=True)
class InPlace(afo.Algorithm):
    """Changes the models that it was given."""

    def step(self, state, fleet, round):
        for tensor in state.models.values():
            tensor.mul_(0.9)
        return state, Info(identity(fleet))


@dataclass(frozen=True)
class Restless(Local):
    """Changes what is nobody's also when nobody is there, but the training loop puts that back."""

    def init(self, models, optimizer):
        return State(models, optimizer, common={"count": torch.zeros(())})

    def step(self, state, fleet, round):
        after, info = super().step(state, fleet, round)
        return after._replace(common={"count": state.common["count"] + 1}), info


@dataclass(frozen=True)
class Remembering(Local):
    """Remembers something of everybody that is not a row for each client."""

    value: object = 0

    def init(self, models, optimizer):
        return State(models, optimizer, {"seen": {"count": self.value}})

    def step(self, state, fleet, round):
        return super().step(state, fleet, round)[0]._replace(own=state.own), Info(identity(fleet))


class Plain(Local):
    """No dataclass of its own, but that of its parent."""


class NoDataclass(afo.Algorithm):
    def __init__(self, rate):
        self.rate = rate

    def step(self, state, fleet, round):
        return state, Info(identity(fleet))


@dataclass(frozen=True)
class Peeking(Local):
    """Moves everybody towards the mean of all models, there or not."""

    def step(self, state, fleet, round):
        after, info = super().step(state, fleet, round)
        return after._replace(models={name: t + state.models[name].mean(0) for name, t in after.models.items()}), info


@pytest.mark.parametrize("value", [0, torch.zeros(()), torch.zeros(1), [1, 2, 3, 4], None])
def test_a_memory_without_a_row_for_each_client_is_named_even_if_everybody_is_there(value):
    with pytest.raises(InputError, match=r"own\['seen'\]\['count'\].*row for each of the 4 clients.*`common`"):
        play(Loop(small_problem(), seed=3), Remembering(value), partial(torch.optim.SGD, lr=0.1), rounds=1)


def test_a_memory_that_is_no_dictionary_is_named():
    wrong = Remembering()
    fleet = Loop(small_problem(), seed=3)
    state = wrong.init(fleet.initial(), Optimizer(MOMENTUM))._replace(own=7)
    with pytest.raises(InputError, match="own is of type int"):
        advance(wrong, state, fleet, fleet.begin(1, range(1)))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (Remembering(0), r"own\['seen'\]\['count'\].*row for each"),
        (Remembering(torch.zeros(1)), r"own\['seen'\]\['count'\].*row for each"),
        (NoDataclass(0.5), "frozen dataclass"),
        (Peeking(), "the model of a client that is absent was used"),
    ],
)
def test_which_promise_of_an_algorithm_is_broken_is_said(wrong, said):
    with pytest.raises(AssertionError, match=said):
        check_algorithm(wrong)


def test_a_class_that_inherits_its_fields_keeps_the_contract():
    check_algorithm(Plain())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [(Asking(), "the contract of a fleet has no 'batches'"), (Counting(), "must be pure"), (InPlace(), "in place")],
)
def test_what_is_wrong_with_an_algorithm_is_said(wrong, said):
    with pytest.raises((AssertionError, AttributeError), match=said):
        check_algorithm(wrong)


def test_a_round_without_anybody_changes_nothing_whatever_the_algorithm_does():
    check_algorithm(Restless())


def test_a_fleet_that_answers_otherwise_is_found_out():
    class Doubling(Loop):
        def mixed(self, models, mix, round, step, owners):
            return super().mixed(models, 2 * mix, round, step, owners)

    with pytest.raises(AssertionError, match="gradients"):
        check_fleet(Doubling)


def test_a_fleet_that_guesses_owners_from_lengths_is_found_out():
    class Guessing(Loop):
        def mixed(self, models, mix, round, step, owners):
            return super().mixed(models, mix, round, step, torch.arange(len(mix)))

    with pytest.raises(AssertionError, match=r"rows owned by others|nobody's"):
        check_fleet(Guessing)


def attacked(problem, attack="zeros:1", **options):
    return Attacked(Stacked(problem, **options), Attack.parse(attack))


def test_the_attacked_fleet_uses_no_more_of_the_contract_than_others():
    fleet = ContractOnly(attacked(small_problem(), seed=0))
    assert {name: getattr(fleet, name) for name in ContractOnly.NAMES}
    with pytest.raises(AttributeError, match="has no 'liars'"):
        fleet.liars  # noqa: B018


@pytest.mark.slow
@pytest.mark.parametrize("guard", [False, True])
@pytest.mark.parametrize("name", ["all-for-one", "ditto", "ifca"])
def test_train_uses_the_contract_alone(name, guard, monkeypatch):
    from allforone.runs import run as running

    def only_the_contract(kind, *arguments, **options):
        return ContractOnly(kind(*arguments, **options))

    fleets = {key: partial(only_the_contract, kind) for key, kind in running.FLEETS.items()}
    monkeypatch.setattr(running, "FLEETS", fleets)
    subject = small_problem()
    result = afo.train(subject, algorithm=made(name), rounds=3, inner=2, participation=0.5, guard=guard)
    assert len(result.models) == len(subject.clients)
