"""Bounds and projections from public auxiliary rows: tighter bounds, and fewer columns that hold most differences.

The rows must be no owner's: what is computed from them is public, and costs nothing because nobody is asked. Bounds and
components of private rows would have to be paid for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parley.common.arrays import FloatArray
from parley.common.data.cells import as_numbers
from parley.common.data.columns import AnyFeature, Columns, Feature
from parley.common.data.layout import centred
from parley.common.data.records import design_of
from parley.common.data.study import MOST_NUMBERS, Projection, Study
from parley.common.encoding.fixed_point import FEATURE_BITS, WEIGHT_BITS, truncate
from parley.common.errors import InvalidDataError, InvalidInputError

_MOST = 0.5
_DIGITS = 6


def with_bounds_of(study: Study, columns: Columns, share: float, auxiliary: str) -> Study:
    """Return the study with each numeric feature bounded by quantiles of auxiliary rows, (n,) a column.

    ``share`` of their values lie below the lower bound, and as many above the upper; neither lies beyond the study's
    bounds, which stay if a column has no two values within them. ``auxiliary`` is the SHA-256 of the rows' file.

    Raises:
        InvalidInputError: the share is not in [0, 1/2), the features are sparse, or there is a projection, which was
            made for its study's bounds.
        InvalidDataError: columns are missing; the message names them.
    """
    _check_named(study)
    if study.projection is not None:
        raise InvalidInputError(
            "the study's projection is of columns by its bounds: take the bounds first, then project"
        )
    if not 0 <= share < _MOST:
        raise InvalidInputError(f"share must be at least 0 and below {_MOST:g}, not {share:g}")
    numbers = [feature.name for feature in study.features if isinstance(feature, Feature)]
    if missing := [name for name in numbers if name not in columns]:
        raise InvalidDataError(f"columns missing from the auxiliary rows: {', '.join(missing[:5])}")
    features = tuple(_bounded(feature, columns, share) for feature in study.features)
    return study.model_copy(update={"features": features, "auxiliary": auxiliary})


def _check_named(study: Study) -> None:
    """Raise InvalidInputError for sparse features, which have one bound for all columns, and no names."""
    if study.sparse:
        raise InvalidInputError("the study's features are sparse: they all have one bound, and cannot be projected")


def _bounded(feature: AnyFeature, columns: Columns, share: float) -> AnyFeature:
    """Return a feature with the quantiles of its column as bounds, if it is a number."""
    if not isinstance(feature, Feature):
        return feature
    values, _ = as_numbers(columns[feature.name])
    values = values[np.isfinite(values)]
    if not values.size:
        return feature
    quantiles = np.quantile(np.clip(values, feature.lower, feature.upper), [share, 1 - share]).tolist()
    lower, upper = (float(f"{value:.{_DIGITS}g}") for value in quantiles)
    lower, upper = max(lower, feature.lower), min(upper, feature.upper)
    if not lower < upper:
        return feature
    fill = None if feature.fill is None else min(max(feature.fill, lower), upper)
    return feature.model_copy(update={"lower": lower, "upper": upper, "fill": fill})


@dataclass(frozen=True, slots=True)
class Projected:
    """A study with a projection, and how it fits the rows.

    ``explained`` is the share of their variance that it keeps, ``beyond`` the share of them beyond its radius.
    """

    study: Study
    n_rows: int
    explained: float
    beyond: float


def with_projection_of(
    study: Study, columns: Columns, n_components: int, quantile: float = 1.0, auxiliary: str | None = None
) -> Projected:
    """Project the study onto the first principal components of public rows, (n,) a column; no label is needed.

    The radius is the ``quantile`` of the norms of the rows' projections, for 1 the largest, and the study's rows are
    divided by it from now on (``row_norm``). ``auxiliary`` is the SHA-256 of the rows' file.

    Raises:
        InvalidInputError: the study is sparse or mapped already, the quantile is not in (0, 1] or makes no radius,
            there are more components than the rows have directions, or the rows do not fit the study.
        InvalidDataError: columns are missing; the message names them.
    """
    _check_named(study)
    if study.maps:
        raise InvalidInputError("the study has a projection or random features already: fit one to a study without")
    if not 0 < quantile <= 1:
        raise InvalidInputError(f"the radius's quantile must be above 0 and at most 1, not {quantile:g}")
    X = _undivided(study, columns)
    mean = X.mean(axis=0)
    _, spread, directions = np.linalg.svd(X - mean, full_matrices=False)
    rank = int((spread > spread.max(initial=0.0) * max(X.shape) * np.finfo(np.float64).eps).sum())
    if not 1 <= n_components <= min(rank, MOST_NUMBERS // X.shape[1]):
        raise InvalidInputError(
            f"there may be 1 to {min(rank, MOST_NUMBERS // X.shape[1])} components, not {n_components}: the {len(X)} "
            f"rows of {X.shape[1]} columns differ in {rank} directions"
        )
    unscaled = Projection.of(mean, _oriented(directions[:n_components]), 1.0, auxiliary)
    norms = np.linalg.norm(centred(unscaled, X), axis=1)
    if not (radius := float(np.quantile(norms, quantile))):
        raise InvalidInputError(f"that quantile of the rows' norms is 0, and a radius is larger: not {quantile:g}")
    projection = unscaled.model_copy(update={"radius": radius})
    return Projected(
        study=study.model_copy(update={"projection": projection, "row_norm": "largest"}),
        n_rows=len(X),
        explained=float((spread[:n_components] ** 2).sum() / (spread**2).sum()),
        beyond=float((norms > projection.radius).mean()),
    )


def _undivided(study: Study, columns: Columns) -> FloatArray:
    """Return a table's features as the study's columns (n, m), before rows are divided, on the grid."""
    if missing := [name for name in study.feature_names if name not in columns]:
        raise InvalidDataError(f"columns missing from the public rows: {', '.join(missing[:5])}")
    undivided = study.model_copy(update={"intercept": False, "row_norm": 1.0})
    X = design_of(undivided, columns, len(columns[study.feature_names[0]]))
    if not len(X):
        raise InvalidDataError("there are no public rows")
    return truncate(X, FEATURE_BITS)


def _oriented(directions: FloatArray) -> FloatArray:
    """Round unit vectors (k, m) to the grid, the largest number of each positive: one choice of two equal fits."""
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=1)[:, None], axis=1)
    return truncate(directions * np.sign(largest), WEIGHT_BITS)
