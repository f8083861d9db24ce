"""A model that was taken away predicts as it did: ONNX Runtime and scikit-learn say what ``predict`` says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
import pandas as pd
import pytest
import skops.io
from onnx import TensorProto

from parley.common.data.cells import MISSING_TEXTS
from parley.common.data.columns import Category, Feature, Label, RealLabel, SparseFeatures
from parley.common.data.records import rows_of_columns
from parley.common.data.study import (
    AnyLoss,
    HingeLoss,
    HuberLoss,
    LogisticLoss,
    Projection,
    RandomFeatures,
    SoftmaxLoss,
    SquaredLoss,
    Study,
)
from parley.common.errors import InvalidInputError
from parley.common.runs.predictions import Predictor
from parley.learner.models import exported
from parley.learner.models import sklearn_pipeline as sklearn_module
from parley.learner.models.exported import check_portable
from parley.learner.models.onnx_graph import onnx_model
from parley.learner.models.sklearn_pipeline import sklearn_pipeline
from tests.support.models import document_of

pytestmark = pytest.mark.long

N = 10_000
FEATURES = (
    Category(name="ward", values=("north", "007", "a b"), other=True, fill="other"),
    Feature(name="age", lower=0, upper=100, missing="value", fill=40),
    Feature(name="dose", lower=-1, upper=1),
    Category(name="sex", values=("f", "m")),
    Feature(name="weight in kg", lower=1.5, upper=7e3, fill=70.1),
    Category(name="site", values=("x",), other=True),
)
TWO, THREE, REAL = (
    Label(name="ill", values=("no", "yes")),
    Label(name="kind", values=("c", "a", "b")),
    RealLabel(name="rate", lower=10, upper=30),
)
WIDTH = 11
RNG = np.random.default_rng(3)
PROJECTION = Projection.of(np.full(WIDTH, 0.25), np.linalg.qr(RNG.normal(size=(WIDTH, 4)))[0].T, 1.2)
WAVES = RandomFeatures(n=16, seed=5, gamma=0.3)


def study_of(label: Label | RealLabel, loss: AnyLoss, **more: object) -> Study:
    return Study.model_validate({"name": "s", "features": FEATURES, "label": label, "loss": loss} | more)


def portable_predictor(document: dict[str, Any]) -> Predictor:
    predictor = Predictor.of(document)
    check_portable(predictor)
    return predictor


def table(n: int = N) -> pd.DataFrame:
    """Rows with values that are missing, not declared, at and beyond the bounds."""
    rng = np.random.default_rng(7)

    def texts(*values: object) -> Any:  # noqa: ANN401 -- what pandas reads of a file
        return rng.choice(np.array(values, dtype=object), n)

    return pd.DataFrame(
        {
            "sex": texts("f", "m"),
            "ward": texts("north", "007", "a b", "other", "elsewhere", math.nan),
            "age": rng.choice([-5.0, 0.0, 25.0, 50.0, 100.0, 1e300, math.nan, 33.3], n),
            "dose": np.where(rng.random(n) < 0.3, 0.5, rng.normal(size=n)),
            "weight in kg": np.where(rng.random(n) < 0.1, math.nan, rng.uniform(-10, 9000, n)),
            "site": texts("x", "y"),
            "not asked": 1,
        }
    )


def expected_of(predictor: Predictor, frame: pd.DataFrame) -> tuple[list[Any], Any]:
    block = {column.name: frame[column.name].to_numpy(dtype=object) for column in predictor.study.named}
    scores = predictor.scores(rows_of_columns(predictor.study, block, len(frame)))
    return list(predictor.labels(scores)), predictor.probabilities(scores)


def by_onnx(predictor: Predictor, frame: pd.DataFrame) -> dict[str, Any]:
    session = ort.InferenceSession(onnx_model(predictor).SerializeToString(), providers=["CPUExecutionProvider"])
    columns = {
        each.name: (frame[each.name].fillna("").astype(object) if "string" in each.type else frame[each.name])
        .to_numpy()
        .reshape(-1, 1)
        for each in session.get_inputs()
    }
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, columns), strict=True))


def by_sklearn(predictor: Predictor) -> Any:  # noqa: ANN401 -- scikit-learn has no types
    """The pipeline as one loads it who trusts no type but NumPy's own."""
    return skops.io.loads(skops.io.dumps(sklearn_pipeline(predictor)), trusted=["numpy.dtype"])


