"""Of a crowd few are looked at and fewer asked: nobody is left out for ever, and nothing known gets mixed up."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from allforone.algorithms import AllForOne
from allforone.collaboration import candidates
from allforone.fleet import Stacked
from allforone.testing import MOMENTUM, small_problem

from ..rounds import play


def remembered(n, count, seed):
    """A memory in which the value at a place tells whose it is: 1000 i + k."""
    random = torch.Generator().manual_seed(seed)
    memory = candidates.nobody(n, candidates.places(n, count))
    for i, row in enumerate(memory["ids"]):
        others = torch.randperm(n, generator=random)
        known = others[others != i][: int(torch.randint(len(row), (1,), generator=random))]
        row[1 : 1 + len(known)] = known
    ids = memory["ids"]
    memory["promise"] = torch.rand(ids.shape, generator=random, dtype=torch.float64) * (ids >= 0)
    memory["name"] = torch.where(ids >= 0, 1000.0 * torch.arange(n)[:, None] + ids, 0.0)
    memory["names"] = memory["name"][..., None].expand(-1, -1, 3).clone()
    memory["row"] = torch.arange(n)
    return memory


@given(n=st.integers(3, 30), count=st.integers(1, 6), seed=st.integers(0, 10**6), present=st.floats(0, 1))
def test_candidates_are_oneself_first_then_different_others_who_are_there(n, count, seed, present):
    here = torch.rand(n, generator=torch.Generator().manual_seed(seed)) < present
    ids = candidates.choose(remembered(n, count, seed), here, count, seed)
    assert ids.shape == (n, 1 + count) and ids[:, 0].equal(torch.arange(n))
    for i, row in enumerate(ids[:, 1:].tolist()):
        asked = [k for k in row if k >= 0]
        assert len(set(asked)) == len(asked) and i not in asked and all(here[k] for k in asked)


def test_where_enough_are_there_every_place_is_taken():
    ids = candidates.choose(remembered(50, 8, 0), torch.ones(50, dtype=torch.bool), 8, 1)
    assert (ids >= 0).all()


@given(n=st.integers(3, 30), count=st.integers(1, 6), seed=st.integers(0, 10**6))
def test_what_is_known_of_a_pair_moves_with_it_and_who_promises_least_is_forgotten(n, count, seed):
    memory = remembered(n, count, seed)
    ids = candidates.choose(memory, torch.ones(n, dtype=torch.bool), count, seed)
    after = candidates.arranged(memory, ids)
    places = memory["ids"].shape[1]
    assert after["ids"].shape == (n, places) and after["ids"][:, : 1 + count].equal(ids[:, :places])
    for i in range(n):
        before = {int(k): float(p) for k, p in zip(memory["ids"][i], memory["promise"][i], strict=True) if k >= 0}
        now = [int(k) for k in after["ids"][i] if k >= 0]
        assert len(set(now)) == len(now) and set(now) <= set(before) | set(ids[i].tolist())
        for place, k in enumerate(after["ids"][i].tolist()):
            expected = 1000 * i + k if k in before else 0
            assert after["name"][i, place] == expected and (after["names"][i, place] == expected).all()
        forgotten = [promise for k, promise in before.items() if k not in now]
        kept = [before[k] for k in now if k not in ids[i].tolist()]
        assert not forgotten or not kept or max(forgotten) <= min(kept)
    assert after["row"].equal(memory["row"])


def test_sooner_or_later_everybody_is_looked_at():
    memory, seen = candidates.nobody(40, candidates.places(40, 4)), [set() for _ in range(40)]
    for number in range(200):
        ids = candidates.choose(memory, torch.ones(40, dtype=torch.bool), 4, number)
        memory = candidates.arranged(memory, ids)
        for i, row in enumerate(ids.tolist()):
            seen[i] |= set(row)
    assert all(len(found) == 40 for found in seen)


@settings(max_examples=20)
@given(count=st.integers(1, 8), seed=st.integers(0, 10**6))
def test_the_mean_over_draws_of_partners_is_the_weights_and_rows_keep_their_sums(count, seed):
    random = torch.Generator().manual_seed(seed)
    weights = torch.rand(6, 9, generator=random, dtype=torch.float64) ** 3
    weights[torch.rand(6, 9, generator=random) < 0.3] = 0
    itself = torch.zeros(6, 9, dtype=torch.bool)
    itself[:, 0] = True
    weights[:, 0] += 0.01
    weights /= weights.sum(1, keepdim=True)
    draws = torch.stack([candidates.partners(weights, itself, count, number) for number in range(600)])
    torch.testing.assert_close(draws.sum(2), torch.ones(600, 6).double())
    assert ((draws > 0) & ~itself).sum(2).max() <= count and (draws >= 0).all()
    assert draws[..., 0].equal(weights[:, 0].expand(600, 6))
    once = 1 / count  # what is drawn with a chance below 1 counts at most this much
    assert ((draws.mean(0) - weights).abs() <= 5 * (weights * once / 600).sqrt() + 3 * once / 600).all()


def test_with_room_for_all_partners_the_weights_stay_as_they_are():
    weights = torch.rand(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert candidates.partners(weights, torch.eye(4, dtype=torch.bool), 3, 1).equal(weights)


def test_as_many_candidates_as_there_are_others_is_everybody():
    ends = [
        play(Stacked(small_problem(), seed=3), AllForOne(candidates=count), MOMENTUM, rounds=4, inner=2)
        for count in (None, 3, 50)
    ]
    for state, info in ends[1:]:
        assert info.weights.equal(ends[0][1].weights)
        assert all(state.models[name].equal(tensor) for name, tensor in ends[0][0].models.items())


def test_a_client_asks_no_more_than_it_may_and_looks_at_no_more_than_it_may():
    fleet = Stacked(small_problem(clients=12), seed=3)
    for algorithm, most in ((AllForOne(partners=2), 2), (AllForOne(candidates=4), 4)):
        _, info = play(fleet, algorithm, MOMENTUM, rounds=5, inner=2)
        others = info.weights.fill_diagonal_(0)
        assert (others > 0).sum(1).max() <= most
    assert (info.noise.isfinite().sum(1) == 5).all()  # four and oneself
