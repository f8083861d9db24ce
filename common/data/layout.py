"""The positions of a study's columns in the design matrix, and their scale.

A row is (numbers scaled by their public bounds to [-1, 1], one 0 or 1 for each value of a category, a constant for the
intercept) divided by its own norm, or by a public bound of the norm: at most the root of the number of numeric features
and categories and of the constant squared, because a category sets at most one of its columns. If the study has maps,
numbers and values are mapped into the unit ball first: the bound is the root of 1 and of the constant squared. Nothing
here is a statistic of private data: a row's divisor follows from that row alone.

*The same maps everywhere.* A projection's matrix travels in the study as float32, bit for bit. Columns are put on the
grid of 2^-16 and the matrix on that of 2^-20, so their products are exact in float64, in every order in which BLAS adds
(`parley.common.encoding.fixed_point`): rows within the radius have the same bits on every machine. Rows beyond it,
cosines and sines are rounded as a machine's libraries do, and may so end one step apart on the grid of a shard. Nothing
depends on that: no row of a party has to equal another machine's, and public rows travel as the learner made them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np

from parley.common.arrays import FloatArray, IntArray
from parley.common.data.columns import Category, Feature, Missing, missing_policy
from parley.common.data.study import Projection, RandomFeatures, RowMap, Study, numbers_of
from parley.common.encoding.fixed_point import FEATURE_BITS, truncate, weights_on_grid

_MAPPED = 2**20
"""The most numbers that are mapped together: 8 MiB."""


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """The numeric features, m of them: bounds and positions among the design's columns, (m,) each."""

    features: tuple[Feature, ...]
    index: dict[str, int]
    lower: FloatArray
    upper: FloatArray
    positions: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class DesignLayout:
    """The features of a study as columns (n, n_columns), and these as rows of a design.

    ``unit`` is what a 1 becomes among the columns. The ``intercept`` is its constant, or 0 without one. After that a
    row is ready, unless ``own`` says that each is divided by its own norm at last. If there are ``maps``, a 1 is a 1,
    and the mapped row is multiplied by ``scale`` before the intercept joins it.
    """

    numbers: Numbers
    categories: dict[str, tuple[Category, int]]
    policies: dict[str, Missing]
    n_columns: int
    unit: float
    maps: tuple[RowMap, ...]
    scale: float
    intercept: float
    own: bool

    @classmethod
    def of(cls, study: Study) -> DesignLayout:
        """Return the layout of a study's features in their order, the intercept last."""
        starts = list(accumulate((feature.n_columns for feature in study.features), initial=0))
        placed = list(zip(study.features, starts, strict=False))
        numbers = [(feature, start) for feature, start in placed if isinstance(feature, Feature)]
        categories = {feature.name: (feature, start) for feature, start in placed if isinstance(feature, Category)}
        largest = study.largest_norm
        scale = 1 / (largest if isinstance(study.row_norm, str) else min(largest, study.row_norm))
        return cls(
            numbers=Numbers(
                features=tuple(feature for feature, _ in numbers),
                index={feature.name: i for i, (feature, _) in enumerate(numbers)},
                lower=np.array([feature.lower for feature, _ in numbers]),
                upper=np.array([feature.upper for feature, _ in numbers]),
                positions=np.array([start for _, start in numbers], dtype=np.int64),
            ),
            categories=categories,
            policies={feature.name: missing_policy(feature, study.missing) for feature in study.features},
            n_columns=study.n_columns if study.maps else study.n_features,
            unit=1.0 if study.maps else scale,
            maps=study.maps,
            scale=scale,
            intercept=_intercept(study, scale),
            own=study.row_norm == "own",
        )

    def mapped(self, columns: FloatArray) -> FloatArray:
        """Map columns (n, n_columns), with a place for the intercept: (n, d)."""
        n_outputs = self.maps[-1].n_outputs
        design = np.empty((len(columns), n_outputs + (self.intercept > 0)))
        most = max(_MAPPED // max(self.n_columns, n_outputs), 1)
        for start in range(0, len(columns), most):
            rows = columns[start : start + most]
            for row_map in self.maps:
                rows = _project(row_map, rows) if isinstance(row_map, Projection) else _random_features(row_map, rows)
            np.multiply(rows, self.scale, out=design[start : start + most, :n_outputs])
        return design


def _intercept(study: Study, scale: float) -> float:
    """Return the constant of an undivided row.

    If rows reach the unit sphere it lies on the grid, which is the same for all.

    For a real label it is 1/2, or the last number before it, and a row on the sphere is projected: that turned one into
    the other. An exported model cannot do so.
    """
    constant = study.constant * scale
    return float(truncate(np.asarray(constant), FEATURE_BITS)) if study.row_norm == "largest" else constant


def centred(projection: Projection, columns: FloatArray) -> FloatArray:
    """Return P (x - mean), (n, k), exactly, for columns (n, m) put on the grid."""
    matrix, offset = matrix_and_offset(projection.mean, projection.components)
    return np.asarray(truncate(columns, FEATURE_BITS) @ matrix.T - offset)


def _project(projection: Projection, columns: FloatArray) -> FloatArray:
    """Project columns (n, m) into the unit ball: (n, k)."""
    rows = centred(projection, columns)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1), projection.radius)[:, None])


def _random_features(features: RandomFeatures, columns: FloatArray) -> FloatArray:
    """Map columns (n, m) onto the unit sphere: (n, features.n)."""
    angles = columns @ frequencies(features, columns.shape[1]).T
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * math.sqrt(2 / features.n)


def frequencies(features: RandomFeatures, n_columns: int) -> FloatArray:
    """Return W (n/2, n_columns), by which rows become angles."""
    return math.sqrt(2 * features.gamma) * _normals(features.seed, features.n // 2, n_columns)


@lru_cache(4)
def matrix_and_offset(mean: str, components: str) -> tuple[FloatArray, FloatArray]:
    """Return P (k, m) on the grid of weights, and P mean (k,): read once, though rows are mapped in blocks."""
    centre = truncate(numbers_of(mean), FEATURE_BITS)
    matrix = weights_on_grid(numbers_of(components).reshape(-1, len(centre)))
    return matrix, np.asarray(matrix @ centre)


@lru_cache(4)
def _normals(seed: int, n: int, n_columns: int) -> FloatArray:
    """Return W (n, n_columns) before the kernel's width scales it; drawn once, because rows are mapped in blocks."""
    from scipy.special import ndtri  # noqa: PLC0415 -- 18 MB, beside a shard that may fill the memory

    raw = np.random.Philox(key=seed).random_raw(n * n_columns).reshape(n, n_columns)
    return weights_on_grid(ndtri(((raw >> np.uint64(11)) + 0.5) * 2.0**-53))
