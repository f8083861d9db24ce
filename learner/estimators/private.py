"""Trains private classifiers by scikit-learn's conventions, for an owner whose examples are in one process.

A fit is a run of one party or more, whose study consists of the bounds that the user gives: each value is clipped to
them and mapped to [-1, 1], and each row is divided by its own norm or by a public one. Neither scale, noise nor lambda
is a statistic of the examples. The mechanisms are those of the algorithm `release` (Chaudhuri, Monteleoni & Sarwate,
JMLR 2011; Kifer, Smith & Thakurta, COLT 2012; Jain & Thakurta, ICML 2014) and of `dp_gd`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from parley.common.algorithms import AUTO
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.class_weights import prior_offset, scaled_weights
from parley.common.data.columns import Label, RowNorm
from parley.common.data.layout import DesignLayout
from parley.common.data.records import design_of
from parley.common.data.shard import Shard
from parley.common.data.study import HuberLoss, LogisticLoss, Person, SoftmaxLoss, Study
from parley.common.encoding.classes import MAX_CLASSES, encode_classes
from parley.common.privacy.calibration import check_budget
from parley.common.privacy.mechanisms.site import SiteCalibration
from parley.common.privacy.payer import Payer
from parley.learner.estimators.array_runs import ArrayRun, Bounds, Seed, check_kinds, features_of
from parley.learner.estimators.budget import EstimatorError, check_number
from parley.learner.estimators.weighed_rows import ArrayEstimator, WeighedRows

if TYPE_CHECKING:
    import numpy.typing as npt

    from parley.common.learning.model import Model

_TWO = 2
_OF_SEVERAL = (AUTO, "descent", "output", "one_against_rest", "centroids")
"""Mechanisms for more than two classes."""
_MECHANISMS = (*_OF_SEVERAL, "objective", "generalized")
_CLASSES_READ = "which classes there are is public: they were read from y"


def _gives_probabilities(estimator: PrivateClassifier) -> bool:
    return estimator.loss == "logistic"


class PrivateClassifier(ClassifierMixin, ArrayEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A linear classifier, (epsilon, delta)-private for one row, or person, replaced, by scikit-learn's conventions.

    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(n_class=2, return_X_y=True)
    >>> model = PrivateClassifier(bounds=(0, 16), classes=(0, 1), epsilon=1.0, delta=1e-5).fit(X, y)
    >>> print(model.guarantee_)
    (1, 1e-05) transcript replace_one [tight]
    >>> model.coef_.shape, PrivateClassifier(bounds=(0, 16), random_state=0).fit(X, y).guarantee_
    ((1, 64), None)

    ``bounds`` are (lower, upper), a number or (d,) each, in the units of X, and *public knowledge*: values beyond are
    clipped to them, and bounds ten times too wide leave little to learn. Each row is divided by ``row_norm``: ``own``
    is the row's norm; ``largest`` the largest that the bounds allow; or give a number, and longer rows are projected.
    The intercept is a constant column, so that it counts in the norm and is regularised. ``classes`` are those that y
    may have; without them they are read from y, and ``guarantee_`` says so.

    ``class_weights`` has a number for each class, 1 for those that it leaves out, and the largest counts as 1: rows of
    other classes count for less in training, and noise stays that of a row of weight 1. Probabilities are of the
    population as it is. ``balanced`` is refused, because it would follow from y. It is not called ``class_weight``:
    scikit-learn's checks of that fit 50 rows, and want an accuracy that noise does not leave.

    ``delta`` = 0 is pure epsilon, by noise in a minimisation or on its result: ``objective``, ``generalized``,
    ``output``, with the ``calibration`` of `release` and, of those that delta allows, the law that moves weights less.
    A delta above 0, such as 1/n^2, allows a better model: ``auto`` is then ``descent``, noise on gradients (`dp_gd`).
    ``regularization`` is lambda of (1/n) sum loss + (lambda/2) |w|^2, chosen from public numbers if ``auto``. The
    ``logistic`` loss of more than two classes is softmax, with ``descent`` or ``output``, or that of each class against
    the others, with ``one_against_rest``. ``centroids``, noisy sums of classes, need no loss; ``auto`` takes them
    without a delta if noise leaves little of a minimiser. The ``huber`` loss is for two classes, and has no
    `predict_proba`.

    ``groups`` of `fit` say whose each row is: then a *person* is hidden, with all its rows, and ``guarantee_`` says so.
    Of a person's rows the first ``most_rows`` count, a public bound; the number of persons is public, and how many rows
    each has is not. In `cross_validate` and searches, with scikit-learn's metadata routing, each fit has its groups by
    itself (``params={"groups": groups}``, with a splitter such as `GroupKFold`, which leaves persons whole). *Without
    routing they give ``groups`` to the splitter alone, and each fit hides rows.* ``sample_weight`` (request it by
    ``set_fit_request(sample_weight=True)``) has weights by a rule of one example each: within [0, 1], not divided by
    their sum, and without the boosting or bootstrapping that makes weights of all examples, or has some twice.

    ``owners`` simulates that many owners, who hold the examples in equal parts in their order and show only sums; the
    mechanism is then descent. Each fit charges ``budget``, a `PrivacyBudget` or the ledger of the owner's party
    (`parley.LedgerBudget`), which refuses a fit that costs more than is left.

    Noise is the operating system's; with a ``random_state`` a fit can be repeated, and nothing is promised. *Each fit
    costs its epsilon*: so does each candidate, fold and refit of a `GridSearchCV`, whose scores are not private at all.
    Earlier steps of a `Pipeline` must not be fitted to the examples, as a `StandardScaler` is.

    Attributes after `fit`: ``classes_`` (K,), ``n_features_in_``, ``feature_names_in_``; ``coef_`` (1 or K, d) and
    ``intercept_`` (1 or K,) in the units of X: within the bounds X coef_^T + intercept_ is `decision_function`, times
    the row's norm if ``row_norm`` is own; ``guarantee_`` and ``epsilon_spent_``, None with a random_state;
    ``choices_``, the chosen parameters by name with the reasons; ``study_`` and ``model_``, the bounds and the weights
    as Parley has them.
    """

    def __init__(  # noqa: PLR0913 -- scikit-learn's way: a keyword each
        self,
        *,
        bounds: Bounds | None = None,
        epsilon: float = 1.0,
        delta: float = 0.0,
        mechanism: Literal[
            "auto", "descent", "output", "objective", "generalized", "one_against_rest", "centroids"
        ] = "auto",
        loss: Literal["logistic", "huber"] = "logistic",
        regularization: float | Literal["auto"] = "auto",
        calibration: SiteCalibration = "tight",
        row_norm: RowNorm = "own",
        fit_intercept: bool = True,
        classes: npt.ArrayLike | None = None,
        class_weights: Mapping[Any, float] | None = None,
        owners: int = 1,
        most_rows: int = 1000,
        budget: Payer | None = None,
        random_state: Seed = None,
    ) -> None:
        self.bounds = bounds
        self.epsilon = epsilon
        self.delta = delta
        self.mechanism = mechanism
        self.loss = loss
        self.regularization = regularization
        self.calibration = calibration
        self.row_norm = row_norm
        self.fit_intercept = fit_intercept
        self.classes = classes
        self.class_weights = class_weights
        self.owners = owners
        self.most_rows = most_rows
        self.budget = budget
        self.random_state = random_state

    def _fit(
        self,
        X: FloatArray,
        y: npt.NDArray[Any],
        sample_weight: npt.ArrayLike | None,
        groups: npt.ArrayLike | None,
    ) -> Self:
        check_classification_targets(y)
        check_kinds(self)
        check_budget(self.epsilon, self.delta)
        rows = WeighedRows.of(X, sample_weight, groups, self.most_rows)
        classes, codes = self._encoded(y)
        study = self._study(X.shape[1], len(classes), self._weights(classes), rows.person)
        run = self._run(study, rows.n_examples)
        promise = run.promise(*rows.assumptions, *self._read())
        run.warn(self.budget)
        examples = rows.weigh(Shard(_design(study, X[rows.places]), encode_classes(codes[rows.places], len(classes))))
        run.paid(self.budget, self.random_state)
        model = run.model(examples, self.random_state)
        self.classes_, self.study_, self.model_, self.choices_ = classes, study, model, run.choices
        self.coef_, self.intercept_ = _in_units(study, model)
        self.guarantee_ = promise if self.random_state is None else None
        self.epsilon_spent_ = None if self.guarantee_ is None else self.guarantee_.epsilon
        return self

    def decision_function(self, X: npt.ArrayLike) -> FloatArray:
        """Return the scores of rows (n, d): (n,) for the second of two classes, (n, K) for K classes."""
        check_is_fitted(self)
        rows = _design(self.study_, validate_data(self, X, dtype=np.float64, reset=False))
        return self.model_.scores(Shard.adopt(rows, np.ones(len(rows)), "euclidean", None).X)

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the classes of rows (n, d), (n,)."""
        scores = self.decision_function(X)
        codes = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    @available_if(_gives_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Return the probabilities (n, K) of the classes of rows (n, d); the Huber loss has none."""
        scores = self.decision_function(X)
        scores = scores - prior_offset(self.study_.weights_of_classes, 1 if scores.ndim == 1 else scores.shape[1])
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        return np.asarray(softmax(scores, axis=1))

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401 -- scikit-learn's, which has no types
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self.loss == "logistic" and self.mechanism in _OF_SEVERAL
        return tags

    def _encoded(self, y: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], IntArray]:
        """Return the classes (K,) in order, and the index of each label's class, (n,)."""
        try:
            values = y if self.classes is None else np.asarray(self.classes)
            classes = np.unique(values)
        except (TypeError, ValueError):  # values without an order, or lists of different lengths
            values = classes = np.empty(())
        if values.ndim != 1:
            raise EstimatorError("classes must be a list of numbers, or one of words")
        if not _TWO <= len(classes) <= MAX_CLASSES:
            plural = "class" if len(classes) == 1 else "classes"
            raise EstimatorError(f"there must be 2 to {MAX_CLASSES} classes, not {len(classes)} {plural}")
        if len(classes) > _TWO and not self.__sklearn_tags__().classifier_tags.multi_class:
            raise EstimatorError(
                f"Only binary classification is supported of the {self.loss} loss by mechanism {self.mechanism}: for "
                f"{len(classes)} classes take loss = logistic, mechanism = descent, output, "
                "one_against_rest or centroids"
            )
        if not np.isin(y, classes).all():
            raise EstimatorError("y has labels that are not among classes")
        return classes, np.searchsorted(classes, y)

    def _study(
        self,
        n_features: int,
        n_classes: int,
        weights: dict[str, float] | None = None,
        person: Person | None = None,
    ) -> Study:
        """Return the bounds as a study."""
        features = features_of(self.bounds, n_features)
        several = LogisticLoss() if n_classes == _TWO else SoftmaxLoss()
        return Study(
            name="estimator",
            features=features,
            label=Label(name="y", values=tuple(map(str, range(n_classes)))),
            loss=HuberLoss() if self.loss == "huber" else several,
            intercept=self.fit_intercept,
            row_norm=self.row_norm,
            class_weights=weights,
            person=person,
        )

    def _weights(self, classes: npt.NDArray[Any]) -> dict[str, float] | None:
        """Return ``class_weights`` by the classes' indices, as the study names them."""
        if self.class_weights is None:
            return None
        if not isinstance(self.class_weights, Mapping):
            raise EstimatorError(
                f"class_weights must be a number for each class, not {self.class_weights!r}: how common classes are "
                "in y is private, so give weights that do not follow from y"
            )
        if unknown := [name for name in self.class_weights if name not in classes]:
            raise EstimatorError(f"class_weights names {unknown[0]!r}, which is not among the classes")
        for weight in self.class_weights.values():
            check_number("class_weights", weight)
            if not weight >= 0:
                raise EstimatorError(f"class_weights must not be below 0, and has {weight:g}")
        given = scaled_weights(
            {index: self.class_weights.get(name, 1.0) for index, name in enumerate(classes.tolist())}
        )
        return {str(index): float(weight) for index, weight in given.items()}

    def _run(self, study: Study, n_examples: int) -> ArrayRun:
        """Return the run of the mechanism; raises InvalidInputError for parameters that the mechanism cannot take."""
        if self.mechanism not in _MECHANISMS or self.loss not in ("logistic", "huber"):
            raise EstimatorError(f"there is no private {self.loss!r} loss by mechanism {self.mechanism!r}")
        parameters: dict[str, Any] = {}
        if self.regularization != AUTO:
            parameters["regularization"] = float(self.regularization)
        if self.calibration != "tight":
            parameters["calibration"] = self.calibration
        descends = self.delta > 0 and "calibration" not in parameters
        if self.mechanism == "descent" and self.delta == 0:
            raise EstimatorError(
                "mechanism = descent adds Gaussian noise, which needs a delta above 0; mechanism = auto does not"
            )
        name = "dp_gd" if self.mechanism == "descent" or (self.mechanism == AUTO and descends) else "release"
        if name == "release":
            parameters["mechanism"] = self.mechanism
            if self.owners > 1:
                raise EstimatorError("several owners train together by mechanism = descent alone, and a delta above 0")
        return ArrayRun.settled(
            study,
            n_examples,
            name,
            parameters,
            owners=self.owners,
            epsilon=self.epsilon,
            delta=self.delta,
            budget=self.budget,
        )

    def _read(self) -> tuple[str, ...]:
        """Return the facts that were read from the examples, which the guarantee states."""
        return (_CLASSES_READ,) if self.classes is None else ()


def _design(study: Study, X: FloatArray) -> FloatArray:
    """Return examples (n, d) as rows of a study's design."""
    return design_of(study, dict(zip(study.feature_names, X.T, strict=True)), len(X))


def _in_units(study: Study, model: Model) -> tuple[FloatArray, FloatArray]:
    """Return weights (1 or K, d) and intercepts (1 or K,) in the columns' units, for rows not divided by their norm."""
    layout, weights = DesignLayout.of(study), np.atleast_2d(model.weights)
    numbers = layout.numbers
    unit = 1.0 if layout.own else layout.unit
    slopes = weights[:, : study.n_columns] * (2 * unit / (numbers.upper - numbers.lower))
    constant = weights[:, -1] * unit if study.intercept else np.zeros(len(weights))
    return slopes, constant - slopes @ (numbers.lower / 2 + numbers.upper / 2)
