"""Scikit-learn's way to a model for each site: fit, predict and score on arrays, with the site of every row."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data
from torch import Tensor, nn
from torch.nn import functional as F

from .algorithms import Algorithm
from .api import train
from .errors import InputError
from .problems import Client, Problem

#: What makes the model: nothing for a linear one, a module, or a function of the numbers of inputs and outputs.
MakeModule = nn.Module | Callable[[int, int], nn.Module] | None


class _Sites(BaseEstimator):  # type: ignore[misc]
    """What both estimators share."""

    def __init__(
        self,
        module: MakeModule = None,
        *,
        algorithm: Algorithm | None = None,
        rounds: int = 100,
        inner: int = 10,
        batch_size: int = 32,
        lr: float = 0.1,
        scale: bool = True,
        guard: bool = False,
        random_state: int = 127,
    ) -> None:
        self.module, self.algorithm, self.rounds, self.inner = module, algorithm, rounds, inner
        self.batch_size, self.lr, self.scale, self.guard, self.random_state = batch_size, lr, scale, guard, random_state

    def _fit(self, X: Any, targets: Any, sites: Any, outputs: int, loss: Callable[..., Tensor]) -> None:  # noqa: N803
        named = np.zeros(len(X), int) if sites is None else column_or_1d(sites)
        check_consistent_length(X, named)
        self.sites_ = np.unique(named)
        self.mean_ = X.mean(0) if self.scale else np.zeros(X.shape[1])
        spread = X.std(0) if self.scale else np.ones(X.shape[1])
        self.spread_ = np.where(spread > 1e-9 * (1 + np.abs(self.mean_)), spread, 1.0)
        inputs = self._inputs(X).float()
        targets = torch.as_tensor(targets)
        clients = []
        for site in self.sites_:
            rows = torch.as_tensor(np.flatnonzero(named == site))
            data = inputs[rows], targets[rows]
            clients.append(Client(data, data, name=None if sites is None else str(site)))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.random_state)
            module = self._module(X.shape[1], outputs)
        self.result_ = train(
            Problem(module, loss, name=type(self).__name__, clients=clients),
            algorithm=self.algorithm,
            rounds=self.rounds,
            inner=self.inner,
            batch_size=self.batch_size,
            lr=self.lr,
            guard=self.guard,
            seed=self.random_state,
            evaluate_every=self.rounds,
            progress=False,
        )
        self.models_ = [model.double() for model in self.result_.models]

    def _module(self, inputs: int, outputs: int) -> nn.Module:
        if isinstance(self.module, nn.Module):
            return self.module
        return nn.Linear(inputs, outputs) if self.module is None else self.module(inputs, outputs)

    def _inputs(self, X: Any) -> Tensor:  # noqa: N803
        return torch.as_tensor((X - self.mean_) / self.spread_)

    @torch.no_grad()
    def _outputs(self, X: Any, sites: Any) -> Any:  # noqa: N803
        """What each row's site's own model answers."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)  # noqa: N806
        if sites is None and len(self.sites_) > 1:
            raise InputError(
                f"there are {len(self.sites_)} sites, each with its own model: give sites=…, one for each row"
            )
        named = np.full(len(X), self.sites_[0]) if sites is None else column_or_1d(sites)
        check_consistent_length(X, named)
        unknown = sorted({str(site) for site in named} - {str(site) for site in self.sites_})
        if unknown:
            raise InputError(f"sites {', '.join(unknown)}: not among those of fit; a new one joins by result_.join(…)")
        inputs, outputs = self._inputs(X), None
        for model, site in zip(self.models_, self.sites_, strict=True):
            rows = torch.as_tensor(np.flatnonzero(named == site))
            if len(rows):
                answer = model(inputs[rows])
                outputs = torch.empty(len(X), *answer.shape[1:], dtype=answer.dtype) if outputs is None else outputs
                outputs[rows] = answer
        assert outputs is not None
        return outputs


