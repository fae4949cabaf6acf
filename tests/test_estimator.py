"""Scikit-learn's own checks, and sites."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import allforone as afo
from allforone.errors import InputError

QUICK = {"rounds": 15, "inner": 10, "lr": 0.3}
#: Enough to learn what scikit-learn expects to be learned, in each of its hundred checks.
ENOUGH = {"rounds": 2, "inner": 10, "lr": 0.5}


def expected_to_fail(estimator):
    """What scikit-learn asks that does not fit, each with the reason."""
    return {}


@pytest.mark.slow
@parametrize_with_checks(
    [afo.AllForOneClassifier(**ENOUGH), afo.AllForOneRegressor(**ENOUGH)], expected_failed_checks=expected_to_fail
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def two_kinds(rows=80):
    random = np.random.default_rng(0)
    X, site = random.normal(size=(rows, 3)), np.repeat(["north", "south"], rows // 2)  # noqa: N806
    return X, np.where((X[:, 0] > 0) == (site == "north"), "sick", "well"), site


def test_each_site_has_its_own_model():
    X, y, site = two_kinds()  # noqa: N806
    model = afo.AllForOneClassifier(**QUICK).fit(X, y, sites=site)
    assert model.score(X, y, sites=site) > 0.9
    turned = np.where(site == "north", "south", "north")
    assert model.score(X, y, sites=turned) < 0.1
    assert list(model.sites_) == ["north", "south"] and model.result_.names == ["north", "south"]


def test_predictions_are_those_of_the_sites_plain_model():
    X, y, site = two_kinds()  # noqa: N806
    model = afo.AllForOneClassifier(lambda i, o: nn.Sequential(nn.Linear(i, 4), nn.Tanh(), nn.Linear(4, o)), **QUICK)
    model.fit(X, y, sites=site)
    scaled = torch.as_tensor((X[:5] - X.mean(0)) / X.std(0))
    plain = model.result_.model("south").double()(scaled).softmax(1)
    assert np.allclose(model.predict_proba(X[:5], sites=["south"] * 5), plain.detach().numpy())


def test_a_regression_knows_the_size_of_its_targets():
    X, _, site = two_kinds()  # noqa: N806
    y = 1000 + 50 * np.where(site == "north", 1, -1) * X[:, 0]
    assert afo.AllForOneRegressor(**QUICK).fit(X, y, sites=site).score(X, y, sites=site) > 0.95


def test_sites_must_be_given_known_and_as_many_as_rows():
    X, y, site = two_kinds()  # noqa: N806
    model = afo.AllForOneClassifier(rounds=1).fit(X, y, sites=site)
    with pytest.raises(InputError, match="give sites=…, one for each row"):
        model.predict(X)
    with pytest.raises(InputError, match="sites east: not among those of fit"):
        model.predict(X[:1], sites=["east"])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.predict(X, sites=site[:-1])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(X, y, sites=site[:-1])


def test_it_can_be_kept_and_searched_over():
    X, y, site = two_kinds()  # noqa: N806
    model = afo.AllForOneClassifier(**QUICK).fit(X, y, sites=site)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(X, sites=site), model.predict(X, sites=site))
    search = GridSearchCV(afo.AllForOneClassifier(rounds=3), {"lr": [1e-6, 0.5]}, cv=2, refit=False)
    assert search.fit(X[:40], y[:40]).best_params_ == {"lr": 0.5}
