"""Logs a model's document in MLflow: parameters, metrics, files, and a model that predicts with Parley.

The MLflow model holds the document, and no pickle: MLflow loads it by this module's `_load_pyfunc`.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from parley.common import parley_version
from parley.common.data.columns import Label
from parley.common.data.records import rows_of
from parley.common.data.study import Study
from parley.common.encoding.number_lines import document_lines
from parley.common.errors import InvalidInputError
from parley.common.extras import require_extra
from parley.common.learning.evaluation import FigureEstimate
from parley.common.learning.threshold import at_threshold
from parley.common.runs.evaluation import RunEvaluation
from parley.common.runs.model_document import ModelDocument, read_document
from parley.common.runs.predictions import Predictor
from parley.learner.models.card import model_card
from parley.learner.models.exported import check_portable, made_record, onnx_bytes, skops_bytes
from parley.learner.models.model_files import read_model_file
from parley.learner.models.verification import verification_of

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.models import ModelSignature

_REFUSED = re.compile(r"[^\w. -]")
"""Characters that MLflow refuses in a metric's name, and ``/``, which groups them."""
_PREDICTION = "prediction"
_EXPORTS = {"model.onnx": onnx_bytes, "model.skops": skops_bytes}


def log_document(document: Mapping[str, Any], *, name: str = "model", registered_name: str | None = None) -> str:
    """Log a model's document to MLflow's active run, or to a new one, and return that run's identifier.

    ``name`` is the MLflow model's, which is also registered as ``registered_name`` if that is given. A document that
    predicts for nobody is logged without a model. Raises InvalidInputError for what is no document, MissingExtraError
    without the extra ``mlflow``, and MLflow's own errors.
    """
    require_extra("mlflow", "a log in MLflow")
    import mlflow  # noqa: PLC0415 -- of the extra `mlflow`

    read = read_document(document)
    active = mlflow.active_run()
    with (
        TemporaryDirectory() as folder,
        nullcontext(active) if active else mlflow.start_run(run_name=read.study.name) as run,
    ):
        mlflow.log_params(dict(_parameters(read)))
        mlflow.log_metrics(dict(_metrics(read)))
        files = Path(folder)
        _write(document, read, files)
        mlflow.log_artifacts(str(files))
        if read.kind in {"linear", "softmax"}:
            predictor = Predictor.of(document)
            mlflow.pyfunc.log_model(
                name=name,
                loader_module=__name__,
                data_path=str(files / "document.json"),
                signature=_signature(predictor),
                input_example=_example(predictor.study),
                pip_requirements=[f"parley-learning[mlflow]=={parley_version()}"],
                registered_model_name=registered_name,
            )
        run_id: str = run.info.run_id
    return run_id


def _parameters(read: ModelDocument) -> Iterator[tuple[str, object]]:
    """Yield what made the model, by MLflow's names."""
    yield "algorithm", read.algorithm
    yield "study", read.study.name
    yield "study_digest", read.study_digest
    yield "spec_digest", read.spec_digest
    yield "rounds", read.rounds
    yield "adjacency", read.adjacency
    yield "contributors", ", ".join(read.contributors)
    if read.certificate is not None:
        yield "run", read.certificate.run
    for promise in read.guarantees[:1]:
        yield "epsilon", promise.epsilon
        yield "delta", promise.delta
    if read.threshold is not None:
        yield "threshold", read.threshold.rule
        yield "threshold_score", read.threshold.score
    for name, value in read.parameters.items():
        yield f"parameter.{_spelt(name)}", value


def _metrics(read: ModelDocument) -> Iterator[tuple[str, float]]:
    """Yield the price of the model, and the figures of its evaluation at its threshold with their intervals' ends."""
    for promise in read.guarantees:
        if promise.epsilon is not None:
            yield f"epsilon/{promise.view}/{promise.calibration}", promise.epsilon
    if read.evaluation is None:
        return
    yield "evaluation/epsilon", read.evaluation.epsilon
    yield "evaluation/rows", read.evaluation.rows
    stated = at_threshold(read.model_dump(mode="json", include={"evaluation", "threshold", "study"}))
    for name, value in dict(RunEvaluation.model_validate_json(json.dumps(stated))).items():
        by_class = value if isinstance(value, dict) else {"": value}
        for key, figure in by_class.items():
            if isinstance(figure, FigureEstimate):
                yield from _of_figure("/".join(filter(None, (name, _spelt(key)))), figure)


