"""A study's columns as sums over rows, in integers, and how far one example can move them.

A row adds to each column that is described, as one block of *lanes* of one vector:

- a number x, scaled by its bounds to v in [-1, 1]: its *moments*, v and 13/8 (v^2 - 1/2); and a 1 in the lane of its
  *bin*: at the lower bound, one of B equal bins between the bounds, or at the upper bound, where clipped values end up;
- a category, or a label of classes: a 1 in the lane of its value.

A row that its owner dropped adds nothing; where a study drops rows, one lane more counts those that are left. Of
persons of several rows each row adds its weight times as much, and a person's weights add up to at most 1.

*Sensitivity*, in the 2-norm, for one record replaced by another. The lanes of bins or values change in two places, by
1 each: 2 in square. Moments of v and u, with a = |v - u|, b = |v + u| <= 2 - a and s = 13/8, lie apart, in square,

    (v - u)^2 + s^2 (v^2 - u^2)^2 = a^2 (1 + s^2 b^2) <= a^2 (1 + s^2 (2 - a)^2) <= 4,

with equality at a = 2, from bound to bound: the last step holds while s^2 is at most the least of
(2 + a) / (a^2 (2 - a)), which is 2.77, at a = sqrt 5 - 1. So squares count 13/8 times, and their noise 8/13, for
nothing. A row that is dropped changes less: centred by 1/2, moments are at most sqrt(1 + s^2 / 4) long. Squares are
rounded to the grid of answers, by which only pairs far below the bound move, and by less than 2^-30.

What a *person* adds is a point of the convex hull of what rows add and of nothing, exactly: weights are multiples of
2^-16, by which values on 2^-16 are multiplied in integers, and the weights of a person's rows are not rounded again.
Two such points are no further apart than two corners of the hull are: than records that are replaced or dropped,
whichever is further, whether or not the study drops rows. So that products stay on 2^-32, squares of rows of weights
below 1 are rounded to 2^-16 first. Where b is not 0 that adds at most 2^-15 s a b + 2^-32 to the square above, and with
2^-16 <= b <= 2 - a this is less than what the bound leaves: about 4 (2 - a) near a = 2, where it is met, and .1 or more
elsewhere. Where b is 0 it adds at most 2^-32, and nothing at a = 2, because the bounds' squares lie on the grid.

*Precision.* A shard holds rows on a grid of 2^-16, divided by at most R, the largest norm that a row of the study can
have. A value is read back by the intercept, which was at least 1 before the division, or by a division that is every
row's: to 2^-15 R, in units in which the bounds are -1 and +1. That close below the edge of a bin it counts for the
upper one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Self

import numpy as np

from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.columns import Bounded, Category, Label, missing_policy
from parley.common.data.shard import Shard
from parley.common.data.study import Study
from parley.common.data.weighing import counted_by_code
from parley.common.encoding.classes import decode_classes
from parley.common.encoding.fixed_point import FEATURE_BITS, UNIT
from parley.common.errors import InvalidInputError

SQUARES = 13 / 8
"""The factor by which the squares of values are scaled."""
MOST_LANES = 2**14
"""The most sums that one description may have."""
_ONE = 2**FEATURE_BITS
"""The upper bound, in the integers of values; the lower one is its negative."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnChoice:
    """The ``columns`` to describe, with so many bins each; all columns of a study if none is named.

    A column with None has ``bins`` bins if it has bounds; ``moments`` says whether numbers have moments.
    """

    columns: Mapping[str, int | None]
    bins: int
    moments: bool


