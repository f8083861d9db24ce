"""Trains private logistic and linear regressions by scikit-learn's conventions; their defaults need no tuning.

Both descend on noisy sums of gradients (`parley.common.algorithms.dp_gd`). Rounds, step and clip norm are chosen from
the numbers of rows and columns and the budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from parley.common.algorithms import AUTO
from parley.common.arrays import FloatArray
from parley.common.data.columns import RealLabel, RowNorm
from parley.common.data.loading import shard_of
from parley.common.data.records import rows_of_columns
from parley.common.data.study import SquaredLoss, Study
from parley.common.privacy.calibration import check_budget
from parley.common.privacy.payer import Payer
from parley.learner.estimators.array_runs import ArrayRun, Bounds, Seed, check_kinds, features_of
from parley.learner.estimators.budget import EstimatorError
from parley.learner.estimators.private import PrivateClassifier
from parley.learner.estimators.weighed_rows import ArrayEstimator, WeighedRows

if TYPE_CHECKING:
    import numpy.typing as npt

DEFAULT_DELTA = 1e-5


class PrivateLogisticRegression(PrivateClassifier):
    """Logistic regression, of two classes or more, (epsilon, delta)-private for one row, or person, replaced.

    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(n_class=2, return_X_y=True)
    >>> model = PrivateLogisticRegression(1.0, (0, 16), classes=(0, 1)).fit(X, y)
    >>> round(model.epsilon_spent_, 3), bool(model.score(X, y) > 0.9)
    (1.0, True)

    A `PrivateClassifier` whose default delta is above 0; parameters and guarantees are those of that class.
    """

    loss = "logistic"
    mechanism: Literal["auto"] = "auto"
    calibration = "tight"

    def __init__(  # noqa: PLR0913 -- scikit-learn's way: a keyword each
        self,
        epsilon: float = 1.0,
        bounds: Bounds | None = None,
        *,
        delta: float = DEFAULT_DELTA,
        regularization: float | Literal["auto"] = "auto",
        row_norm: RowNorm = "own",
        fit_intercept: bool = True,
        classes: npt.ArrayLike | None = None,
        class_weights: Mapping[Any, float] | None = None,
        owners: int = 1,
        most_rows: int = 1000,
        budget: Payer | None = None,
        random_state: Seed = None,
    ) -> None:
        self.epsilon = epsilon
        self.bounds = bounds
        self.delta = delta
        self.regularization = regularization
        self.row_norm = row_norm
        self.fit_intercept = fit_intercept
        self.classes = classes
        self.class_weights = class_weights
        self.owners = owners
        self.most_rows = most_rows
        self.budget = budget
        self.random_state = random_state


class PrivateLinearRegression(RegressorMixin, ArrayEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Linear regression by least squares, (epsilon, delta)-private for one row, or person, replaced by another.

    >>> X = np.random.default_rng(0).uniform(0, 10, size=(2000, 2))
    >>> model = PrivateLinearRegression(1.0, (0, 10), (0, 20)).fit(X, X.sum(axis=1))
    >>> model.score(X, X.sum(axis=1)) > 0.8
    True

    ``bounds`` of the columns and ``target_bounds`` of y are (lower, upper) in their units, and *public knowledge*:
    values beyond are clipped to them, and predictions lie within. ``delta`` must be above 0. ``regularization`` is
    lambda of (1/n) sum loss + (lambda/2) |w|^2 of columns scaled to [-1, 1], chosen from public numbers if ``auto``.
    ``owners``, ``most_rows``, ``budget`` and ``random_state`` are as in `PrivateClassifier`, and so are ``groups`` and
    ``sample_weight`` of `fit`, pipelines and searches: *each fit costs its epsilon*.

    Attributes after `fit`: ``coef_`` (d,) and ``intercept_`` in the units of X and y, ``n_features_in_``,
    ``guarantee_``, ``epsilon_spent_``, ``choices_``, ``study_`` and ``model_``.
    """

    _validation = MappingProxyType({"y_numeric": True})

    def __init__(  # noqa: PLR0913 -- scikit-learn's way: a keyword each
        self,
        epsilon: float = 1.0,
        bounds: Bounds | None = None,
        target_bounds: tuple[float, float] | None = None,
        *,
        delta: float = DEFAULT_DELTA,
        regularization: float | Literal["auto"] = "auto",
        fit_intercept: bool = True,
        owners: int = 1,
        most_rows: int = 1000,
        budget: Payer | None = None,
        random_state: Seed = None,
    ) -> None:
        self.epsilon = epsilon
        self.bounds = bounds
        self.target_bounds = target_bounds
        self.delta = delta
        self.regularization = regularization
        self.fit_intercept = fit_intercept
        self.owners = owners
        self.most_rows = most_rows
        self.budget = budget
        self.random_state = random_state

    def predict(self, X: npt.ArrayLike) -> FloatArray:
        """Return the predicted numbers (n,) of rows (n, d), in the unit of y and within its bounds."""
        check_is_fitted(self)
        label = self._label()
        return np.clip(self._in_units(validate_data(self, X, dtype=np.float64, reset=False)), label.lower, label.upper)

    def _fit(
        self, X: FloatArray, y: FloatArray, sample_weight: npt.ArrayLike | None, groups: npt.ArrayLike | None
    ) -> Self:
        check_kinds(self)
        check_budget(self.epsilon, self.delta)
        if self.delta == 0:
            raise EstimatorError("a linear regression adds Gaussian noise, which needs a delta above 0, such as 1e-6")
        rows = WeighedRows.of(X, sample_weight, groups, self.most_rows)
        columns = self._study(X.shape[1])
        study = columns.model_copy(update={"person": rows.person})
        parameters = {} if self.regularization == AUTO else {"regularization": float(self.regularization)}
        run = ArrayRun.settled(
            study, rows.n_examples, "dp_gd", parameters, owners=self.owners, epsilon=self.epsilon, delta=self.delta
        )
        promise = run.promise(*rows.assumptions)
        run.warn(self.budget)
        X, y = X[rows.places], y[rows.places]
        examples = rows.weigh(shard_of(columns, self._columns(columns, X) | {columns.label.name: y}, clip=True))
        run.paid(self.budget, self.random_state)
        self.model_, self.study_, self.choices_ = run.model(examples, self.random_state), study, run.choices
        self.coef_, self.intercept_ = self._affine()
        self.guarantee_ = promise if self.random_state is None else None
        self.epsilon_spent_ = None if self.guarantee_ is None else self.guarantee_.epsilon
        return self

    def _study(self, n_features: int) -> Study:
        """Return the bounds as a study."""
        features, (lower, upper) = features_of(self.bounds, n_features), self._target()
        return Study(
            name="estimator",
            features=features,
            label=RealLabel(name="y", lower=lower, upper=upper),
            loss=SquaredLoss(),
            intercept=self.fit_intercept,
        )

    def _target(self) -> tuple[float, float]:
        """Return the bounds of y; raises EstimatorError without bounds, because no scale is taken from data."""
        if self.target_bounds is None:
            raise EstimatorError(
                "target_bounds are missing: give (lower, upper), public numbers in the unit of y; no scale is taken "
                "from data"
            )
        try:
            lower, upper = map(float, self.target_bounds)
        except (OverflowError, TypeError, ValueError):
            raise EstimatorError("target_bounds must be two numbers, (lower, upper)") from None
        return lower, upper

    def _columns(self, study: Study, X: FloatArray) -> dict[str, Any]:
        return dict(zip(study.feature_names, X.T, strict=True))

    def _in_units(self, X: FloatArray) -> FloatArray:
        """Return the model's outputs (n,) for rows (n, d), in the unit of y, not clipped to its bounds."""
        rows = rows_of_columns(self.study_, self._columns(self.study_, X), len(X))
        return self._label().in_units(self.model_.scores(rows))

    def _label(self) -> RealLabel:
        """Return the label that the model predicts."""
        assert isinstance(self.study_.label, RealLabel)  # noqa: S101 -- it was made here
        return self.study_.label

    def _affine(self) -> tuple[FloatArray, float]:
        """Compute slopes (d,) and intercept of the model's output within the bounds from its values at d + 1 rows."""
        features = features_of(self.bounds, self.n_features_in_)
        lower, upper = np.array([(feature.lower, feature.upper) for feature in features]).T
        middle = lower / 2 + upper / 2
        values = self._in_units(np.vstack([middle, middle + np.diag(upper - middle)]))
        slopes = (values[1:] - values[0]) / (upper - middle)
        return slopes, float(values[0] - slopes @ middle)
