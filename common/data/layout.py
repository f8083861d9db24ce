"""Where the columns of a study stand in the design matrix, and on what scale.

A row is (numbers scaled by their public bounds to [-1, 1], one 0 or 1 for each value of a category, a constant for the
intercept) divided by its own norm, or by a public bound of the norm: at most the root of the number of numeric features
and categories and of the constant squared, because a category sets at most one of its columns. Nothing here is a
statistic of private data: what a row is divided by follows from that row alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from common.arrays import FloatArray, IntArray
from common.data.columns import AnyFeature, Category, Feature, Missing, RowNorm, largest_norm, missing_policy


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
    """The features of a study as columns of a design (n, n_columns).

    ``unit`` is what a 1 becomes in it, unless ``own`` says that each row is divided by its own norm at last. The
    intercept's column holds ``constant``, 0 where there is none, before that.
    """

    numbers: Numbers
    categories: dict[str, tuple[Category, int]]
    policies: dict[str, Missing]
    constant: float
    n_columns: int
    unit: float
    own: bool

    @classmethod
    def of(cls, features: tuple[AnyFeature, ...], missing: Missing, row_norm: RowNorm, constant: float) -> DesignLayout:
        """The layout of a study's features in their order, the intercept last."""
        starts = list(accumulate((each.n_columns for each in features), initial=0))
        placed = list(zip(features, starts, strict=False))
        numbers = [(each, start) for each, start in placed if isinstance(each, Feature)]
        categories = {each.name: (each, start) for each, start in placed if isinstance(each, Category)}
        largest = largest_norm(len(features), constant)
        return cls(
            numbers=Numbers(
                features=tuple(each for each, _ in numbers),
                index={each.name: i for i, (each, _) in enumerate(numbers)},
                lower=np.array([each.lower for each, _ in numbers]),
                upper=np.array([each.upper for each, _ in numbers]),
                positions=np.array([start for _, start in numbers], dtype=np.int64),
            ),
            categories=categories,
            policies={each.name: missing_policy(each, missing) for each in features},
            constant=constant,
            n_columns=starts[-1] + (constant > 0),
            unit=1 / (largest if isinstance(row_norm, str) else min(largest, row_norm)),
            own=row_norm == "own",
        )
