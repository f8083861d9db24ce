"""Writes a model as a pipeline of scikit-learn's own parts, so that its users need no Parley.

Public values, such as bounds and weights, are set on the parts as if they had been fitted. The intercept's column comes
first here, and last in a study. Scikit-learn's scalers only combine a column with a constant. So no part divides a row
only if its norm exceeds a bound, as a projection or a numeric row norm needs, and such studies are refused.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import TruncatedSVD
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.svm import LinearSVC

from parley.common.arrays import FloatArray
from parley.common.data.cells import MISSING_TEXTS
from parley.common.data.class_weights import prior_offset
from parley.common.data.columns import OTHER, Category, RealLabel
from parley.common.data.layout import DesignLayout, frequencies
from parley.common.data.study import RandomFeatures, Study
from parley.common.encoding.fixed_point import FEATURE_BITS
from parley.common.encoding.texts import spelling
from parley.common.errors import InvalidInputError

if TYPE_CHECKING:
    from parley.common.runs.predictions import Predictor

_MOST_NUMBERS = 2**24
"""The most numbers of a sample, 128 MiB: a sample has two rows for each value of a category with others."""
_EMPTY = (math.nan, None, "")
"""Values of a missing text, beside the texts that mean one. NaN comes first, because the other parts leave it out."""


def sklearn_pipeline(predictor: Predictor) -> Pipeline:
    """Make a pipeline that takes a data frame (n, m) of the study's features by name, with NaN for a missing value.

    It predicts the label, and probabilities if the loss fits them; a row that does not fit the study is a ValueError.
    Raises InvalidInputError for a study with a projection, with a number as its row norm, or with a category of
    thousands of values and others.
    """
    study = predictor.study
    layout = DesignLayout.of(study)
    if study.projection:
        raise InvalidInputError("a study with a projection has no scikit-learn pipeline; export it to onnx")
    if not isinstance(study.row_norm, str):
        raise InvalidInputError("a study whose row_norm is a number has no scikit-learn pipeline; export it to onnx")
    many = max(
        (len(feature.values) for feature in study.named if isinstance(feature, Category) and feature.other), default=0
    )
    if 2 * many * study.n_columns > _MOST_NUMBERS:
        raise InvalidInputError(
            f"a category of {many} values and others is too large for a scikit-learn pipeline; export the model to onnx"
        )
    steps = [("columns", _columns(study)), ("cells", _cells(study)), *_scaling(study, layout)]
    if study.random_features:
        steps += _random_features(study.random_features, study.n_columns, layout.scale)
    width = study.n_features - study.intercept
    if layout.intercept:
        bias = PolynomialFeatures(degree=1).fit(np.zeros((1, width)))
        steps += [("bias", bias), ("intercept", _multiplied(np.array([layout.intercept, *np.ones(width)])))]
    if layout.own:
        inside = np.full(study.n_features, 1 - 2.0**-30)
        steps += [("divided", Normalizer().fit(np.zeros((1, study.n_features)))), ("inside", _multiplied(inside))]
    steps += [
        ("steps", _multiplied(np.full(study.n_features, 2.0**FEATURE_BITS))),
        ("whole", FunctionTransformer(np.trunc)),
    ]
    return Pipeline([*steps, *_scores(predictor)])


def _set(part: BaseEstimator, n_features: int, **learnt: object) -> Any:  # noqa: ANN401 -- scikit-learn has no types
    """Set the attributes that fitting would set on a part. Returns the part."""
    for name, value in {"n_features_in_": n_features, **learnt}.items():
        setattr(part, name, value)
    return part


def _multiplied(by: FloatArray) -> Any:  # noqa: ANN401 -- as above
    """Make a part that multiplies columns by numbers (d,)."""
    return _affine(by, np.zeros(len(by)))


def _affine(scale: FloatArray, offset: FloatArray, **terms: Any) -> Any:  # noqa: ANN401 -- as above
    return _set(MinMaxScaler(**terms), len(scale), scale_=scale, min_=offset)


def _columns(study: Study) -> ColumnTransformer:
    """Make a part that takes the study's features in order, by their names, from any data frame that has them."""
    names = study.feature_names
    made = ColumnTransformer([("features", "passthrough", list(range(len(names))))]).fit(_sample(study))
    made.feature_names_in_ = np.array(names, dtype=object)
    made.texts_ = [
        feature.name for feature in study.named if isinstance(feature, Category)
    ]  # for those who read a table
    return made


def _cells(study: Study) -> ColumnTransformer:
    """Return a part that makes raw columns, for a category one of 0 or 1 for each value, and fills missing values."""
    parts: list[tuple[str, Any, list[int]]] = []
    for place, feature in enumerate(study.named):
        if isinstance(feature, Category):
            parts += _category(feature, place)
        elif feature.fill is None:
            parts.append((f"{place}", "passthrough", [place]))
        else:
            parts.append((f"{place}", SimpleImputer(strategy="constant", fill_value=feature.fill), [place]))
    return ColumnTransformer(parts, sparse_threshold=0).fit(_sample(study))


