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

_FEW = 3  # a row of which fewer than a third is not zero is spelt by its entries,
_MANY = 100  # if it is at least so long


class _AsArray:
    """A list of numbers that is read into an array (d,); of any other value ``item`` says what is wrong with it."""

    def __init__(self, item: Any, dtype: type, least: float = -np.inf) -> None:  # noqa: ANN401 -- a type
        self._items, self._list = tuple[item, ...], list[item]
        self._dtype, self._least = dtype, least

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler, /) -> Any:  # noqa: ANN401
        """That of a tuple, by which an array is checked only where something is wrong with it."""
        return core_schema.no_info_wrap_validator_function(
            self._read,
            handler.generate_schema(self._items),
            serialization=core_schema.plain_serializer_function_ser_schema(
                np.ndarray.tolist, return_schema=handler.generate_schema(self._list), when_used="json"
            ),
        )

    def _read(self, told: Any, check: Callable[[Any], Any]) -> npt.NDArray[Any]:  # noqa: ANN401 -- any JSON value
        """What is told as an array; raises what ``check`` raises."""
        numbers = {int, float} if self._dtype is np.float64 else {int}
        kinds = "fi" if self._dtype is np.float64 else "i"
        if isinstance(told, np.ndarray):
            is_one = told.ndim == 1 and told.dtype.kind in kinds
        else:
            is_one = isinstance(told, list | tuple) and {*map(type, told)} <= numbers
        try:
            found: npt.NDArray[Any] = np.asarray(told if is_one else check(told), dtype=self._dtype)
            if not (np.isfinite(found) & (found >= self._least)).all():
                check(found.tolist())
        except OverflowError:
            raise ValueError("a number is too large") from None
        return found


Row = Annotated[FloatArray, _AsArray(float, np.float64)]
"""Weights (d,), in JSON a list of numbers."""
_Places = Annotated[IntArray, _AsArray(Annotated[int, Field(ge=0)], np.int64, 0)]
_Values = Annotated[FloatArray, _AsArray(FiniteFloat, np.float64)]


class SparseRow(Strict):
    """Weights of which few are not zero: how many there are, and places, from 0, and values of those few."""

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
        """A row of weights (d,) as documents have it: by its entries, where they are few, or whole."""
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


def told_weights(weights: FloatArray, kind: str) -> Any:  # noqa: ANN401 -- as above
    """A model's weights as its document has them: a row, by its entries or whole, or lists of rows."""
    if kind == "linear":
        return SparseRow.spelt(weights)
    return weights if weights.ndim == 1 else [told_weights(part, "") for part in weights]


def whole_weights(told: Any) -> FloatArray:  # noqa: ANN401 -- as above
    """The weights of a document, read or not; raises ValueError for rows of unequal length."""
    if isinstance(told, Mapping):
        told = SparseRow.model_validate(told)
    return told.whole if isinstance(told, SparseRow) else np.asarray(told, dtype=np.float64)
