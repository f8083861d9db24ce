"""A model's weights as a document spells them: rows of numbers, which in memory are arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, FiniteFloat, GetCoreSchemaHandler, model_validator
from pydantic_core import core_schema

from parley.common.arrays import FloatArray, IntArray
from parley.common.strict import Strict

_FEW = 3  # a row is spelt by its entries if fewer than a third are not zero
_MANY = 100  # and if it is at least this long


class _AsArray:
    """A list of numbers that is read into an array (d,); ``item`` reports what is wrong with any other value."""

    def __init__(self, item: Any, dtype: type, least: float = -np.inf) -> None:  # noqa: ANN401 -- a type
        self._items, self._list = tuple[item, ...], list[item]
        self._dtype, self._least = dtype, least

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler, /) -> Any:  # noqa: ANN401
        """Return the schema of a tuple, by which an array is checked only if something is wrong with it."""
        return core_schema.no_info_wrap_validator_function(
            self._read,
            handler.generate_schema(self._items),
            serialization=core_schema.plain_serializer_function_ser_schema(
                np.ndarray.tolist, return_schema=handler.generate_schema(self._list), when_used="json"
            ),
        )

    def _read(self, given_value: Any, check: Callable[[Any], Any]) -> npt.NDArray[Any]:  # noqa: ANN401 -- any JSON value
        """Read a value as an array. Raises what ``check`` raises."""
        numbers = {int, float} if self._dtype is np.float64 else {int}
        kinds = "fi" if self._dtype is np.float64 else "i"
        if isinstance(given_value, np.ndarray):
            is_one = given_value.ndim == 1 and given_value.dtype.kind in kinds
        else:
            is_one = isinstance(given_value, list | tuple) and {*map(type, given_value)} <= numbers
        try:
            array: npt.NDArray[Any] = np.asarray(given_value if is_one else check(given_value), dtype=self._dtype)
            if not (np.isfinite(array) & (array >= self._least)).all():
                check(array.tolist())
        except OverflowError:
            raise ValueError("a number is too large") from None
        return array


Row = Annotated[FloatArray, _AsArray(float, np.float64)]
"""Weights (d,), in JSON a list of numbers."""
_Places = Annotated[IntArray, _AsArray(Annotated[int, Field(ge=0)], np.int64, 0)]
_Values = Annotated[FloatArray, _AsArray(FiniteFloat, np.float64)]


class SparseRow(Strict):
    """Weights with few that are not zero: how many there are, and the places, from 0, and values of those few."""

    length: Annotated[int, Field(ge=1, le=2**24)]
    index: _Places
    value: _Values

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.index) != len(self.value) or (np.diff(self.index) <= 0).any():
            raise ValueError("index must rise, and have as many places as there are values")
        if len(self.index) and self.index[-1] >= self.length:
            raise ValueError("index has a place beyond the length")
        return self

    @classmethod
    def spelt(cls, weights: FloatArray) -> FloatArray | dict[str, Any]:
        """Spell a row of weights (d,) as documents do: by its entries if they are few, or in full."""
        places = np.flatnonzero(weights)
        if len(weights) < _MANY or _FEW * len(places) >= len(weights):
            return weights
        return {"length": len(weights), "index": places, "value": weights[places]}

    @property
    def whole(self) -> FloatArray:
        """The weights, (d,)."""
        weights = np.zeros(self.length)
        weights[self.index] = self.value
        return weights


def stated_weights(weights: FloatArray, kind: str) -> Any:  # noqa: ANN401 -- as above
    """Return a model's weights as its document has them: a row, by its entries or in full, or lists of rows."""
    if kind == "linear":
        return SparseRow.spelt(weights)
    return weights if weights.ndim == 1 else [stated_weights(part, "") for part in weights]


def whole_weights(weights: Any) -> FloatArray:  # noqa: ANN401 -- as above
    """Return the weights of a document, validated or not. Raises ValueError for rows of unequal length."""
    if isinstance(weights, Mapping):
        weights = SparseRow.model_validate(weights)
    return weights.whole if isinstance(weights, SparseRow) else np.asarray(weights, dtype=np.float64)