class AllForOneClassifier(ClassifierMixin, _Sites):  # type: ignore[misc]
    """A classifier of its own for every site, in scikit-learn's way.

    Args:
        module: a torch module from features to one output per class; a function of the numbers of features and classes
            that makes one; by default a linear one.
        algorithm: by default `AllForOne()`.
        rounds: how many.
        inner: updates per round.
        batch_size: samples per site and update.
        lr: the step size of SGD.
        scale: whether features are standardised, by the mean and deviation over all sites.
        guard: whether a site may be given the model that it trains alone.
        random_state: the seed.

    Example:
        >>> import numpy as np, allforone as afo
        >>> X, hospital = np.random.default_rng(0).normal(size=(80, 3)), np.repeat(["A", "B"], 40)
        >>> y = np.where((X[:, 0] > 0) == (hospital == "A"), "sick", "well")
        >>> model = afo.AllForOneClassifier(rounds=20).fit(X, y, sites=hospital)
        >>> model.predict([[2, 0, 0], [2, 0, 0]], sites=["A", "B"])
        array(['sick', 'well'], dtype='<U4')
    """

    def fit(self, X: Any, y: Any, sites: Any = None) -> Self:  # noqa: N803
        """Train a model for each of `sites`, which names the site of every row; without it all are of one."""
        X, y = validate_data(self, X, y, dtype=np.float64)  # noqa: N806
        check_classification_targets(y)
        self.classes_, targets = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class only, {self.classes_[0]}: a classifier needs two or more")
        self._fit(X, targets.astype(np.int64), sites, len(self.classes_), F.cross_entropy)
        return self

    def predict_proba(self, X: Any, sites: Any = None) -> Any:  # noqa: N803
        """[rows, classes], in the order of `classes_`, each row by its site's own model."""
        return self._outputs(X, sites).softmax(1).numpy()

    def predict(self, X: Any, sites: Any = None) -> Any:  # noqa: N803
        """The class of each row, by its site's own model."""
        found = self.predict_proba(X, sites).argmax(1)
        return self.classes_[found]

    def score(self, X: Any, y: Any, sites: Any = None) -> float:  # noqa: N803
        """The share of rows whose class is right."""
        return float(np.mean(self.predict(X, sites) == np.asarray(y)))


class AllForOneRegressor(RegressorMixin, _Sites):  # type: ignore[misc]
    """A regression of its own for every site, in scikit-learn's way; targets are standardised as features are.

    Its arguments are those of `afo.AllForOneClassifier`; a module has one output.

    Example:
        >>> import numpy as np, allforone as afo
        >>> X, hospital = np.random.default_rng(0).normal(size=(80, 3)), np.repeat(["A", "B"], 40)
        >>> y = np.where(hospital == "A", 1, -1) * X[:, 0]
        >>> model = afo.AllForOneRegressor(rounds=20).fit(X, y, sites=hospital)
        >>> model.predict([[2, 0, 0], [2, 0, 0]], sites=["A", "B"]).round(1)
        array([ 2., -2.])
    """

    def fit(self, X: Any, y: Any, sites: Any = None) -> Self:  # noqa: N803
        """Train a model for each of `sites`, which names the site of every row; without it all are of one."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)  # noqa: N806
        y = column_or_1d(y, warn=True).astype(np.float64)
        self.target_mean_ = float(y.mean())
        self.target_spread_ = float(y.std()) or 1.0
        targets = ((y - self.target_mean_) / self.target_spread_).astype(np.float32)[:, None]
        self._fit(X, targets, sites, 1, F.mse_loss)
        return self

    def predict(self, X: Any, sites: Any = None) -> Any:  # noqa: N803
        """The value of each row, by its site's own model."""
        return self._outputs(X, sites)[:, 0].numpy() * self.target_spread_ + self.target_mean_

    def score(self, X: Any, y: Any, sites: Any = None) -> float:  # noqa: N803
        """The share of the variance of y that is explained, R²."""
        y = np.asarray(y, dtype=float)
        return float(1 - np.square(y - self.predict(X, sites)).sum() / np.square(y - y.mean()).sum())