def _of_figure(name: str, figure: FigureEstimate) -> Iterator[tuple[str, float]]:
    """Yield a figure and its interval's ends, but for what noise leaves unknown."""
    for ending, number in (("", figure.estimate), (".low", figure.low), (".high", figure.high)):
        if number is not None:
            yield f"{name}{ending}", number


def _spelt(text: str) -> str:
    """Return a text as a part of a metric's name: signs that MLflow refuses are named, so that no two are alike.

    >>> _spelt("<=50K")
    'less-than sign equals sign 50K'
    """
    return _REFUSED.sub(lambda sign: f"{unicodedata.name(sign[0], hex(ord(sign[0]))).lower()} ", text)


def _write(document: Mapping[str, Any], read: ModelDocument, folder: Path) -> None:
    """Write the files that go with a model into a folder."""
    with (folder / "document.json").open("w", encoding="utf-8") as file:
        file.writelines(document_lines(document))
    (folder / "card.md").write_text(model_card(document, verification_of(document)), encoding="utf-8")
    for name in ("evaluation", "certificate"):
        if (part := getattr(read, name)) is not None:
            stated = part.model_dump(mode="json", exclude_unset=True)
            (folder / f"{name}.json").write_text(json.dumps(stated, indent=2) + "\n", encoding="utf-8")
    with suppress(InvalidInputError):  # not every model can be exported, nor does everyone have the extra
        predictor = Predictor.of(document)
        check_portable(predictor)
        for name, export in _EXPORTS.items():
            with suppress(InvalidInputError):
                (folder / name).write_bytes(export(predictor)[0])


def _signature(predictor: Predictor) -> ModelSignature | None:
    """Return the columns that a model takes and returns; None for sparse features, whose rows are lists.

    MLflow takes no whole number for a ``double``, so that a feature may be of any type: Parley checks each cell itself.
    """
    from mlflow.models import ModelSignature  # noqa: PLC0415 -- as above
    from mlflow.types import ColSpec, Schema, TensorSpec  # noqa: PLC0415 -- as above
    from mlflow.types.schema import AnyType  # noqa: PLC0415 -- as above

    study = predictor.study
    if study.sparse:
        return None
    anything = AnyType()  # type: ignore[no-untyped-call]
    given: list[ColSpec | TensorSpec] = [
        ColSpec(anything, feature.name, required=feature.fill is None) for feature in study.named
    ]
    returned: list[ColSpec | TensorSpec] = [
        ColSpec("string" if isinstance(study.label, Label) else "double", _PREDICTION)
    ]
    if predictor.probabilities(predictor.scores(np.zeros((0, study.n_features)))) is not None:
        returned += [ColSpec("double", name) for name in _chances(study)]
    return ModelSignature(Schema(given), Schema(returned))


def _example(study: Study) -> pd.DataFrame | None:
    """Return a made row as an example of what a model takes; None for sparse features."""
    import pandas as pd  # noqa: PLC0415 -- as above

    return None if study.sparse else pd.DataFrame([made_record(study, 1)])


class PyfuncModel:
    """A document's model as MLflow asks it."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor

    def predict(self, rows: Any) -> pd.DataFrame:  # noqa: ANN401 -- a data frame, or what makes one
        """Return a row's prediction, and the probability of each value of the label, where its loss fits them.

        Raises InvalidInputError that names the first row that does not fit the study, from 0.
        """
        import pandas as pd  # noqa: PLC0415 -- of the extra `mlflow`

        frame = pd.DataFrame(rows).astype(object)
        records = frame.where(frame.notna(), None).to_dict("records")
        scores = self._predictor.scores(rows_of(self._predictor.study, records))
        chances = self._predictor.probabilities(scores)
        columns: dict[str, Any] = {_PREDICTION: self._predictor.labels(scores)}
        if chances is not None:
            columns |= zip(_chances(self._predictor.study), chances.T, strict=True)
        return pd.DataFrame(columns, index=frame.index)


def _chances(study: Study) -> list[str]:
    """Return the names of the columns of probabilities."""
    label = study.label
    return [f"P({value})" for value in label.values] if isinstance(label, Label) else []  # noqa: PD011 -- no data frame


def _load_pyfunc(path: str) -> PyfuncModel:
    """Return the model of a document's file: MLflow calls this by its name."""
    return PyfuncModel(Predictor.of(read_model_file(Path(path))))