@dataclass(frozen=True, slots=True, eq=False)
class NumberSums:
    """The sums of a number: its moments, if ``moments``, and so many bins, or none (0).

    ``position`` is its column in the design, None for the label; ``precision`` of its values is in units of 2^-16.
    """

    column: Bounded
    position: int | None
    moments: bool
    bins: int
    precision: int

    @property
    def n_lanes(self) -> int:
        """The number of its sums: two moments, then the bins between the bounds and one at each bound."""
        return 2 * self.moments + (self.bins + 2 if self.bins else 0)

    @property
    def most_apart(self) -> float:
        """The square of the largest distance between what two rows add."""
        return 4.0 * self.moments + 2.0 * bool(self.bins)

    @property
    def longest(self) -> float:
        """The square of the largest norm of what a row adds."""
        return (1 + SQUARES**2 / 4) * self.moments + bool(self.bins)

    def add_up(self, shard: Shard, divisor: FloatArray, weights: IntArray) -> IntArray:
        """Return the sums (..., n_lanes) over rows by their weights, in units of 2^-32."""
        parts = []
        values = self._values(shard, divisor)
        if self.moments:
            squares = (13 * (values * values - (UNIT >> 1))) >> 3
            of_squares = np.where(weights == _ONE, squares, (squares >> FEATURE_BITS) * weights)
            parts = [total.sum(axis=-1)[..., None] for total in (values * weights, of_squares)]
        if self.bins:
            parts.append(_counts(self._codes(values), weights, self.bins + 2))
        return np.concatenate(parts, axis=-1)

    def _values(self, shard: Shard, divisor: FloatArray) -> IntArray:
        """Return values (..., n) in units of 2^-16; those no further from a bound than the precision lie at it."""
        scaled = shard.y if self.position is None else shard.X[..., self.position] / divisor
        values = np.rint(np.clip(scaled, -1.0, 1.0) * _ONE).astype(np.int64)
        near = np.abs(values) >= _ONE - self.precision
        return np.asarray(np.where(near, np.sign(values) * _ONE, values))

    def _codes(self, values: IntArray) -> IntArray:
        """Return the bins (..., n) of values: 0 at the lower bound, B + 1 at the upper, 1 to B between."""
        between = ((values + _ONE + self.precision) * self.bins >> (FEATURE_BITS + 1)) + 1
        codes = np.minimum(between, self.bins)
        return np.asarray(np.where(np.abs(values) < _ONE, codes, np.where(values < 0, 0, self.bins + 1)))


@dataclass(frozen=True, slots=True, eq=False)
class ValueSums:
    """The sums of a category or a label of classes: how often it has each value.

    ``position`` is its first column in the design, None for the label.
    """

    column: Category | Label
    position: int | None

    @property
    def values(self) -> tuple[str, ...]:
        """The values that it may have, in the order of its lanes."""
        return self.column.column_values if isinstance(self.column, Category) else self.column.values

    @property
    def n_lanes(self) -> int:
        """The number of its sums, one for each value."""
        return len(self.values)

    @property
    def most_apart(self) -> float:
        """The square of the largest distance between what two rows add."""
        return 2.0 if self.n_lanes > 1 else 0.0

    @property
    def longest(self) -> float:
        """The square of the largest norm of what a row adds."""
        return 1.0

    def add_up(self, shard: Shard, divisor: FloatArray, weights: IntArray) -> IntArray:  # noqa: ARG002 -- as a number's
        """Return the sums (..., n_lanes) over rows by their weights, in units of 2^-32."""
        if self.position is None:
            codes = decode_classes(shard.y, self.n_lanes)
        else:
            codes = shard.X[..., self.position : self.position + self.n_lanes].argmax(axis=-1)
        return _counts(codes, weights, self.n_lanes)


