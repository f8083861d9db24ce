"""Predictions of a model's document for new rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.special import expit, softmax

from parley.common.arrays import FloatArray
from parley.common.data.class_weights import prior_offset
from parley.common.data.columns import RealLabel
from parley.common.data.records import rows_of
from parley.common.data.study import Study
from parley.common.learning.model import Model
from parley.common.runs.model_document import ModelDocument, model_of, read_document


@dataclass(frozen=True, slots=True, eq=False)
class Predictor:
    """A model, the study by which records become its rows, and the score above which it predicts the positive class.

    Only a model of one score of two classes has such a ``threshold``.
    ``class_weights`` (K,) are those of its training, empty if all are 1.
    """

    study: Study
    model: Model
    threshold: float = 0.0
    class_weights: tuple[float, ...] = ()

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Return the predictor of a document. Raises InvalidInputError as `read_model` does."""
        return cls.by(read_document(document))

    @classmethod
    def by(cls, read: ModelDocument) -> Self:
        """Return the predictor of a document that was read. Raises InvalidInputError as `model_of` does."""
        return cls(
            read.study, model_of(read), 0.0 if read.threshold is None else read.threshold.score, read.weights_of_classes
        )

    def check_predicts(self) -> None:
        """Raise InvalidInputError for members' models, as none predicts for all, and for statistics."""
        self.scores(np.zeros((0, self.study.n_features)))

    def scores(self, rows: FloatArray) -> FloatArray:
        """Return the scores (n,) of rows (n, d), or (n, K) for K classes.

        Raises InvalidInputError for members' models, as none predicts for all, and for statistics.
        """
        return self.model.scores(rows)

    def labels(self, scores: FloatArray) -> list[str] | list[float]:
        """Return the label of each row: one of its values, or a number within its bounds, in its unit."""
        label = self.study.label
        if isinstance(label, RealLabel):
            numbers: list[float] = label.in_units(np.clip(scores, -1.0, 1.0)).tolist()
            return numbers
        best = scores.argmax(axis=-1) if scores.ndim > 1 else (scores > self.threshold).astype(int)
        return [label.values[code] for code in best.tolist()]

    def probabilities(self, scores: FloatArray) -> FloatArray | None:
        """Return the probability (n, K) of each value of the label, or None if the loss does not fit probabilities.

        It is that of the population as it is: class weights are undone (`parley.common.data.class_weights`).
        """
        scores = scores - prior_offset(self.class_weights, 1 if scores.ndim == 1 else scores.shape[-1])
        if scores.ndim > 1:
            return np.asarray(softmax(scores, axis=-1))
        if self.study.loss.kind != "logistic" or isinstance(self.study.label, RealLabel):
            return None
        return np.stack([expit(-scores), expit(scores)], axis=-1)


def predict(document: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Predict label, score and probability for each record {feature: number, text or None}.

    Of two classes the positive one is predicted where its score exceeds the document's threshold, of more the one of
    the largest score. ``score`` is that of the label, for two classes that of the positive one; ``probability`` is that
    of the same class if the loss is logistic or softmax, and None otherwise; for more than two classes
    ``probabilities`` has that of each. Probabilities are of the population, without class weights. A real label is
    predicted in its own unit. Raises InvalidInputError for a record that does not fit the study, an unknown kind of
    model, and members' models, as none predicts for all.
    """
    predictor = Predictor.of(document)
    scores = predictor.scores(rows_of(predictor.study, records))
    return list(_as_objects(predictor, scores))


def _as_objects(predictor: Predictor, scores: FloatArray) -> Iterator[dict[str, Any]]:
    """Yield predictions as JSON objects."""
    labels, chances = predictor.labels(scores), predictor.probabilities(scores)
    several = scores.ndim > 1
    for i, label in enumerate(labels):
        row = None if chances is None else chances[i]
        yield {
            "label": label,
            "score": float(scores[i].max()),
            "probability": None if row is None else float(row[scores[i].argmax() if several else -1]),
            "probabilities": _by_value(predictor, row) if several and row is not None else None,
        }


def _by_value(predictor: Predictor, chances: FloatArray) -> dict[str, float]:
    """Return the probability of each value of the label."""
    assert not isinstance(predictor.study.label, RealLabel)  # noqa: S101 -- a real label has no probabilities
    return dict(zip(predictor.study.label.values, chances.tolist(), strict=True))
