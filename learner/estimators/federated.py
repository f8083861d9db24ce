"""Trains models on a federation by scikit-learn's conventions; `fit` takes no data, because the owners keep them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.utils.metaestimators import available_if

from parley.common.arrays import FloatArray
from parley.common.data.columns import Label
from parley.common.data.records import check_cells, rows_of, rows_of_columns
from parley.common.data.study import Study
from parley.common.encoding.texts import spelling
from parley.common.errors import ParleyError
from parley.common.runs.model_document import ModelDocument
from parley.common.runs.predictions import Predictor
from parley.learner.client.calls import TableRows, columns_of, records_of
from parley.learner.client.learner import Learner
from parley.learner.estimators.budget import EstimatorError
from parley.learner.models.card import model_card
from parley.learner.models.verification import verification_of

_LOCAL = "http://127.0.0.1:8000"
_STATED = {
    "sample_weight": ": owners have the examples, and a study may weigh their classes",
    "groups": ": owners have the examples, and a study names the column, person, that says whose a row is",
}
"""Where a federation states what a fit on arrays is told."""


class FederatedEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The common base of `FederatedClassifier` and `FederatedRegressor`.

    ``study`` is a `Study` or the name of one that the learner has. ``learner`` is a `Learner` or its address; the token
    is then read from PARLEY_TOKEN or PARLEY_TOKEN_FILE. A run may cost each party (``epsilon``, ``delta``), also for a
    person who is with up to ``overlap`` of the owners. ``parameters`` are the algorithm's, and those left out are
    chosen from public facts; ``options`` are further terms of the run, as `parley.learner.client.calls.RunOptions`
    names them, such as ``parties`` or ``evaluate``. ``progress`` draws a bar on a terminal and in a notebook.

    *Each fit is a run, and its owners' ledgers are charged.* So is each candidate of a search.

    Attributes after `fit`: ``run_``, ``document_`` (the model's document), ``card_`` (in words, as Markdown),
    ``guarantees_`` and ``guarantee_`` (against all who see the rounds), ``evaluation_`` (on rows that owners hold out;
    None without), ``threshold_`` (of a classifier of two classes: the score above which it predicts the second, by a
    rule of ``options`` or of `Learner.threshold`), ``study_``, ``n_features_in_``, ``feature_names_in_``. Rows to
    predict for are a data frame, columns by name, records, or an array whose columns are in the study's order. Give
    them in the study's units and values, without preparation: the study defines categories, missing values and scaling.
    """

    _classes: ClassVar[bool]

    def __init__(  # noqa: PLR0913 -- scikit-learn's way: a keyword each
        self,
        study: str | Study = "",
        *,
        learner: Learner | str = _LOCAL,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        algorithm: str = "dp_gd",
        parameters: Mapping[str, Any] | None = None,
        secure_sum: str = "none",
        overlap: int = 1,
        purpose: str = "",
        options: Mapping[str, Any] | None = None,
        progress: bool = True,
    ) -> None:
        self.study = study
        self.learner = learner
        self.epsilon = epsilon
        self.delta = delta
        self.algorithm = algorithm
        self.parameters = parameters
        self.secure_sum = secure_sum
        self.overlap = overlap
        self.purpose = purpose
        self.options = options
        self.progress = progress

    def fit(self, X: None = None, y: None = None, **unsupported: object) -> Self:
        """Have the learner run a training among the owners of the study, and wait for its end.

        Raises EstimatorError if data are passed, if the study is missing or its label is of the wrong kind, TypeError
        for what belongs to data (``sample_weight``, ``groups``), and the errors of `Learner.submit` and `Learner.wait`.
        """
        _refuse(self, unsupported)
        if X is not None or y is not None:
            raise EstimatorError("fit takes no data: the owners of the study have them, and they stay there")
        if not self.study:
            raise EstimatorError("study is missing: name one of Learner.studies()")
        with self._connected() as learner:
            self._check(self.study if isinstance(self.study, Study) else learner.study(self.study))
            terms: dict[str, Any] = {
                "algorithm": self.algorithm,
                "parameters": dict(self.parameters or {}),
                "secure_sum": self.secure_sum,
                "overlap": self.overlap,
                "purpose": self.purpose,
            }
            run = learner.submit(
                self.study, epsilon=self.epsilon, delta=self.delta, **(terms | dict(self.options or {}))
            )
            return self.take(run.id)

    def take(self, run: str) -> Self:
        """Take the model of a run submitted before, such as one whose `fit` was interrupted; wait for its end.

        And for that of its newest evaluation. Raises EstimatorError for a run of another study.
        """
        with self._connected() as learner:
            ended = learner.wait(run, progress=self.progress)
            for evaluation in ended.evaluations[-1:]:
                try:
                    learner.wait(evaluation, progress=self.progress)
                except ParleyError as error:
                    warnings.warn(f"the model is not evaluated: {error.detail}", UserWarning, stacklevel=2)
            document = learner.model(run)
        for caution in ended.cautions:
            warnings.warn(caution, UserWarning, stacklevel=2)
        self._check(document.study)
        named = self.study if isinstance(self.study, str) else self.study.name
        if named and document.study.name != named:
            raise EstimatorError(f"run {run} is of the study {document.study.name!r}, not of {named!r}")
        return self._fitted_by(document, run_=ended)

    @property
    def card_(self) -> str:
        """The model's card, in Markdown, as `parley-learner card` writes it."""
        self._check_fitted()
        document = self.document_.model_dump(mode="json")
        return model_card(document, verification_of(document))

    def decision_function(self, X: TableRows) -> FloatArray:
        """Return rows' scores, (n,), or (n, K) for more than two classes; a number's bounds have scores -1 and 1."""
        self._check_fitted()
        return self._predictor.scores(self._rows(X))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "document_")

    def _fitted_by(self, document: ModelDocument, **more: object) -> Self:
        """Set the fitted attributes from a model's document."""
        predictor = Predictor.by(document)
        for name, value in more.items():
            setattr(self, name, value)
        self._predictor, self.document_, self.study_ = predictor, document, document.study
        self.feature_names_in_ = np.array(document.study.feature_names, dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        self.guarantees_, self.evaluation_ = document.guarantees, document.evaluation
        of_transcript = tuple(promise for promise in self.guarantees_ if promise.view == "transcript")
        self.guarantee_ = (of_transcript or self.guarantees_)[-1]
        return self

    @contextmanager
    def _connected(self) -> Iterator[Learner]:
        """Yield the learner; a `Learner` that the caller passed stays open."""
        if isinstance(self.learner, Learner):
            yield self.learner
        else:
            with Learner(self.learner) as learner:
                yield learner

    def _check(self, study: Study) -> None:
        """Raise EstimatorError for a study whose label is of the wrong kind."""
        if isinstance(study.label, Label) is not self._classes:
            kind = "classes" if isinstance(study.label, Label) else "a number"
            raise EstimatorError(f"{type(self).__name__} is not for study {study.name!r}, whose label is {kind}")

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")

    def _rows(self, X: TableRows) -> Any:  # noqa: ANN401 -- a matrix of either kind
        """Return rows of the study's design; raises InvalidInputError that names an invalid value's row and column."""
        if self.study_.sparse:
            return rows_of(self.study_, records_of(X), "row {}".format)
        columns = columns_of(X, self.study_.feature_names)
        check_cells(self.study_, columns, "row {}".format)
        return rows_of_columns(self.study_, columns, len(next(iter(columns.values()))))


def _refuse(estimator: FederatedEstimator, unsupported: Iterable[str]) -> None:
    """Raise TypeError for keyword arguments that `fit` does not take, such as weights of examples.

    The message has Python's words, which scikit-learn's ensembles look for in the models that they train. `fit` does
    not name such an argument itself, because the ensembles would then take weights as supported.
    """
    for name in unsupported:
        reason = _STATED.get(name, "")
        raise TypeError(f"{type(estimator).__name__}.fit() got an unexpected keyword argument {name!r}{reason}")


def _may_give_probabilities(estimator: FederatedClassifier) -> bool:
    return not estimator.__sklearn_is_fitted__() or estimator.study_.loss.kind in {"logistic", "softmax"}


class FederatedClassifier(ClassifierMixin, FederatedEstimator):  # type: ignore[misc]  # as above
    """A classifier trained by a learner among the owners of a study; its parameters are `FederatedEstimator`'s.

    ``FederatedClassifier("biopsies", epsilon=1, delta=1e-5).fit().predict(new_rows)``. ``classes_`` are the values of
    the study's label, as texts, in its order.
    """

    _classes = True

    def predict(self, X: TableRows) -> npt.NDArray[Any]:
        """Return the classes of rows, (n,) texts."""
        scores = self.decision_function(X)
        return np.array(self._predictor.labels(scores), dtype=object)

    @available_if(_may_give_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: TableRows) -> FloatArray:
        """Return the probabilities (n, K) of the classes, for a loss that fits probabilities."""
        scores = self.decision_function(X)
        chances = self._predictor.probabilities(scores)
        assert chances is not None  # noqa: S101 -- see _may_give_probabilities
        return chances

    def score(self, X: TableRows, y: npt.ArrayLike) -> float:
        """Return the accuracy on rows with classes y (n,), which may be numbers if the study's values are numbers."""
        true, predicted = ([spelling(name) for name in np.asarray(values).tolist()] for values in (y, self.predict(X)))
        return float(accuracy_score(true, predicted))

    def _fitted_by(self, document: ModelDocument, **more: object) -> Self:
        super()._fitted_by(document, **more)
        assert isinstance(document.study.label, Label)  # noqa: S101 -- it was checked
        self.classes_ = np.array(document.study.label.values, dtype=object)
        if document.kind == "linear":
            self.threshold_ = self._predictor.threshold
        return self


class FederatedRegressor(RegressorMixin, FederatedEstimator):  # type: ignore[misc]  # as above
    """A regression trained by a learner among the owners of a study; its parameters are `FederatedEstimator`'s."""

    _classes = False

    def predict(self, X: TableRows) -> FloatArray:
        """Return the predicted numbers of rows, (n,), in the label's unit and within its bounds."""
        scores = self.decision_function(X)
        return np.array(self._predictor.labels(scores), dtype=np.float64)
