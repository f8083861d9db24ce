"""The identifiers of persons in Arrow's columns, as keys: imported only while data are read, because pyarrow is large.

`parley.common.data.persons` says what keys are. Texts are read as their bytes, none becomes an object of Python.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

from parley.common.data.cells import MISSING_TEXTS
from parley.common.data.persons import (
    PersonIndex,
    PersonKeys,
    PersonOrder,
    keys_of_floats,
    keys_of_texts,
    keys_of_whole,
)
from parley.common.data.study import Study
from parley.common.errors import InvalidDataError
from parley.common.files.arrow import OF_NO_VALUE


def keys_of_array(array: Any, name: str) -> PersonKeys:  # noqa: ANN401 -- pyarrow has no types
    """Return the keys of an Arrow array (n,) of identifiers. Raises InvalidDataError for a type that holds none."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        values = array.dictionary
        values = values.cast(pa.large_string()) if pa.types.is_string_view(values.type) else values
        return keys_of_array(compute.take(values, array.indices), name)
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return keys_of_whole(
            array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False),
            array.is_null().to_numpy(zero_copy_only=False),
        )
    if pa.types.is_floating(kind):
        return keys_of_floats(array.to_numpy(zero_copy_only=False))
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise _no_identifier(kind, name)
    try:
        texts = compute.utf8_trim_whitespace(
            (_instants(array) if pa.types.is_timestamp(kind) else array).cast(pa.large_string())
        )
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise _no_identifier(kind, name) from None
    if compute.any(compute.is_in(texts, value_set=pa.array(sorted(OF_NO_VALUE), pa.large_string()))).as_py():
        raise InvalidDataError(f"column {name!r} has bytes, lists or records, which cannot say whose a row is")
    is_missing = compute.is_in(texts, value_set=pa.array([None, *sorted(MISSING_TEXTS)], pa.large_string()))
    texts = compute.if_else(is_missing, "", texts)
    _, ends, characters = texts.buffers()
    first = texts.offset
    return keys_of_texts(
        np.frombuffer(characters or b"", dtype=np.uint8),
        np.frombuffer(ends, dtype=np.int64)[first : first + len(texts) + 1],
    )


def _instants(array: Any) -> Any:  # noqa: ANN401 -- as above
    """Return times as texts that are alike for one instant, of every unit and zone; for midnight, that of its day."""
    kind = array.type
    texts = array.cast(pa.timestamp(kind.unit, kind.tz and "UTC")).cast(pa.large_string())
    for nothing in (r"Z$", r"\.0+$", r" 00:00:00$"):
        texts = compute.replace_substring_regex(texts, nothing, "")
    return compute.replace_substring_regex(texts, r"(\.\d*[1-9])0+$", r"\1")


def _no_identifier(kind: Any, name: str) -> InvalidDataError:  # noqa: ANN401 -- as above
    return InvalidDataError(f"column {name!r} is of type {kind}, which cannot say whose a row is: make a text of it")


def order_of(study: Study, columns: Iterable[Any]) -> PersonOrder | None:
    """Return where the rows of a table go, by the ``columns`` of identifiers of some rows at a time.

    None for a study without persons. Raises InvalidDataError as `keys_of_array` does.
    """
    if study.person is None:
        return None
    index = PersonIndex(study.person)
    for column in columns:
        index.add(keys_of_array(column, study.person.column))
    pa.default_memory_pool().release_unused()
    return index.ordered(study.hold_out)
