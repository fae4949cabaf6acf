"""Sites of this process, asked by bytes, give what a loop without them gives, bit for bit."""

from functools import partial

import pytest
import torch
from torch import nn

import allforone as afo
from allforone.algorithms import ALGORITHMS, Guarded, advance
from allforone.errors import InputError
from allforone.fleet import Optimizer, in_round
from allforone.machines.loop import Loop
from allforone.problems import hold_out, synthetic
from allforone.runs import Given, execute, parse, prepare
from allforone.testing import check_fleet, small_problem, with_batch_norm

from ..fleet.pair_by_pair import PairByPair


def with_dropout():
    return nn.Sequential(nn.Linear(6, 7), nn.Dropout(0.3), nn.Tanh(), nn.Linear(7, 3))


MOMENTUM = partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=0.1)
ADAM = partial(torch.optim.Adam, lr=0.01, amsgrad=True)
SGD = partial(torch.optim.SGD, lr=0.05)


def end(fleet, algorithm, make, rounds=3, inner=2):
    """Models, judgement, ledger and weights after some rounds."""
    state, weights = algorithm.init(fleet.initial(), Optimizer(make)), []
    for number in range(rounds):
        round = fleet.begin(number + 1, range(number * inner, (number + 1) * inner))
        state, info = advance(algorithm, state, fleet, round)
        judged = fleet.evaluate(state.models, round)
        weights.append(info.weights)
    ledger = fleet.ledger
    return {
        **state.models,
        "loss": judged.loss,
        **judged.metrics,
        "samples": ledger.samples,
        "refused": ledger.refused,
        "weights": torch.stack(weights),
    }


def same(these, those):
    return these.keys() == those.keys() and all(
        torch.equal(t.nan_to_num(), those[n].nan_to_num()) for n, t in these.items()
    )


SETTINGS = {
    "normalised by batches, momentum": (with_batch_norm, MOMENTUM),
    "dropout, Adam": (with_dropout, ADAM),
    "plain, SGD": (None, SGD),
}


#: One for each kind of question; in the first setting, in which buffers are sent along, every algorithm is tried.
OF_EACH_KIND = ["all-for-one", "all-for-one-round", "all-for-one-binary", "apfl", "cobo", "ditto", "fedala", "ifca"]
PAIRS = [
    (setting, name)
    for setting, (model, _) in SETTINGS.items()
    for name in (ALGORITHMS if model is with_batch_norm else OF_EACH_KIND)
    if not name.endswith("published")
]


@pytest.mark.parametrize(("setting", "name"), PAIRS)
def test_every_algorithm_comes_out_the_same_bit_for_bit(setting, name):
    model, make = SETTINGS[setting]
    algorithm, share = ALGORITHMS[name](), 1.0 if setting == "plain, SGD" else 0.6
    options = {"seed": 3, "batch_size": 5, "participation": share}
    problem = small_problem(model)
    found, expected = (end(kind(problem, **options), algorithm, make) for kind in (Loop, PairByPair))
    assert same(found, expected)


@pytest.mark.parametrize("name", ["all-for-one", "ditto", "local"])
def test_so_does_a_guarded_run_on_finite_data_and_on_streams(name):
    for problem in (hold_out(small_problem(with_batch_norm), 0.2, 3), synthetic(dimension=4, clients=4)):
        algorithm = Guarded(ALGORITHMS[name]())
        found, expected = (end(kind(problem, seed=3), algorithm, MOMENTUM) for kind in (Loop, PairByPair))
        assert same(found, expected)


def test_the_contract_is_kept_bit_for_bit():
    check_fleet(PairByPair, exact=True)


class Clipping(torch.optim.SGD):
    """Code that no site has."""

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad.clamp_(-0.1, 0.1)
        return super().step(closure)


@pytest.mark.parametrize("name", ["local", "all-for-one-round"])
def test_an_optimizer_of_the_users_own_trains_sites_of_this_process_too(name):
    make = partial(Clipping, lr=0.05)
    fleets = (kind(small_problem(), seed=3) for kind in (Loop, PairByPair))
    found, expected = (end(fleet, ALGORITHMS[name](), make) for fleet in fleets)
    assert same(found, expected)


def test_rows_that_listen_only_to_themselves_take_one_question_a_round():
    fleet, asked = Loop(small_problem(), seed=3), []
    ask = fleet.transport.ask
    fleet.transport.ask = lambda questions, deadline: asked.append(list(questions)) or ask(questions, deadline)
    for algorithm in (afo.Local(), afo.Ditto(), afo.FedAvg(proximal=0.1), afo.FedAMP(), afo.CFL()):
        asked.clear()
        state = algorithm.init(fleet.initial(), Optimizer(ADAM))
        in_round(fleet, 1, range(5), partial(advance, algorithm, state, fleet))
        trips = 2 if isinstance(algorithm, afo.Ditto) else 1  # the personal models, and those of the common one
        assert asked == [["0", "1", "2", "3"]] * trips


def test_a_sketch_is_sent_in_the_place_of_mean_gradients_and_only_between_machines():
    problem = small_problem(lambda: nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 3)))

    def trained(**more):
        config = parse({"problem": "python", "rounds": 2, "fleet": "loop", **more})
        return execute(prepare(config, Given(problem, afo.AllForOne())))

    whole, told = (trained(**more).history.sites["received"].sum() for more in ({}, {"sketch": 64}))
    assert told < whole
    with pytest.raises(InputError, match="sketch is for clients on machines; those of fleet stacked"):
        trained(sketch=64, fleet="stacked")
