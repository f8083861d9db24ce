"""Exports a model to files that other tools load: ONNX, or a scikit-learn pipeline by skops."""
# ruff: noqa: PLC0415 -- each format needs packages of the extra `export`, and not those of the other

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from parley.common.data.columns import Category
from parley.common.data.records import rows_of
from parley.common.errors import InvalidInputError
from parley.common.extras import require_extra

if TYPE_CHECKING:
    from parley.common.data.study import Study
    from parley.common.runs.predictions import Predictor

_CLOSE = 1e-6
_TRUSTED = {"numpy.dtype"}
"""Types in a pipeline that skops trusts only if they are named: they are data, and run no code."""


def check_portable(predictor: Predictor) -> None:
    """Raise InvalidInputError for a model that cannot be exported.

    Such are members' models and statistics, which predict for nobody, and models of sparse features, whose rows are
    lists, not columns.
    """
    if predictor.study.sparse:
        raise InvalidInputError("a model of sparse features cannot be exported: its rows are lists, not columns")
    predictor.check_predicts()


def onnx_bytes(predictor: Predictor) -> tuple[bytes, str]:
    """Return an ONNX file, and how it was checked: by ONNX and, if it is installed, by ONNX Runtime on made rows.

    Raises the errors of `onnx_model`, and InvalidInputError if the file predicts other values or the extra is missing.
    """
    require_extra("export", "an ONNX file")
    from parley.learner.models.onnx_graph import onnx_model

    content: bytes = onnx_model(predictor).SerializeToString()
    if find_spec("onnxruntime") is None:
        return content, "checked by onnx; install onnxruntime to compare predictions too"
    _compare(predictor, content)
    return content, "checked by onnx, and by onnxruntime on made rows"


def skops_bytes(predictor: Predictor) -> tuple[bytes, str]:
    """Return a skops file of a scikit-learn pipeline, and how to load it.

    Raises the errors of `sklearn_pipeline`, and InvalidInputError if the extra is missing.
    """
    require_extra("export", "a skops file")
    import skops.io

    from parley.learner.models.sklearn_pipeline import sklearn_pipeline

    content: bytes = skops.io.dumps(sklearn_pipeline(predictor))
    named = sorted(_TRUSTED & set(skops.io.get_untrusted_types(data=content)))
    return content, f"load it by skops.io.load(file, trusted={named}): scikit-learn's own parts, no pickle"


def _compare(predictor: Predictor, content: bytes) -> None:
    """Raise InvalidInputError if ONNX Runtime's predictions for made rows differ from Parley's."""
    import onnxruntime

    study = predictor.study
    records = [made_record(study, i) for i in range(5)]
    scores = predictor.scores(rows_of(study, records))
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    columns: dict[str, npt.NDArray[Any]] = {
        feature.name: np.array([[record[feature.name]] for record in records], dtype=_dtype(feature))
        for feature in study.named
    }
    predicted, *chances = session.run(None, columns)
    labels, expected = predictor.labels(scores), predictor.probabilities(scores)
    if isinstance(labels[0], str):
        agrees = list(predicted) == labels
    else:
        agrees = bool(np.allclose(predicted, np.array(labels), rtol=_CLOSE, atol=_CLOSE))
    if not agrees or (expected is not None and not np.allclose(chances[0], expected, rtol=0, atol=_CLOSE)):
        raise InvalidInputError("onnxruntime predicts otherwise than Parley: nothing was written")


def _dtype(feature: object) -> type:
    return object if isinstance(feature, Category) else np.float64


def made_record(study: Study, i: int) -> dict[str, Any]:
    """Make a record of a study's features, another for each i from 0: values within their bounds, or beyond."""
    return {feature.name: _made(feature, i) for feature in study.named}


def _made(feature: Any, i: int) -> object:  # noqa: ANN401 -- a number or a category
    """Make a value of a feature for row i, within its bounds or beyond."""
    if isinstance(feature, Category):
        return feature.values[i % len(feature.values)]
    return feature.lower + (feature.upper - feature.lower) * (i / 3 - 0.1)
