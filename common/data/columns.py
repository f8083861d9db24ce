"""The columns of a study: their names, their public bounds or values, and the treatment of missing values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Discriminator, Field, FiniteFloat, Tag, model_validator

from parley.common.arrays import FloatArray
from parley.common.encoding.classes import MAX_CLASSES
from parley.common.encoding.texts import spelling
from parley.common.strict import Name, PlainName, PlainText, Strict

Columns = Mapping[str, npt.NDArray[np.generic]]
Missing = Literal["refuse", "drop", "value"]
"""The treatment of a missing value: the data is refused, its row becomes zeros, or a public value replaces it."""
RowNorm = Literal["own", "largest"] | Annotated[float, Field(ge=1e-9, allow_inf_nan=False)]
"""The divisor of a row: its own norm, the largest that any row can have, or a smaller public bound."""

_ROUNDED = 0.02
"""By how much shares that people have rounded may differ from 1."""

_NARROW = 1e-4
"""The least deviation of a label, as a part of its bounds' distance: with less, the grid of weights is too coarse."""

_LEAST_WIDTH = 1e-290
"""The least distance of bounds: with less, slopes in a column's own units are beyond floating point."""

OTHER = "other"
"""The column of the values that a category does not declare."""


class Described(Strict):
    """A column, and what it is in plain words for those who are asked to approve a run about it."""

    name: PlainName
    description: Annotated[PlainText, Field(max_length=500)] = ""


class Bounded(Described):
    """A numeric column and its public bounds, which become -1 and +1; ``unit`` is that of the numbers: years."""

    lower: FiniteFloat
    upper: FiniteFloat
    unit: Annotated[PlainText, Field(max_length=50)] = ""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not (self.lower < self.upper and math.isfinite(self.upper - self.lower)):
            raise ValueError(f"column {self.name!r}: lower must be below upper, and upper - lower finite")
        if self.upper - self.lower < _LEAST_WIDTH:
            raise ValueError(f"column {self.name!r}: upper - lower must be at least {_LEAST_WIDTH:g}")
        return self


class Feature(Bounded):
    """A numeric column to predict from; ``fill`` stands in for a missing value."""

    missing: Missing | None = None
    fill: FiniteFloat | None = None

    @model_validator(mode="after")
    def _fill_fits(self) -> Self:
        _check_fill(self)
        if self.fill is not None and not self.lower <= self.fill <= self.upper:
            raise ValueError(f"column {self.name!r}: fill must lie within its bounds")
        return self

    @property
    def column_names(self) -> tuple[str, ...]:
        """The one column of the design."""
        return (self.name,)

    @property
    def n_columns(self) -> int:
        """The number of columns of the design."""
        return 1

    @property
    def table_names(self) -> tuple[str, ...]:
        """The one column of an owner's table."""
        return (self.name,)


class Category(Described):
    """A column of texts to predict from, one column of the design for each declared value.

    With ``other`` there is one more column, for any value not declared; without, such a value is a fault.
    """

    values: Annotated[tuple[Name, ...], Field(min_length=1, max_length=100_000)]
    other: bool = False
    missing: Missing | None = None
    fill: str | None = None

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        check_distinct(f"column {self.name!r}", self.column_values)
        _check_fill(self)
        if self.fill is not None and spelling(self.fill) not in self.codes:
            raise ValueError(f"column {self.name!r}: fill must be one of its values, or 'other' where it has that")
        return self

    @property
    def column_values(self) -> tuple[str, ...]:
        """The values in order, ``other`` last."""
        return (*self.values, OTHER) if self.other else self.values

    @property
    def other_code(self) -> int | None:
        """The index of ``other`` among the columns, or None."""
        return len(self.values) if self.other else None

    @property
    def n_columns(self) -> int:
        """The number of columns of the design."""
        return len(self.values) + self.other

    @property
    def table_names(self) -> tuple[str, ...]:
        """The one column of an owner's table."""
        return (self.name,)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns of the design, such as ``workclass=Private``."""
        return tuple(f"{self.name}={value}" for value in self.column_values)

    @cached_property
    def codes(self) -> dict[str | None, int]:
        """The index of each value among the columns, by its spelling."""
        return {spelling(value): code for code, value in enumerate(self.column_values)}


class SparseFeatures(Described):
    """Very many numeric columns, few of them not zero in a row; a row lists its entries that are not zero.

    In a table ``index`` and ``value`` are columns of lists, the places and the numbers of a row's entries; ``first`` is
    the place of the first of the ``columns``. A row has at most ``entries`` entries, and no number is larger than
    ``bound``, which becomes 1. Both are public: a solver's error and the largest norm of a row depend on them.
    """

    columns: Annotated[int, Field(ge=2, lt=2**24)]
    entries: Annotated[int, Field(ge=1, le=2**20)]
    bound: Annotated[FiniteFloat, Field(gt=0)] = 1.0
    index: PlainName = "index"
    value: PlainName = "value"
    first: Literal[0, 1] = 1
    missing: Literal["refuse", "drop"] | None = None

    @property
    def fill(self) -> None:
        """None: nothing replaces a missing row."""
        return

    @property
    def column_names(self) -> tuple[str, ...]:
        """Empty: the columns have places, and no names."""
        return ()

    @property
    def n_columns(self) -> int:
        """The number of columns of the design."""
        return self.columns

    @property
    def table_names(self) -> tuple[str, ...]:
        """The columns of an owner's table."""
        return self.index, self.value


