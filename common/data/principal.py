"""A projection onto the principal components of public rows: fewer columns, that hold most of what differs.

The rows must be no owner's, as those of `common.data.bounds`: components of private rows would have to be paid for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from common.arrays import FloatArray
from common.data.columns import Columns
from common.data.layout import centred
from common.data.maps import MOST_NUMBERS, Projection
from common.data.records import design_of
from common.data.study import Study
from common.encoding.fixed_point import FEATURE_BITS, WEIGHT_BITS, truncate
from common.errors import InvalidDataError, InvalidInputError


@dataclass(frozen=True, slots=True)
class Projected:
    """A study with a projection, and how it fits the rows: the shares of their variance kept, and of them beyond it."""

    study: Study
    n_rows: int
    explained: float
    beyond: float


def with_projection_of(
    study: Study, columns: Columns, n_components: int, quantile: float = 1.0, auxiliary: str | None = None
) -> Projected:
    """The study projected onto the first principal components of public rows, (n,) a column; no label is needed.

    The radius is the ``quantile`` of the norms of the rows' projections, of 1 the largest, and what the study's rows
    are divided by from now on (``row_norm``). ``auxiliary`` is the SHA-256 of the rows' file. Raises InvalidInputError
    for a study that is mapped already, a quantile that is not in (0, 1] or makes no radius, more components than the
    rows have directions, and rows that do not fit the study; InvalidDataError that names missing columns.
    """
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
    """A table's features as the study's columns (n, m), before rows are divided, on the grid."""
    if missing := [name for name in study.feature_names if name not in columns]:
        raise InvalidDataError(f"columns missing from the public rows: {', '.join(missing[:5])}")
    undivided = study.model_copy(update={"intercept": False, "row_norm": 1.0})
    X = design_of(undivided, columns, len(columns[study.feature_names[0]]))
    if not len(X):
        raise InvalidDataError("the public rows are none")
    return truncate(X, FEATURE_BITS)


def _oriented(directions: FloatArray) -> FloatArray:
    """Unit vectors (k, m) on the grid, the largest number of each positive: so is one chosen of two that fit alike."""
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=1)[:, None], axis=1)
    return truncate(directions * np.sign(largest), WEIGHT_BITS)
