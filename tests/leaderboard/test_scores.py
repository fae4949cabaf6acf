"""Every number of the leaderboard, of runs that are written by hand."""

import numpy as np
import pytest
from scipy.stats import t as student

from allforone.leaderboard.outcomes import best_round, outcomes
from allforone.leaderboard.scores import scores

from .by_hand import comparison, run


def scored(*runs):
    made = comparison(*runs)
    return scores(outcomes(made, made.quantities[0]), made.quantities[0])


def test_the_last_round_counts_and_not_the_best_on_test_data():
    found = scored(run("local", 1, [[0.1, 0.1], [0.9, 0.8], [0.5, 0.7]]))["local"]
    assert found.last == pytest.approx(0.6) and found.worst == pytest.approx(0.5)
    assert found.deviation == pytest.approx(0.1)


def test_the_validated_round_is_the_one_of_least_held_out_loss_whatever_the_test_data_say():
    held = [[3.0, 3.0], [2.0, 1.0], [0.5, 1.5], [1.5, 1.5]]  # the means are 3, 1.5, 1, 1.5
    found = scored(run("local", 1, [[0.1, 0.1], [0.9, 0.9], [0.4, 0.6], [0.7, 0.7]], held))["local"]
    assert found.validated_rounds == [2] and found.validated == pytest.approx(0.5)
    assert found.last == pytest.approx(0.7)


def test_every_seed_has_a_validated_round_of_its_own():
    rounds = [[0.2], [0.4], [0.6]]
    one, two = run("local", 1, rounds, [[3.0], [1.0], [2.0]]), run("local", 2, rounds, [[1.0], [2.0], [3.0]])
    found = scored(one, two)["local"]
    assert found.validated_rounds == [1, 0] and found.validated == pytest.approx(0.3)


def test_of_rounds_with_the_same_loss_the_first_is_best_and_sites_without_held_out_data_do_not_count():
    rounds = [[0.1, 0.1]] * 3
    assert best_round(run("local", 1, rounds, [[2.0, None], [1.0, None], [1.0, None]])) == 1
    assert best_round(run("local", 1, rounds, [[None, None]] * 3)) is None
    assert best_round(run("local", 1, rounds)) is None


def test_without_held_out_data_no_round_is_validated():
    found = scored(run("local", 1, [[0.1], [0.2]]))["local"]
    assert found.validated is None and found.validated_rounds == []


def test_ranks_go_by_the_last_round_and_equals_share_theirs():
    found = scored(
        run("local", 1, [[0.5, 0.5]]),
        run("fedavg", 1, [[0.6, 0.8]]),
        run("ditto", 1, [[0.8, 0.6]]),
        run("apfl", 1, [[0.6, 0.6]]),
    )
    assert {name: score.rank for name, score in found.items()} == {"fedavg": 1, "ditto": 1, "apfl": 3, "local": 4}
    assert [*found] == ["fedavg", "ditto", "apfl", "local"]


def test_who_is_told_the_clusters_has_no_rank_under_any_name():
    found = scored(run("local", 1, [[0.5]]), run("oracle", 1, [[0.9]]), run("sage", 1, [[0.8]], algorithm="oracle"))
    assert (found["oracle"].rank, found["sage"].rank, found["local"].rank) == (None, None, 1)


def test_of_an_error_the_least_is_first_the_greatest_worst_and_less_than_alone_is_better():
    error = {"error": {"lower_is_better": True, "percent": False, "digits": 3}}
    found = scored(run("local", 1, [[0.4, 0.6]], metrics=error), run("fedavg", 1, [[0.3, 0.5]], metrics=error))
    assert (found["fedavg"].rank, found["local"].rank) == (1, 2)
    assert found["fedavg"].worst == pytest.approx(0.5)
    assert found["fedavg"].worse_off == 0 and found["fedavg"].difference == pytest.approx(0.1)


def test_sites_worse_off_are_counted_against_the_same_site_and_seed_and_ties_are_not_worse():
    alone = [run("local", 1, [[0.5, 0.6, 0.7]]), run("local", 2, [[0.9, 0.6, 0.7]])]
    found = scored(*alone, run("fedavg", 1, [[0.4, 0.6, 0.8]]), run("fedavg", 2, [[0.8, 0.5, 0.7]]))
    assert (found["fedavg"].worse_off, found["fedavg"].judged) == (3, 6)
    assert found["local"].worse_off == 0 and found["local"].difference is None


def test_the_interval_of_one_seed_is_that_of_student_over_sites_for_all_contestants_together():
    gains = np.array([0.1, 0.2, 0.15, 0.05])
    alone = np.array([0.5, 0.3, 0.6, 0.4])
    others = [run(name, 1, [(alone + gains).tolist()]) for name in ("fedavg", "ditto", "apfl")]
    found = scored(run("local", 1, [alone.tolist()]), *others)["ditto"]
    reach = student.ppf(1 - 0.05 / 2 / 3, 3) * gains.std(ddof=1) / 2
    assert found.difference == pytest.approx(gains.mean())
    assert (found.low, found.high) == pytest.approx((gains.mean() - reach, gains.mean() + reach))


def test_the_difference_is_over_the_seeds_that_both_have():
    alone = [run("local", 1, [[0.5, 0.5]]), run("local", 2, [[0.1, 0.1]])]
    found = scored(*alone, run("fedavg", 2, [[0.2, 0.4]]))["fedavg"]
    assert found.difference == pytest.approx(0.2) and found.judged == 2 and found.seeds == [2]


def test_without_local_there_is_nothing_to_compare_with():
    found = scored(run("fedavg", 1, [[0.2, 0.4]]))["fedavg"]
    assert (found.difference, found.low, found.high, found.worse_off, found.rank) == (None, None, None, None, 1)


def test_an_interval_that_one_number_cannot_give_is_not_known():
    found = scored(run("local", 1, [[0.2]]), run("fedavg", 1, [[0.3]]))["fedavg"]
    assert found.difference == pytest.approx(0.1) and (found.low, found.high) == (None, None)


def test_a_site_that_is_not_judged_does_not_count():
    found = scored(run("local", 1, [[0.5, None]]), run("fedavg", 1, [[0.4, None]]))["fedavg"]
    assert found.last == pytest.approx(0.4) and found.worst == pytest.approx(0.4)
    assert (found.worse_off, found.judged) == (1, 1)


def test_costs_are_those_of_the_last_round_and_messages_may_be_unknown():
    found = scored(run("local", 1, [[0.5]] * 3, messages=8), run("apfl", 1, [[0.5]] * 3, messages=None))
    assert (found["local"].samples, found["local"].messages, found["local"].bytes) == (32, 8, 80)
    assert found["local"].seconds == pytest.approx(1.0)
    assert (found["apfl"].messages, found["apfl"].bytes) == (None, None)