@dataclass(frozen=True, slots=True, eq=False)
class ColumnSums:
    """The sums of a study's rows: the number of rows that are left, if any may be dropped, then those of each column.

    The intercept, which was ``constant`` before a row was divided, gives the divisor; without an intercept (0) it is
    the ``largest`` norm of a row.
    """

    columns: tuple[NumberSums | ValueSums, ...]
    drops: bool
    constant: float
    largest: float

    @classmethod
    def of(cls, study: Study, choice: ColumnChoice) -> Self:
        """Return the sums that describe the chosen columns of a study.

        Raises InvalidInputError, which names the column, for one that is unknown, that has no bounds for its bins, or
        whose values cannot be read from rows divided by an unknown number; and for no sums at all, or too many.
        """
        if unknown := [name for name in choice.columns if name not in study.table_names]:
            raise InvalidInputError(f"the study has no column {', '.join(map(repr, unknown[:5]))}")
        places = _places(study, choice.columns.keys() or set(study.table_names))
        made = [_sums_of(study, *places[name], choice) for name in choice.columns or study.table_names]
        sums = cls(
            columns=tuple(column for column in made if column.n_lanes),
            drops=any(missing_policy(feature, study.missing) == "drop" for feature in study.features)
            or study.missing == "drop",
            constant=study.constant,
            largest=study.largest_norm,
        )
        if not sums.columns:
            raise InvalidInputError("no column is left to describe: without moments, numbers need bins")
        if sums.n_lanes > MOST_LANES:
            raise InvalidInputError(
                f"the columns make {sums.n_lanes:,} sums; at most {MOST_LANES:,} are possible: ask about fewer columns "
                "or bins"
            )
        return sums

    @property
    def n_lanes(self) -> int:
        """The number of sums."""
        return self.drops + sum(column.n_lanes for column in self.columns)

    @property
    def sensitivity(self) -> float:
        """The largest 2-norm by which replacing an example, by another or one that is dropped, moves the sums.

        It is rounded up.
        """
        replaced = math.fsum(column.most_apart for column in self.columns)
        dropped = self.drops + math.fsum(column.longest for column in self.columns)
        return math.nextafter(math.sqrt(max(replaced, dropped)), math.inf)

    def add_up(self, shard: Shard) -> IntArray:
        """Return the exact sums (..., n_lanes) of a shard, or of each of a stack, in units of 2^-32."""
        present = self._present(shard)
        divisor = np.where(present, shard.X[..., -1], 1.0) / self.constant if self.constant else 1 / self.largest
        weights = (shard.weights * present * float(_ONE)).astype(np.int64)
        parts = [_counts(np.zeros(present.shape, dtype=np.int64), weights, 1)] if self.drops else []
        return np.concatenate(
            [*parts, *(column.add_up(shard, np.asarray(divisor), weights) for column in self.columns)], axis=-1
        )

    def _present(self, shard: Shard) -> BoolArray:
        """Return which rows (..., n) hold a record: not the padding, nor those that were dropped, which are zero."""
        if self.constant:
            return np.asarray(shard.mask & (shard.X[..., -1] > 0))
        return shard.present if self.drops else shard.mask


def _places(study: Study, names: Collection[str]) -> dict[str, tuple[Bounded | Category | Label, int | None]]:
    """Return columns by name, with the place where each begins in the design, or None for the label."""
    starts = accumulate((column.n_columns for column in study.named), initial=0)
    named = zip(study.named, starts, strict=False)
    return {column.name: (column, start) for column, start in named if column.name in names} | {
        study.label.name: (study.label, None)
    }


def _sums_of(
    study: Study, column: Bounded | Category | Label, position: int | None, choice: ColumnChoice
) -> NumberSums | ValueSums:
    """Return the sums of one column; raises InvalidInputError for bins without bounds, or values that are lost."""
    if position is not None and study.maps:
        raise InvalidInputError(
            f"column {column.name!r} cannot be described: the study's projection or random_features leave no column in "
            "the rows; describe the study without them, or ask about the label alone"
        )
    bins = choice.columns.get(column.name)
    if isinstance(column, Category | Label):
        if bins:
            raise InvalidInputError(
                f"a histogram without bounds: column {column.name!r} has values, and each is counted"
            )
        return ValueSums(column, position)
    if position is not None and not _shows_divisor(study):
        raise InvalidInputError(
            f"the values of column {column.name!r} cannot be read: without an intercept, rows do not show the number "
            "that they were divided by; describe a study with an intercept, or one whose row_norm is 'largest'"
        )
    precision = 1 if position is None else math.ceil(2 * study.largest_norm)
    return NumberSums(column, position, choice.moments, choice.bins if bins is None else bins, precision)


def _shows_divisor(study: Study) -> bool:
    """Return whether rows show their divisor, or all are divided by the same number and none is projected."""
    if study.intercept or isinstance(study.row_norm, str):
        return study.intercept or study.row_norm == "largest"
    return study.row_norm >= study.largest_norm


def _counts(codes: IntArray, weights: IntArray, n_codes: int) -> IntArray:
    """Return how many rows have each code, (..., n_codes), by weights in units of 2^-16; in units of 2^-32."""
    return np.asarray(counted_by_code(codes, weights, n_codes).astype(np.int64) << FEATURE_BITS)