def _category(category: Category, place: int) -> list[tuple[str, Any, list[int]]]:
    """Return the parts that make columns of a category, and refuse a missing value if the category has no fill value.

    Values that are not declared go to the column of values that are infrequent in the sample.
    """
    terms = {"handle_unknown": "infrequent_if_exist", "min_frequency": 2} if category.other else {}
    values = np.array(category.column_values, dtype=object)
    steps: list[Any] = [OneHotEncoder(categories=[values], sparse_output=False, **terms)]
    checks = []
    empty = (*_EMPTY, *sorted(MISSING_TEXTS - {*category.values}))
    if category.fill is not None:
        fill = category.column_values[category.codes[spelling(category.fill)]]
        steps[:0] = [
            SimpleImputer(missing_values=empty_value, strategy="constant", fill_value=fill) for empty_value in empty
        ]
    elif category.other:
        checks = [
            (f"{place} is there {i}", MissingIndicator(missing_values=empty_value), [place])
            for i, empty_value in enumerate(empty)
        ]
    named = [(f"{step}", part) for step, part in enumerate(steps)]
    return [*checks, (f"{place}", Pipeline(named), [place])]


def _sample(study: Study) -> npt.NDArray[np.object_]:
    """Return rows with each declared value twice and, if the study allows others, one that is not declared once."""
    columns: list[list[object]] = []
    for feature in study.named:
        if isinstance(feature, Category):
            columns.append([*feature.values * 2, OTHER] if feature.other else [feature.values[0]])
        else:
            columns.append([feature.lower])
    longest = max(map(len, columns))
    filled = [[column[0]] * (longest - len(column)) + column for column in columns]
    return np.array(filled, dtype=object).T


def _scaling(study: Study, layout: DesignLayout) -> list[tuple[str, Any]]:
    """Return the steps that clip numbers to their bounds and scale them to [-unit, unit], categories to the unit."""
    lower, spread, scale, offset = (np.full(study.n_columns, value) for value in (0.0, 1.0, layout.unit, 0.0))
    numbers = layout.numbers
    lower[numbers.positions], spread[numbers.positions] = numbers.lower, numbers.upper - numbers.lower
    scale[numbers.positions], offset[numbers.positions] = 2 * layout.unit, -layout.unit
    scaler = _affine(np.ones(study.n_columns), np.zeros(study.n_columns), feature_range=(0.0, 1.0), clip=True)
    return [
        ("shares", _set(StandardScaler(), study.n_columns, mean_=lower, scale_=spread, var_=spread**2)),
        ("bounds", scaler),
        ("scaled", _affine(scale, offset)),
    ]


def _random_features(features: RandomFeatures, width: int, scale: float) -> list[tuple[str, Any]]:
    """Return the steps that map columns to cosines and sines."""
    waves = FeatureUnion([("cosine", FunctionTransformer(np.cos)), ("sine", FunctionTransformer(np.sin))])
    return [
        ("angles", _set(TruncatedSVD(), width, components_=frequencies(features, width))),
        ("waves", waves.fit(np.zeros((1, features.n // 2)))),
        ("norm 1", _multiplied(np.full(features.n, math.sqrt(2 / features.n)))),
        ("scale", _multiplied(np.full(features.n, scale))),
    ]


def _scores(predictor: Predictor) -> list[tuple[str, Any]]:
    """Return the steps that predict from rows in units of the grid."""
    weights, label = np.atleast_2d(predictor.model.weights) * 2.0**-FEATURE_BITS, predictor.study.label
    if predictor.study.intercept:
        weights = np.roll(weights, 1, axis=1)
    width = weights.shape[1]
    if isinstance(label, RealLabel):
        half = (label.upper - label.lower) / 2
        unit = _set(LinearRegression(), 1, coef_=np.array([half]), intercept_=label.lower + half)
        within = _affine(np.ones(1), np.zeros(1), feature_range=(-1.0, 1.0), clip=True)
        return [("score", _set(TruncatedSVD(), width, components_=weights)), ("within", within), ("unit", unit)]
    has_probabilities = predictor.probabilities(np.zeros((0, *predictor.model.weights.shape[:-1]))) is not None
    if len(weights) == 2:  # noqa: PLR2004 -- of two classes scikit-learn wants one score
        weights = weights[1:] - weights[:1]
    kind = LogisticRegression() if has_probabilities else LinearSVC()
    shift = _prior_shift(predictor) if has_probabilities else 0.0
    learnt = {"coef_": weights, "intercept_": np.full(len(weights), -shift), "classes_": np.array(label.values)}
    classifier = _set(kind, width, **learnt)
    if predictor.threshold or shift:
        beyond = math.nextafter(predictor.threshold - shift, math.inf)  # scikit-learn's belongs to the positive class
        by_score = FixedThresholdClassifier(classifier, threshold=beyond, response_method="decision_function")
        classifier = _set(by_score, width, estimator_=classifier)
    return [("score", classifier)]


def _prior_shift(predictor: Predictor) -> float:
    """Return what a score has too much for probabilities of the population; raises InvalidInputError if several do."""
    if not predictor.class_weights:
        return 0.0
    if len(predictor.class_weights) > 2:  # noqa: PLR2004 -- one score
        raise InvalidInputError(
            "a model of several weighted classes has no scikit-learn pipeline: no part of it has labels by some scores "
            "and probabilities by others; export it to onnx"
        )
    return float(prior_offset(predictor.class_weights, 1))
