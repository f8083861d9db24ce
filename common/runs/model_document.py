"""A trained model as a JSON document, complete enough to predict with, and predictions from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import ValidationError
from scipy.special import expit, softmax

from common.arrays import FloatArray
from common.data.columns import Label, RealLabel
from common.data.records import rows_of
from common.data.study import Study
from common.errors import InvalidInputError
from common.learning.losses import build_loss
from common.learning.model import KINDS, Model
from common.runs.specification import RunSpec
from common.strict import faults

FORMAT = "parley-model-2"


def model_document(
    spec: RunSpec, guarantees: Sequence[Mapping[str, Any]], model: Model, contributors: Sequence[str]
) -> dict[str, Any]:
    """A run's model: weights and their kind, how to make a row of a record, what was run, and what it promised.

    ``contributors`` are the names of the parties in the last round. ``weights`` are one number for each of
    ``column_names``, or a row of them for each of ``classes``; they belong to rows in the study's design.
    """
    study = spec.study
    return {
        "format": FORMAT,
        "kind": model.kind,
        "weights": model.weights.tolist(),
        "column_names": list(study.column_names),
        "classes": list(study.label.values) if isinstance(study.label, Label) else None,
        "study": study.model_dump(mode="json"),
        "study_digest": study.digest,
        "spec_digest": spec.digest,
        "algorithm": spec.algorithm,
        "parameters": dict(spec.parameters),
        "rounds": len(spec.questions()),
        "public": spec.public and spec.public.model_dump(mode="json"),
        "contributors": list(contributors),
        "adjacency": spec.build().adjacency,
        "guarantees": [dict(guarantee) for guarantee in guarantees],
    }


def read_model(document: Mapping[str, Any]) -> tuple[Study, Model]:
    """The study and the model of a document; raises InvalidInputError for one of an unknown format or kind.

    Also for a study that is none, or weights that do not fit it.
    """
    if (found := document.get("format")) != FORMAT:
        raise InvalidInputError(f"the model's format must be {FORMAT!r}, not {found!r}")
    if not isinstance(kind := document.get("kind"), str) or kind not in KINDS:
        raise InvalidInputError(f"unknown kind of model {kind!r}; there are {', '.join(KINDS)}")
    try:
        study = Study.model_validate(document.get("study"))
        model = Model(np.array(document.get("weights"), dtype=np.float64), kind)
    except ValidationError as error:
        raise InvalidInputError(f"the model's study: {faults(error)}") from None
    except (TypeError, ValueError):
        raise InvalidInputError("the model's weights are not an array of numbers") from None
    outputs = () if build_loss(study).outputs == 1 else (study.n_classes,)
    if any(member.weights.shape != (*outputs, study.n_features) for member in model.members):
        raise InvalidInputError("the model's weights are not of the shape that its study has")
    return study, model


def predict(document: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Label, score and probability for each record {feature: number, text or None}.

    ``score`` is that of the label, of two classes that of the positive one; ``probability`` likewise, if the loss is
    logistic or softmax, and None otherwise; of more than two classes ``probabilities`` has each one's. A real label is
    predicted in its own unit. Raises InvalidInputError for a record that does not fit the study, an unknown kind of
    model, and members' models, of which none predicts for all.
    """
    study, model = read_model(document)
    scores = model.scores(rows_of(study, records))
    return list(_classes(study, scores) if model.kind == "softmax" else _labels(study, scores))


def _labels(study: Study, scores: FloatArray) -> Iterator[dict[str, Any]]:
    """What scores (n,) predict: a value of the label, or a number between its bounds."""
    probabilities = expit(scores).tolist() if study.loss.kind == "logistic" else [None] * len(scores)
    for score, probability in zip(scores.tolist(), probabilities, strict=True):
        yield {"label": _label(study, score), "score": score, "probability": probability, "probabilities": None}


def _label(study: Study, score: float) -> str | float:
    """A value of the label, or a number between its bounds."""
    if isinstance(study.label, RealLabel):
        return float(study.label.in_units(np.clip(score, -1.0, 1.0)))
    return study.label.values[1 if score > 0 else 0]


def _classes(study: Study, scores: FloatArray) -> Iterator[dict[str, Any]]:
    """What scores (n, K) predict: the class of the largest."""
    assert isinstance(study.label, Label)  # noqa: S101 -- a softmax has classes
    for row, probabilities in zip(scores, softmax(scores, axis=-1), strict=True):
        best = int(row.argmax())
        yield {
            "label": study.label.values[best],
            "score": float(row[best]),
            "probability": float(probabilities[best]),
            "probabilities": dict(zip(study.label.values, probabilities.tolist(), strict=True)),
        }