def same(found: Any, expected: tuple[list[Any], Any], chances: Callable[[], Any]) -> None:  # noqa: ANN401
    labels, probabilities = expected
    if isinstance(labels[0], str):
        assert list(found) == labels
        assert len(set(labels)) > 1
    else:
        assert np.abs(found - np.array(labels)).max() < 1e-6
        assert np.ptp(found) > 1
    if probabilities is not None:
        assert np.abs(chances() - probabilities).max() < 1e-6


STUDIES = [
    study_of(TWO, LogisticLoss()),
    study_of(TWO, LogisticLoss(), row_norm="largest"),
    study_of(TWO, LogisticLoss(), intercept=False, norm="max"),
    study_of(TWO, HuberLoss()),
    study_of(TWO, HingeLoss(), intercept=False),
    study_of(TWO, SquaredLoss()),
    study_of(TWO, SoftmaxLoss()),
    study_of(THREE, SoftmaxLoss()),
    study_of(REAL, SquaredLoss()),
    study_of(REAL, SquaredLoss(), random_features=WAVES),
    study_of(THREE, SoftmaxLoss(), random_features=WAVES, intercept=False),
]
ONNX_ALONE = [
    study_of(TWO, LogisticLoss(), row_norm=1.5),
    study_of(THREE, SoftmaxLoss(), projection=PROJECTION),
    study_of(REAL, SquaredLoss(), projection=PROJECTION, random_features=WAVES, row_norm=1.1),
]


@pytest.mark.parametrize("study", [*STUDIES, *ONNX_ALONE])
def test_onnx_predicts_as_predict_does(study: Study) -> None:
    predictor, frame = portable_predictor(document_of(study)), table()
    found = by_onnx(predictor, frame)
    expected = expected_of(predictor, frame)
    same(found["prediction"], expected, lambda: found["probabilities"])
    assert ("probabilities" in found) == (expected[1] is not None)


@pytest.mark.parametrize("study", STUDIES)
def test_scikit_learn_predicts_as_predict_does(study: Study) -> None:
    predictor, frame = portable_predictor(document_of(study)), table()
    pipeline = by_sklearn(predictor)
    expected = expected_of(predictor, frame)
    same(pipeline.predict(frame), expected, lambda: pipeline.predict_proba(frame))
    assert hasattr(pipeline, "predict_proba") == (expected[1] is not None)


