"""A model that was taken away predicts as it did: ONNX Runtime and scikit-learn say what ``predict`` says."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnxruntime as ort
import pandas as pd
import pytest
import skops.io

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


def scores_of(predictor: Predictor, frame: pd.DataFrame) -> Any:  # noqa: ANN401 -- an array
    block = {column.name: frame[column.name].to_numpy(dtype=object) for column in predictor.study.named}
    return predictor.scores(rows_of_columns(predictor.study, block, len(frame)))


def expected_of(predictor: Predictor, frame: pd.DataFrame) -> tuple[list[Any], Any]:
    scores = scores_of(predictor, frame)
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


@pytest.mark.parametrize("study", [STUDIES[0], STUDIES[4]])
def test_exported_models_predict_by_the_threshold_and_keep_their_probabilities(study: Study) -> None:
    threshold = {"rule": "f1", "score": -0.4, "estimated": True}
    predictor, frame = portable_predictor(document_of(study, threshold=threshold)), table()
    expected = expected_of(predictor, frame)
    assert expected[0] != expected_of(portable_predictor(document_of(study)), frame)[0]
    found, pipeline = by_onnx(predictor, frame), by_sklearn(predictor)
    same(found["prediction"], expected, lambda: found["probabilities"])
    same(pipeline.predict(frame), expected, lambda: pipeline.predict_proba(frame))
    assert np.abs(pipeline.decision_function(frame) - scores_of(predictor, frame)).max() < 1e-6
    assert list(pipeline.classes_) == ["no", "yes"]
    frame.loc[1, "sex"] = "x"
    assert by_onnx(predictor, frame)["prediction"][1] == ""


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


MORE_NORMS = [pytest.param(norm, marks=pytest.mark.slow) for norm in ("largest", 1.0, 1.5)]


@pytest.mark.parametrize("row_norm", ["own", 0.5, *MORE_NORMS])
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


def test_class_weights_are_undone_in_exported_probabilities_and_change_no_label() -> None:
    frame = table(500)
    for study in (study_of(TWO, LogisticLoss()), study_of(TWO, SoftmaxLoss())):
        predictor = portable_predictor(document_of(study, class_weights={"no": 0.1, "yes": 1.0}))
        expected, made = expected_of(predictor, frame), by_onnx(predictor, frame)
        plain = expected_of(portable_predictor(document_of(study)), frame)
        assert expected[0] == plain[0]
        assert expected[1][:, 1].mean() < plain[1][:, 1].mean()
        same(made["prediction"], expected, partial(made.get, "probabilities"))
        pipeline = by_sklearn(predictor)
        same(pipeline.predict(frame), expected, partial(pipeline.predict_proba, frame))
    rule = {"rule": "f1", "score": -0.4, "estimated": True}
    both = document_of(study_of(TWO, LogisticLoss()), class_weights={"no": 0.1, "yes": 1.0}, threshold=rule)
    predictor = portable_predictor(both)
    expected, made, pipeline = expected_of(predictor, frame), by_onnx(predictor, frame), by_sklearn(predictor)
    same(made["prediction"], expected, partial(made.get, "probabilities"))
    same(pipeline.predict(frame), expected, partial(pipeline.predict_proba, frame))
    three = document_of(study_of(THREE, SoftmaxLoss()), class_weights={"c": 1.0, "a": 0.2, "b": 0.0})
    predictor = portable_predictor(three)
    made = by_onnx(predictor, frame)
    same(made["prediction"], expected_of(predictor, frame), partial(made.get, "probabilities"))
    with pytest.raises(InvalidInputError, match="export it to onnx"):
        sklearn_pipeline(predictor)
