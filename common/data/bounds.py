"""Bounds of numbers from public auxiliary rows: tighter than what must hold for every value, and no owner is asked.

The rows must be no owner's: what is computed from them is public, and costs nothing because nobody is asked.
"""

from __future__ import annotations

import numpy as np

from common.data.cells import as_numbers
from common.data.columns import AnyFeature, Columns, Feature
from common.data.study import Study
from common.errors import InvalidDataError, InvalidInputError

_MOST = 0.5
_DIGITS = 6


def with_bounds_of(study: Study, columns: Columns, share: float, auxiliary: str) -> Study:
    """The study with each numeric feature bounded by quantiles of auxiliary rows, (n,) a column.

    ``share`` of their values lie below the lower bound, and as many above the upper; neither lies beyond what the study
    declares, which stays where a column has no two values within it. ``auxiliary`` is the SHA-256 of the rows' file.
    Raises InvalidInputError for a share that is not in [0, 1/2) and a study with a projection, which was made for its
    bounds; InvalidDataError that names missing columns.
    """
    if study.projection is not None:
        raise InvalidInputError(
            "the study's projection is of columns by its bounds: take the bounds first, then project"
        )
    if not 0 <= share < _MOST:
        raise InvalidInputError(f"share must be at least 0 and below {_MOST:g}, not {share:g}")
    numbers = [each.name for each in study.features if isinstance(each, Feature)]
    if missing := [name for name in numbers if name not in columns]:
        raise InvalidDataError(f"columns missing from the auxiliary rows: {', '.join(missing[:5])}")
    features = tuple(_bounded(each, columns, share) for each in study.features)
    return study.model_copy(update={"features": features, "auxiliary": auxiliary})


def _bounded(feature: AnyFeature, columns: Columns, share: float) -> AnyFeature:
    """A feature with the quantiles of its column, if it is a number."""
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