def corners(study: Study, n: int = 200) -> pd.DataFrame:
    """Rows whose numbers are bounds or halfway between them: all at a bound in the first half."""
    rng = np.random.default_rng(11)
    columns: dict[str, Any] = {}
    for column in study.named:
        if isinstance(column, Category):
            columns[column.name] = rng.choice(np.array(column.column_values, dtype=object), n)
        elif isinstance(column, Feature):
            middle = column.lower / 2 + column.upper / 2
            columns[column.name] = rng.choice([column.lower, column.upper, middle], n)
            columns[column.name][: n // 2] = rng.choice([column.lower, column.upper], n // 2)
    return pd.DataFrame(columns)


@pytest.mark.parametrize(
    "row_norm", ["own", 0.5, *(pytest.param(norm, marks=pytest.mark.slow) for norm in ("largest", 1.0, 1.5))]
)
def test_predictions_are_alike_at_the_corners_of_the_bounds(row_norm: object) -> None:
    rng, worst = np.random.default_rng(12), 0.0
    for n in (
        1,
        3,
        7,
        8,
        15,
        19,
    ):  # of 8 the constant of a real label rounds to less than 1/2, of 15 all numbers are 1/4
        for label, loss in ((TWO, LogisticLoss()), (REAL, SquaredLoss()), (THREE, SoftmaxLoss())):
            for more in ({}, {"intercept": False}):
                numbers = [Feature(name=f"x{j}", lower=float(rng.normal()), upper=1000.0) for j in range(n)]
                features = (*numbers, *((FEATURES[-1],) if n % 2 else ()))
                study = Study.model_validate(
                    {"name": "s", "features": features, "label": label, "loss": loss, "row_norm": row_norm} | more
                )
                predictor, frame = Predictor.of(document_of(study)), corners(study)
                labels, chances = expected_of(predictor, frame)
                found = by_onnx(predictor, frame)
                others = [(found["prediction"], found.get("probabilities"))]
                if isinstance(row_norm, str):
                    pipeline = by_sklearn(predictor)
                    others.append((pipeline.predict(frame), None if chances is None else pipeline.predict_proba(frame)))
                for told, told_chances in others:
                    if chances is None:
                        differences = (np.asarray(told) - np.array(labels)) / (REAL.upper - REAL.lower)
                    else:
                        differences = np.asarray(told_chances) - chances
                    worst = max(worst, float(np.abs(differences).max()))
    print(f"row_norm = {row_norm}: the largest difference at the corners is {worst:.1e}")
    assert worst < 1e-6


UNFIT: list[tuple[str, object]] = [("dose", math.nan), ("sex", "x"), ("sex", math.nan), ("site", math.nan)]


@pytest.mark.parametrize(("column", "value"), UNFIT)
def test_a_row_without_a_place_has_no_prediction(column: str, value: object) -> None:
    frame = table(3)
    frame.loc[1, column] = value
    for study in (STUDIES[0], STUDIES[8]):
        predictor = portable_predictor(document_of(study))
        found = by_onnx(predictor, frame)
        if study.label is TWO:
            assert [bool(each) for each in found["prediction"]] == [True, False, True]
            assert np.isnan(found["probabilities"]).all(axis=1).tolist() == [False, True, False]
        else:
            assert np.isnan(found["prediction"]).tolist() == [False, True, False]
        pipeline = by_sklearn(predictor)
        assert len(pipeline.predict(frame.drop(index=1))) == 2
        with pytest.raises(ValueError, match=r"NaN|missing|unknown categories"):
            pipeline.predict(frame)


def test_onnx_reads_texts_that_mean_a_missing_value_as_such() -> None:
    predictor, frame = portable_predictor(document_of(STUDIES[0])), table(2)
    frame["ward"] = ["NA", "null"]
    frame["site"] = ["x", "n/a"]
    assert [bool(each) for each in by_onnx(predictor, frame)["prediction"]] == [True, False]


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (document_of(STUDIES[0], kind="members", weights=[[0.0] * 12] * 2), "several models, one a party"),
        (document_of(STUDIES[0], kind="statistics", weights=[1.0]), "predict for nobody"),
        (document_of(STUDIES[0], weights=[1.0]), "not of the shape that its study has"),
        (document_of(STUDIES[0], format="parley-model-1"), "the model's format must be"),
        (document_of(STUDIES[0]) | {"study": STUDIES[7].model_dump(mode="json")}, "not of the shape"),
        (
            document_of(
                Study(name="s", features=(SparseFeatures(name="e", columns=5, entries=3),), label=TWO)
            ),
            "sparse features cannot be exported",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_away_is_refused(document: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        portable_predictor(document)


def test_an_infinite_number_is_clipped_but_by_scikit_learn() -> None:
    predictor, frame = portable_predictor(document_of(STUDIES[0])), table(2)
    frame["dose"] = [math.inf, 0.5]
    found = by_onnx(predictor, frame)
    same_chances = np.abs(found["probabilities"] - expected_of(predictor, frame)[1]).max()
    assert same_chances < 1e-6
    with pytest.raises(ValueError, match="infinity"):
        by_sklearn(predictor).predict(frame)


def test_names_of_features_are_not_the_graphs_own_and_no_type_is_trusted_without_fills() -> None:
    names = ("constant_9", "constant_10", "Sub_12", "Max_10")
    study = Study(name="s", features=tuple(Feature(name=name, lower=0, upper=1) for name in names), label=TWO)
    predictor = portable_predictor(document_of(study))
    frame = pd.DataFrame(np.random.default_rng(1).uniform(-0.5, 1.5, size=(100, 4)), columns=list(names))
    labels, _ = expected_of(predictor, frame)
    assert list(by_onnx(predictor, frame)["prediction"]) == labels
    content = skops.io.dumps(sklearn_pipeline(predictor))
    assert skops.io.get_untrusted_types(data=content) == []
    assert list(skops.io.loads(content).predict(frame)) == labels


@pytest.mark.parametrize(("study", "why"), [(ONNX_ALONE[0], "row_norm is a number"), (ONNX_ALONE[1], "a projection")])
def test_what_scikit_learn_has_no_part_for_is_refused(study: Study, why: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{why} has no scikit-learn pipeline; export it to onnx"):
        sklearn_pipeline(portable_predictor(document_of(study)))


def test_a_category_is_not_sampled_past_memory() -> None:
    many = Category(name="c", values=tuple(f"v{i}" for i in range(5000)), other=True)
    predictor = portable_predictor(document_of(Study(name="s", features=(many,), label=TWO)))
    with pytest.raises(InvalidInputError, match="a category of 5000 values and others is too large"):
        sklearn_pipeline(predictor)
    frame = pd.DataFrame({"c": ["v7", "v4999", "none"]})
    assert list(by_onnx(predictor, frame)["prediction"]) == expected_of(predictor, frame)[0]


def test_a_feature_is_not_called_as_an_output_is() -> None:
    study = Study(name="s", features=(Feature(name="prediction", lower=0, upper=1),), label=TWO)
    with pytest.raises(InvalidInputError, match="'prediction' cannot be exported"):
        onnx_model(portable_predictor(document_of(study)))


def test_the_parts_of_a_pipeline_have_names_and_say_what_they_take() -> None:
    wide = study_of(REAL, SquaredLoss(), random_features=WAVES, row_norm="own")
    parts = sklearn_pipeline(portable_predictor(document_of(wide))).named_steps
    assert list(parts) == [
        "columns", "cells", "shares", "bounds", "scaled", "angles", "waves", "norm 1", "scale", "bias", "intercept",
        *(("divided", "inside") if "divided" in parts else ()), "steps", "whole", "score", "within", "unit",
    ]  # fmt: skip
    assert [name for name, *_ in parts["cells"].transformers] == [
        *(f"0 is there {i}" for i in range(0)), "0", "1", "2", "3", "4",
        *(f"5 is there {i}" for i in range(3 + len(MISSING_TEXTS))), "5",
    ]  # fmt: skip
    assert list(dict(parts["cells"].transformers[0][1].steps)) == [str(i) for i in range(4 + len(MISSING_TEXTS))]
    assert [name for name, *_ in parts["columns"].transformers] == ["features"]
    assert parts["columns"].feature_names_in_.tolist() == [feature.name for feature in FEATURES]
    assert parts["columns"].texts_ == ["ward", "sex", "site"]
    n = wide.n_columns
    taken = {name: parts[name].n_features_in_ for name in ("shares", "bounds", "scaled", "angles", "unit")}
    assert taken == {"shares": n, "bounds": n, "scaled": n, "angles": n, "unit": 1}
    assert parts["score"].n_features_in_ == wide.n_features
    assert parts["shares"].var_.tolist() == (parts["shares"].scale_ ** 2).tolist()
    assert [name for name, _ in parts["waves"].transformer_list] == ["cosine", "sine"]
    own = study_of(TWO, LogisticLoss(), intercept=False)
    parts = sklearn_pipeline(portable_predictor(document_of(own))).named_steps
    assert list(parts) == [
        "columns", "cells", "shares", "bounds", "scaled", "divided", "inside", "steps", "whole", "score",
    ]  # fmt: skip
    assert parts["score"].classes_.tolist() == ["no", "yes"]
    assert parts["score"].intercept_.tolist() == [0.0]
    assert parts["inside"].scale_.tolist() == [1 - 2.0**-30] * own.n_features


def test_a_prediction_of_a_number_stays_within_its_bounds() -> None:
    study = Study(name="s", features=(Feature(name="x", lower=0, upper=1),), label=REAL)
    predictor = portable_predictor(document_of(study) | {"weights": [30.0, 0.0]})
    frame = pd.DataFrame({"x": [0.0, 0.5, 1.0]})
    labels, _ = expected_of(predictor, frame)
    assert labels == [10.0, 20.0, 30.0]
    assert by_sklearn(predictor).predict(frame) == pytest.approx(labels)
    assert by_onnx(predictor, frame)["prediction"] == pytest.approx(labels)


def test_a_pipeline_is_refused_from_the_first_number_past_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study(name="s", features=(FEATURES[0], FEATURES[3]), label=TWO)
    predictor = portable_predictor(document_of(study))
    monkeypatch.setattr(sklearn_module, "_MOST_NUMBERS", 2 * 3 * study.n_columns)
    assert sklearn_pipeline(predictor)
    monkeypatch.setattr(sklearn_module, "_MOST_NUMBERS", 2 * 3 * study.n_columns - 1)
    with pytest.raises(InvalidInputError) as refused:
        sklearn_pipeline(predictor)
    assert refused.value.detail == (
        "a category of 3 values and others is too large for a scikit-learn pipeline; export the model to onnx"
    )


def test_a_file_that_predicts_otherwise_is_not_written() -> None:
    for study, weights in ((STUDIES[0], 1.0), (STUDIES[7], 1.0), (STUDIES[8], 0.01)):
        predictor = portable_predictor(document_of(study))
        content = onnx_model(predictor).SerializeToString()
        exported._compare(predictor, content)
        scale = np.array(document_of(study)["weights"]) * weights
        other = portable_predictor(document_of(study) | {"weights": (scale * 1.001).tolist()})
        with pytest.raises(InvalidInputError, match="onnxruntime predicts otherwise than Parley: nothing was written"):
            exported._compare(other, content)


def test_rows_are_made_within_the_bounds_and_beyond() -> None:
    dose = Feature(name="dose", lower=-3, upper=3)
    assert [exported._made(dose, i) for i in range(5)] == pytest.approx([-3.6, -1.6, 0.4, 2.4, 4.4])
    assert [exported._made(FEATURES[0], i) for i in range(5)] == ["north", "007", "a b", "north", "007"]
    assert exported._dtype(FEATURES[0]) is object
    assert exported._dtype(dose) is np.float64


def test_a_graph_says_what_it_is_and_takes_each_feature_by_name() -> None:
    made = onnx_model(portable_predictor(document_of(STUDIES[0])))
    assert (made.ir_version, made.producer_name, made.graph.name) == (9, "parley", "parley")
    assert {each.domain: each.version for each in made.opset_import} == {"": 17, "ai.onnx.ml": 3}
    assert {each.key: each.value for each in made.metadata_props} == {
        "study": STUDIES[0].name, "study_digest": STUDIES[0].digest,
    }  # fmt: skip
    texts = {"ward", "sex", "site"}
    for given in made.graph.input:
        kind = TensorProto.STRING if given.name in texts else TensorProto.DOUBLE
        assert given.type.tensor_type.elem_type == kind
        rows, one = given.type.tensor_type.shape.dim
        assert (rows.dim_param, one.dim_value) == ("rows", 1)
    assert [given.name for given in made.graph.input] == [feature.name for feature in FEATURES]
    assert [given.name for given in made.graph.output] == ["prediction", "probabilities"]
    names = [node.output[0] for node in made.graph.node]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", ["prediction", "probabilities"])
def test_a_feature_with_the_name_of_an_output_is_refused_in_full(name: str) -> None:
    study = Study(name="s", features=(Feature(name=name, lower=0, upper=1),), label=TWO)
    with pytest.raises(InvalidInputError) as refused:
        onnx_model(portable_predictor(document_of(study)))
    assert refused.value.detail == (f"the feature {name!r} cannot be exported: an output of the graph is called that")
