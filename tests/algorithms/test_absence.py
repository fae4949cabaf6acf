"""Who is absent in a round is not asked in it, and keeps all that it has; whatever the algorithm."""

from functools import partial

import pytest
import torch

import allforone as afo
from allforone.algorithms import ALGORITHMS, Apfl, CoBo, FedAvg, Guarded, Ifca, State, WgaBc, advance
from allforone.algorithms.cobo import agreement_half_way
from allforone.fleet import Optimizer, Round, Stacked, where_rows
from allforone.machines.loop import Loop
from allforone.problems import hold_out
from allforone.testing import MOMENTUM, small_problem, with_batch_norm

INNER = 4
ALL = [*ALGORITHMS, "guarded"]
#: Who is there: one alone, all but one, nobody, half of them with who had been absent before.
TABLE = [
    [False, False, True, False],
    [True, True, True, False],
    [False, False, False, False],
    [False, True, False, True],
]


def made(name):
    if name == "guarded":
        return Guarded(afo.AllForOne())
    return ALGORITHMS[name](samples=6) if ("-binary" in name or "-continuous" in name) else ALGORITHMS[name]()


def rows(value, name=""):
    """Everything in a state that has a row for each client, by its place."""
    if isinstance(value, torch.Tensor):
        return {name: value.nan_to_num()} if value.dim() else {}
    if isinstance(value, Optimizer):
        return rows((value.state or {}).get("optimizer", {}).get("state", {}), name)
    return {place: t for key, item in value.items() for place, t in rows(item, f"{name}/{key}").items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_who_is_absent_keeps_its_model_and_state_and_draws_nothing(name):
    subject = hold_out(small_problem(with_batch_norm), 0.2, 0)
    fleet, algorithm = Stacked(subject, seed=3), made(name)
    state = algorithm.init(fleet.initial(), Optimizer(MOMENTUM))
    for number, present in enumerate(TABLE):
        drawn = fleet.ledger.samples
        round = begun(present, range(INNER * number, INNER * (number + 1)), number + 1)
        after, info = advance(algorithm, state, fleet, round)
        away = ~torch.tensor(present)
        assert fleet.ledger.samples[away].equal(drawn[away])
        assert (fleet.ledger.samples[~away] > drawn[~away]).all()
        before = rows({"models": state.models, "optimizer": state.optimizer, "own": state.own})
        for place, tensor in rows({"models": after.models, "optimizer": after.optimizer, "own": after.own}).items():
            if place in before or place.startswith("/optimizer"):  # where there was no momentum yet, it is 0
                assert tensor[away].equal(before.get(place, torch.zeros_like(tensor))[away]), place
            else:
                assert number == 0, place  # what is remembered is there after the first round
        assert all(tensor.isfinite().all() for tensor in after.models.values())
        assert (info.weights[away] == 0).all() and (info.weights[:, away] == 0).all()
        if not any(present):
            assert all(t.equal(rows(state.common)[place]) for place, t in rows(after.common).items())
        state = after


def spoiled(value, away):
    """Models or memory in which the rows of who is away are no numbers."""
    if isinstance(value, dict):
        return {key: spoiled(item, away) for key, item in value.items()}
    if isinstance(value, Optimizer) or not value.is_floating_point():
        return value
    return where_rows(away, torch.full_like(value, torch.nan), value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)  # `check_algorithm` does it with other numbers, and without buffers
def test_nobody_hears_of_the_model_and_memory_of_who_is_absent(name):
    fleet, algorithm = Loop(hold_out(small_problem(with_batch_norm), 0.2, 0), seed=3), made(name)
    state = algorithm.init(fleet.initial(), Optimizer(MOMENTUM))
    for number in range(2):
        state, _ = advance(algorithm, state, fleet, begun([True] * 4, range(2 * number, 2 * number + 2), number + 1))
    for there in ([True, False, True, True], [False, False, True, False]):
        round, here = begun(there, range(4, 6), 3), torch.tensor(there)
        after, info = advance(algorithm, state, fleet, round)
        other = state._replace(models=spoiled(state.models, ~here), own=spoiled(dict(state.own), ~here))
        spoiled_after, spoiled_info = advance(algorithm, other, fleet, round)
        found, expected = (
            rows({"models": s.models, "optimizer": s.optimizer, "own": s.own}) for s in (spoiled_after, after)
        )
        assert all(found[place][here].equal(t[here]) for place, t in expected.items())
        found, expected = rows(spoiled_after.common), rows(after.common)
        assert all(found[place].equal(t) for place, t in expected.items())
        assert spoiled_info.weights.equal(info.weights)


def test_a_weight_is_that_of_who_was_there_whatever_the_algorithm_says():
    class Boasting(afo.Local):
        def step(self, state, fleet, round):
            after, info = super().step(state, fleet, round)
            return after, info._replace(weights=torch.ones(4, 4, dtype=torch.float64))

    fleet = Stacked(small_problem(), seed=3)
    state = Boasting().init(fleet.initial(), Optimizer(MOMENTUM))
    _, info = advance(Boasting(), state, fleet, begun([True, False, True, True]))
    assert info.weights[1].sum() == 0 and info.weights[:, 1].sum() == 0 and info.weights.sum() == 9


def test_the_common_model_of_apfl_as_published_is_the_mean_of_those_present():
    fleet, algorithm = Stacked(small_problem(), seed=3), ALGORITHMS["apfl-as-published"]()
    sizes = algorithm.averaging(fleet, begun([True, False, True, True]))
    torch.testing.assert_close(sizes, torch.tensor([1, 0, 1, 1], dtype=torch.float64) / 3)
    everyone = algorithm.averaging(fleet, begun([True] * 4))
    assert everyone.equal(torch.full((4,), 1 / 4, dtype=torch.float64))


@pytest.mark.parametrize("name", ["wga-bc", "wga-bc-as-published"])
def test_who_is_alone_in_a_round_of_wga_bc_trains_alone_and_keeps_its_correction(name):
    fleet, algorithm = Stacked(small_problem(), seed=3), made(name)
    state = algorithm.init(fleet.initial(), Optimizer(MOMENTUM))
    state, _ = advance(algorithm, state, fleet, begun([True] * 4))
    only = begun([False, True, False, False], range(4, 8), 2)
    after, info = advance(algorithm, state, fleet, only)
    local, _ = advance(afo.Local(), State(state.models, state.optimizer), fleet, only)
    for name in fleet.trained:
        torch.testing.assert_close(after.models[name], local.models[name])
        assert after.own["correction"][name].equal(state.own["correction"][name])
    assert info.weights[1].tolist() == [0, 1, 0, 0]


def begun(present, steps=range(4), number=1):
    return Round(number, steps, torch.tensor(present))


@pytest.mark.parametrize("fleet", [Stacked, Loop])
def test_three_pairs_are_not_three_clients(fleet):
    made = fleet(small_problem(clients=3), seed=3)
    whole, part = (
        agreement_half_way(made, made.initial(), begun(present)) for present in ([True] * 3, [True, False, True])
    )
    assert whole[0, 2] != 0 and part[0, 2] == whole[0, 2] and part[2, 0] == whole[2, 0]
    assert (part[1] == 0).all() and (part[:, 1] == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [WgaBc(), Apfl(), Ifca(), CoBo(), FedAvg(finetune=2)])
def test_presence_is_decided_once_in_a_round(algorithm):
    fleet = Stacked(small_problem(), seed=3, participation=0.5)
    state, asked, there = algorithm.init(fleet.initial(), Optimizer(MOMENTUM)), [], []
    for number in range(8):
        drawn, round = fleet.ledger.samples, fleet.begin(number + 1, range(4 * number, 4 * number + 4))
        state, _ = advance(algorithm, state, fleet, round)
        asked.append(fleet.ledger.samples > drawn)
        there.append(round.present)
    assert torch.stack(asked).equal(torch.stack(there))
    assert 0 < torch.stack(there).double().mean() < 1


def test_momentum_does_not_carry_on_the_own_model_of_who_is_absent_from_apfl():
    fleet = Stacked(small_problem(), seed=3)
    algorithm = Apfl()
    state = algorithm.init(fleet.initial(), Optimizer(MOMENTUM))
    first, _ = advance(algorithm, state, fleet, begun([True] * 4))
    second, _ = advance(algorithm, first, fleet, begun([True, False, True, True], range(4, 8), 2))
    for name in fleet.trained:
        assert second.own["model"][name][1].equal(first.own["model"][name][1])
        assert not second.own["model"][name][0].equal(first.own["model"][name][0])


@pytest.mark.parametrize("algorithm", [Ifca(), FedAvg(finetune=3), FedAvg()])
def test_nothing_changes_where_nobody_is_there(algorithm):
    fleet = Stacked(small_problem(), seed=3)
    state = algorithm.init(fleet.initial(), Optimizer(MOMENTUM))
    first, _ = advance(algorithm, state, fleet, begun([True] * 4))
    second, info = advance(algorithm, first, fleet, begun([False] * 4, range(4, 8), 2))
    assert all(second.models[name].equal(first.models[name]) for name in first.models)
    assert rows(second.common).keys() == rows(first.common).keys()
    assert all(t.equal(rows(first.common)[place]) for place, t in rows(second.common).items())
    assert (info.weights == 0).all()


def test_a_client_that_comes_back_starts_from_the_common_model_of_then():
    fleet = Stacked(small_problem(), seed=3)
    algorithm, sgd = FedAvg(), Optimizer(partial(torch.optim.SGD, lr=0.1))
    state = algorithm.init(fleet.initial(), sgd)
    state, _ = advance(algorithm, state, fleet, begun([True, False, True, True]))
    old = {name: t[1].clone() for name, t in state.models.items()}
    state, _ = advance(algorithm, state, fleet, begun([False, True, False, False], range(4, 8), 2))
    only = {name: t.expand(4, *t.shape[1:]) for name, t in state.common["model"].items()}
    assert all(state.models[name][1].equal(only[name][1]) for name in only)
    assert not any(state.models[name][1].equal(old[name]) for name in fleet.trained)
    assert not any(state.models[name][0].equal(state.models[name][1]) for name in fleet.trained)


@pytest.mark.parametrize("fleet", [Stacked, Loop])
def test_losses_and_evaluations_do_not_ask_the_absent(fleet):
    made = fleet(hold_out(small_problem(), 0.2, 0), seed=3)
    made.begin(1, range(4))
    away = begun([True, False, True, False])
    losses = made.losses({name: t[:2] for name, t in made.initial().items()}, away)
    assert losses.shape == (2, 4) and losses.isnan().equal((~away.present).expand(2, -1))
    assert made.ledger.samples.gt(0).equal(away.present)
    found = made.evaluate(made.initial(), away)
    assert found.known.equal(away.present) and found.loss.isfinite().equal(away.present)
    assert found.metrics["accuracy"].isfinite().equal(away.present)
    assert made.new_losses(made.initial(), away).losses.isnan().all(1).equal(~away.present)


def test_not_known_is_not_diverged():
    result = afo.train(small_problem(), rounds=6, participation=lambda step: [True, True, True, step < 3])
    last = result.metrics.filter(result.metrics["round"] == 6)
    assert last["loss"].null_count() == 1 and last["accuracy"].null_count() == 1
    assert last["present"].to_list() == [1, 1, 1, 0]


def test_a_round_without_anybody_still_moves_the_schedule():
    scheduler = partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5)
    fleet = Stacked(small_problem(), seed=3)
    state = afo.Local().init(fleet.initial(), Optimizer(partial(torch.optim.SGD, lr=0.8), scheduler))
    for number, present in enumerate([True, False, True]):
        state, _ = advance(afo.Local(), state, fleet, begun([present] * 4, range(number, number + 1), number + 1))
    assert state.optimizer.lr == pytest.approx(0.1)