class Label(Described):
    """The column to predict and its values; of two, the first is negative (-1) and the second positive (+1).

    ``shares`` are the parts of the population that the values have, in order, if that is common knowledge or owners
    described it before: registers and statistics often say. They make forecasts closer. They are not computed from
    rows.
    """

    values: tuple[str, ...]
    shares: tuple[Annotated[float, Field(gt=0, lt=1)], ...] | None = None

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if not 2 <= len(self.values) <= MAX_CLASSES:  # noqa: PLR2004
            raise ValueError(f"label {self.name!r}: there must be 2 to {MAX_CLASSES} values, not {len(self.values)}")
        check_distinct(f"label {self.name!r}", self.values)
        return self

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.shares is None:
            return self
        if len(self.shares) != len(self.values):
            raise ValueError(f"label {self.name!r}: {len(self.values)} values need as many shares")
        if not abs(sum(self.shares) - 1) <= _ROUNDED:
            raise ValueError(f"label {self.name!r}: its shares must add up to 1, not {sum(self.shares):g}")
        return self

    @property
    def frequencies(self) -> tuple[float, ...] | None:
        """The shares as parts of their sum, which rounding may have left near 1; None if they are unknown."""
        if self.shares is None:
            return None
        total = sum(self.shares)
        return tuple(share / total for share in self.shares)

    @cached_property
    def codes(self) -> dict[str | None, int]:
        """The class of each value, by its spelling."""
        return {spelling(value): code for code, value in enumerate(self.values)}


class RealLabel(Bounded):
    """A numeric column to predict.

    ``mean`` and ``deviation`` are its average in the population and its usual distance from that, in its own units, if
    both are common knowledge or owners described them before. A descent starts from the mean and is scaled to the
    deviation: if bounds are wide, that helps much. They are not computed from rows.
    """

    mean: FiniteFloat | None = None
    deviation: Annotated[FiniteFloat, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _usual_fits(self) -> Self:
        if (self.mean is None) != (self.deviation is None):
            raise ValueError(f"label {self.name!r}: mean and deviation go together")
        if self.mean is None or self.deviation is None:
            return self
        if not self.lower < self.mean < self.upper:
            raise ValueError(f"label {self.name!r}: mean must lie between its bounds")
        if self.deviation > (self.upper - self.lower) / 2:
            raise ValueError(f"label {self.name!r}: within its bounds no deviation exceeds half of their distance")
        if self.deviation < (self.upper - self.lower) * _NARROW:
            raise ValueError(f"label {self.name!r}: its bounds are more than {1 / _NARROW:,.0f} deviations apart")
        return self

    @property
    def usual(self) -> tuple[float, float] | None:
        """Mean and deviation in units in which the bounds are -1 and +1; None if they are unknown."""
        if self.mean is None or self.deviation is None:
            return None
        half = (self.upper - self.lower) / 2
        return (self.mean - self.lower) / half - 1, self.deviation / half

    def in_units(self, scores: FloatArray) -> FloatArray:
        """Convert a model's scores (...), in which the bounds are -1 and +1, to the units of the column."""
        return self.lower + (scores + 1) * ((self.upper - self.lower) / 2)


def _kind_of_label(label: object) -> str:
    """Return the tag of a label: with values it is one of classes, any other needs bounds."""
    return "classes" if _has_values(label, Label) else "real"


def _kind_of_feature(feature: object) -> str:
    """Return the tag of a feature: with values a category, with a count of columns sparse, any other needs bounds."""
    if "columns" in feature if isinstance(feature, Mapping) else isinstance(feature, SparseFeatures):
        return "sparse"
    return "category" if _has_values(feature, Category) else "number"


def _has_values(column: object, model: type) -> bool:
    return "values" in column if isinstance(column, Mapping) else isinstance(column, model)


AnyLabel = Annotated[
    Annotated[Label, Tag("classes")] | Annotated[RealLabel, Tag("real")], Discriminator(_kind_of_label)
]
AnyFeature = Annotated[
    Annotated[Feature, Tag("number")] | Annotated[Category, Tag("category")] | Annotated[SparseFeatures, Tag("sparse")],
    Discriminator(_kind_of_feature),
]


def check_distinct(subject: str, values: Iterable[str]) -> None:
    """Raise ValueError unless the values are spelt and all different."""
    seen: dict[str, str] = {}
    for value in values:
        spelt = spelling(value)
        if spelt is None:
            raise ValueError(f"{subject}: its values must be distinct, and a blank is none")
        if spelt in seen:
            pair = f"{value!r} twice" if seen[spelt] == value else f"{seen[spelt]!r} and {value!r}, which read alike"
            raise ValueError(f"{subject}: its values must be distinct; there is {pair}")
        seen[spelt] = value


def scaled(values: FloatArray, lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Scale values within their bounds to [-1, 1]; the quotient of two rounded differences never exceeds 1."""
    return np.asarray(2 * ((values - lower) / (upper - lower)) - 1)


def _check_fill(column: Feature | Category) -> None:
    """Raise ValueError for a fill that is not needed, or a missing one."""
    if (column.missing == "value" and column.fill is None) or (
        column.fill is not None and column.missing in {"refuse", "drop"}
    ):
        raise ValueError(f'column {column.name!r}: missing = "value" and fill go together')


def missing_policy(column: Feature | Category | SparseFeatures, default: Missing) -> Missing:
    """Return the treatment of a feature's missing values: its own choice, or the study's."""
    return column.missing or ("value" if column.fill is not None else default)


def constant_of_numbers(n_features: int) -> float:
    """Return the constant of the intercept's column for a real label.

    It is a quarter of the largest squared norm, and at least 1.
    """
    return max(1.0, math.sqrt(n_features / 3))


def largest_norm(n_features: int, constant: float) -> float:
    """Return the largest norm of a row of numbers, categories and the intercept's constant, before it is divided.

    A row that was mapped into the unit ball counts as one number.
    """
    return math.hypot(math.sqrt(n_features), constant)
