"""The columns of a study: their names, bounds and values, and how they become numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Self

import numpy as np
import numpy.typing as npt
from pydantic import Discriminator, Field, FiniteFloat, Tag, model_validator

from common.arrays import FloatArray
from common.errors import InvalidDataError
from common.strict import Name, Strict

Columns = Mapping[str, npt.NDArray[np.generic]]


class Bounded(Strict):
    """A numeric column and its public bounds, which become -1 and +1."""

    name: Name
    lower: FiniteFloat
    upper: FiniteFloat

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not (self.lower < self.upper and math.isfinite(self.upper - self.lower)):
            raise ValueError(f"column {self.name!r}: lower must be below upper, and upper - lower finite")
        return self


class Feature(Bounded):
    """A numeric column to predict from."""


class Label(Strict):
    """The column to predict and its values; of two, the first is negative (-1) and the second positive (+1)."""

    name: Name
    values: Annotated[tuple[str, ...], Field(min_length=2, max_length=100)]

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if len(set(self.values)) != len(self.values):
            raise ValueError(f"label {self.name!r}: its values must be distinct")
        return self


class RealLabel(Bounded):
    """A numeric column to predict."""

    def in_units(self, scores: FloatArray) -> FloatArray:
        """A model's scores (...), in which the bounds are -1 and +1, in the units of the column."""
        return self.lower + (scores + 1) * ((self.upper - self.lower) / 2)


def _label_kind(label: object) -> str:
    """A label with values is one of classes, any other needs bounds."""
    classes = "values" in label if isinstance(label, Mapping) else isinstance(label, Label)
    return "classes" if classes else "real"


AnyLabel = Annotated[Annotated[Label, Tag("classes")] | Annotated[RealLabel, Tag("real")], Discriminator(_label_kind)]


def _scaled(values: FloatArray, lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Values between their bounds, scaled to [-1, 1]; the quotient of two rounded differences never exceeds 1."""
    return np.asarray(2 * ((values - lower) / (upper - lower)) - 1)


def _numbers(column: npt.NDArray[np.generic], feature: Bounded, *, clip: bool) -> FloatArray:
    """A feature's or label's column as finite numbers, within its bounds unless they are to be clipped."""
    try:
        values = np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidDataError(f"column {feature.name!r} is not numeric") from None
    if not bool(np.isfinite(values).all()):
        raise InvalidDataError(f"column {feature.name!r} has a missing or non-finite value")
    if not clip and bool(((values < feature.lower) | (values > feature.upper)).any()):
        raise InvalidDataError(f"column {feature.name!r} has a value beyond the study's bounds")
    return values


def _spelling(value: object) -> str:
    """How a label's value is spelt in a study: 1.0 and 1 are both "1"."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
