"""A trained model as a JSON document, complete enough to predict with, and predictions from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import expit

from common.arrays import FloatArray
from common.data.columns import RealLabel
from common.data.study import Study
from common.errors import InvalidInputError
from common.learning.model import Model
from common.runs.specification import RunSpec

FORMAT = "parley-model-1"


def model_document(
    spec: RunSpec, guarantees: Sequence[Mapping[str, Any]], model: Model, contributors: Sequence[str]
) -> dict[str, Any]:
    """A run's model: weights, how to scale a record for them, what was run, and what it promised its parties.

    ``contributors`` are the names of the parties in the last round. ``weights`` has one number a feature, in order,
    and one more for the intercept if the study has one; they belong to rows scaled as `common.data.study` says.
    """
    return {
        "format": FORMAT,
        "weights": model.weights.tolist(),
        "feature_names": list(spec.study.feature_names),
        "intercept": spec.study.intercept,
        "study": spec.study.model_dump(mode="json"),
        "study_digest": spec.study.digest,
        "spec_digest": spec.digest,
        "algorithm": spec.algorithm,
        "parameters": dict(spec.parameters),
        "rounds": len(spec.questions()),
        "contributors": list(contributors),
        "guarantees": [dict(guarantee) for guarantee in guarantees],
    }


def predict(document: Mapping[str, Any], records: Sequence[Mapping[str, float]]) -> list[dict[str, Any]]:
    """Score and label for each record {feature: value}, and the probability of the positive label.

    The probability is the logistic loss's; other losses fit none, and it is None. A real label is predicted in its own
    unit. Raises InvalidInputError for a record without a feature or with one that is not finite, and for a model that
    is not a single vector.
    """
    study, weights = Study.model_validate(document["study"]), np.array(document["weights"])
    if weights.shape != (study.n_features,):
        raise InvalidInputError("the run trained several models, one a party; none of them predicts for all")
    scores: FloatArray = study.rows(records) @ weights
    probabilities = expit(scores).tolist() if study.loss.kind == "logistic" else [None] * len(scores)
    return [
        {"score": score, "label": _label(study, score), "probability": probability}
        for score, probability in zip(scores.tolist(), probabilities, strict=True)
    ]


def _label(study: Study, score: float) -> str | float:
    """What a score predicts: a value of the label, or a number between its bounds."""
    if isinstance(study.label, RealLabel):
        lower, upper = study.label.lower, study.label.upper
        return lower + (min(max(score, -1.0), 1.0) + 1) / 2 * (upper - lower)
    return study.label.values[1 if score > 0 else 0]
