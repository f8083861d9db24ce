"""Arrow arrays as columns of cells: imported only while a file is read, because pyarrow is large."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

from parley.common.arrays import FloatArray
from parley.common.data.cells import MISSING, MISSING_TEXTS, Coded, Column

_REAL = pa.float64()


def column_of(array: Any, *, as_number: bool) -> Column:  # noqa: ANN401 -- pyarrow has no types
    """An Arrow array as numbers with NaN for null, or as codes."""
    if as_number and (numbers := _numbers(array)) is not None:
        return numbers
    kind = array.type
    if pa.types.is_nested(kind) or pa.types.is_duration(kind):
        return Coded(np.arange(len(array)), tuple(array.to_pylist()))
    if pa.types.is_interval(kind):
        return Coded(np.arange(len(array)), tuple(array.to_pylist()))
    if pa.types.is_temporal(kind) or pa.types.is_string_view(kind):
        array = array.cast(pa.string())
    coded = array if pa.types.is_dictionary(kind) else array.dictionary_encode()
    codes = coded.indices.cast(pa.int64()).fill_null(MISSING).to_numpy(zero_copy_only=False)
    return Coded(codes, tuple(coded.dictionary.to_pylist()))


def _numbers(array: Any) -> FloatArray | None:  # noqa: ANN401 -- as above
    """An Arrow array of numbers, or of texts that spell nothing else, as numbers; None for any other."""
    kind = array.type
    if kind != _REAL:
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            empty = compute.is_in(array, value_set=pa.array(["", *MISSING_TEXTS], kind))
            array = compute.if_else(empty, pa.scalar(None, kind), array)
        elif not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
            return None
        try:
            array = array.cast(_REAL, safe=False)
        except pa.ArrowInvalid:
            return None
    numbers: FloatArray = array.to_numpy(zero_copy_only=False)
    return numbers
