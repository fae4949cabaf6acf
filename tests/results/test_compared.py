"""Algorithms compared from Python, and how sure a difference is."""

import numpy as np
import pytest
from scipy.stats import ttest_1samp

import allforone as afo
from allforone.errors import InputError
from allforone.results.paired import holm, paired

from .sites import hospitals


@pytest.fixture(scope="module")
def compared():
    algorithms = {"ours": afo.AllForOne(), "local": afo.Local(), "shared": afo.FedAvg()}
    return afo.compare(hospitals(), algorithms, seeds=[1, 2], rounds=3, lr=0.2)


def test_the_table_is_that_of_plain_runs(compared):
    runs = [afo.train(hospitals(), algorithm=afo.FedAvg(), rounds=3, lr=0.2, seed=seed) for seed in (1, 2)]
    values = np.array([run.metrics.filter(run.metrics["round"] == 3)["accuracy"].to_list() for run in runs])
    row = compared.table().row(2, named=True)
    assert row["algorithm"] == "shared"
    assert row["mean"] == pytest.approx(values.mean()) and row["std"] == pytest.approx(values.std())
    assert row["worst"] == pytest.approx(values.min(1).mean())


def test_differences_are_paired_and_better_is_above_zero(compared):
    tests = compared.tests(baseline="local", metric="loss")
    assert tests["algorithm"].to_list() == ["ours", "shared"]
    values = compared.values("loss")

    def of(name):
        return values.filter(values["algorithm"] == name)["value"].to_numpy()

    for row in tests.iter_rows(named=True):
        assert row["difference"] == pytest.approx((of("local") - of(row["algorithm"])).mean())
        assert row["low"] < row["difference"] < row["high"] and row["p"] <= row["p_holm"] <= 1


def test_a_comparison_is_reported_with_everybody_in_it(compared, tmp_path):
    assert '"ours"' in compared.report(tmp_path / "report.html").read_text()
    assert compared.names == ["ours", "local", "shared"] and compared.seeds == [1, 2]


def test_algorithms_are_given_by_object_name_or_both():
    found = afo.compare(hospitals(), ["local", "ditto:penalty=1", afo.Ditto()], seeds=1, rounds=1)
    assert found.names == ["local", "ditto:penalty=1", "ditto"]
    for wrong, said in (([afo.Ditto(), afo.Ditto(penalty=2)], "two are called ditto"), ([], "at least one")):
        with pytest.raises(InputError, match=said):
            afo.compare(hospitals(), wrong, seeds=1, rounds=1)
    with pytest.raises(InputError, match="nothing to compare"):
        afo.compare(hospitals(), [afo.Local()], seeds=1, rounds=1).tests()


def test_data_may_be_drawn_anew_for_each_seed():
    found = afo.compare(lambda seed: afo.digits(clients=3, seed=seed), [afo.Local()], seeds=[1, 2], rounds=1)
    first, second = found.results.values()
    assert first.roster != second.roster


def test_a_list_of_one_seed_is_that_seed_and_a_number_is_how_many():
    for seeds, meant in (([1], [1]), (1, [127])):
        assert afo.compare(hospitals(), [afo.Local()], seeds=seeds, rounds=1).seeds == meant


def test_of_one_seed_the_interval_is_students_over_sites():
    d = np.random.default_rng(0).normal(0.3, 1, (9, 1))
    found, expected = paired(d), ttest_1samp(d[:, 0], 0)
    assert found.p == pytest.approx(expected.pvalue)
    assert found.interval() == pytest.approx(tuple(expected.confidence_interval()))


@pytest.mark.parametrize(("by_site", "by_seed"), [(1, 0), (0, 1), (1, 1), (0, 0)])
def test_where_there_is_no_difference_it_is_seldom_called_sure(by_site, by_seed):
    random = np.random.default_rng(1)
    false = 0
    for _ in range(400):
        d = by_site * random.normal(size=(8, 1)) + by_seed * random.normal(size=(1, 5)) + random.normal(size=(8, 5))
        false += paired(d).p < 0.05
    assert false / 400 < 0.08  # 5 % by construction; a test that counts all 40 as independent says 30 to 60 %


def test_a_difference_that_is_there_is_found():
    d = 1 + 0.5 * np.random.default_rng(2).normal(size=(8, 5))
    assert paired(d).p < 0.01 and paired(d).interval(3)[0] > 0


def test_holms_correction_is_the_textbooks():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]


def test_what_cannot_be_told_is_not_called_sure():
    assert paired(np.array([[0.5]])).interval() == (-np.inf, np.inf)
    assert paired(np.zeros((4, 2))).p == 1.0
    known = paired(np.array([[1.0, 1.2], [np.nan, 5.0], [0.9, 1.1]]))
    assert known.mean == pytest.approx(1.05)
