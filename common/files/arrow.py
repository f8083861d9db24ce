"""Arrow tables as streams that can be read again, and their cells: imported only while data are read.

A `TableStream` is how every reader of files and databases hands on its rows. Its columns become columns of cells by
`column_of`. SQLite, workbooks and JSON have a type for each cell rather than for each column: `cell_type` and
`cell_array` make one type of them: whole numbers, numbers, truth values, lists of numbers, or texts where any cell is
a text.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

from parley.common.arrays import FloatArray
from parley.common.data.cells import MISSING, MISSING_TEXTS, ROUNDED_SIGN, Coded, Column, is_rounded
from parley.common.errors import InvalidDataError, ParleyError

STREAM_ROWS = 2**11
"""Rows of a batch: of fifty columns of numbers, 800 KB."""


@dataclass(slots=True, eq=False)
class TableStream:
    """A table's columns, and its rows each time that they are read. ``name`` is what errors call it.

    Other libraries read it through Arrow's interface for streams. They replace an error that is raised meanwhile by one
    of their own, so the first is kept as ``fault``. ``notes`` say how the table is read, where its owner should know.
    """

    name: str
    schema: Any
    read: Callable[[], Iterable[Any]]
    fault: ParleyError | None = field(default=None, init=False)
    notes: list[str] = field(default_factory=list, init=False)

    def batches(self) -> Iterator[Any]:
        """Read the rows from the first on; raises InvalidDataError that never quotes a value."""
        try:
            yield from self.read()
        except ParleyError as error:
            self.fault = error
            raise
        except (OSError, UnicodeError, pa.ArrowException):
            self.fault = InvalidDataError(f"{self.name} cannot be read to its end")
            raise self.fault from None

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self.schema, self.batches())
        return reader.__arrow_c_stream__(requested_schema)


def join_batches(batches: Iterable[Any], n_rows: int) -> Iterator[Any]:
    """Join record batches to at least ``n_rows`` rows, so that work for each batch and column costs little."""
    pending, rows = [], 0
    for batch in batches:
        pending.append(batch)
        rows += batch.num_rows
        if rows >= n_rows:
            yield pa.concat_batches(pending)
            pending, rows = [], 0
    if pending:
        yield pa.concat_batches(pending)


_REAL = pa.float64()


def column_of(array: Any, *, as_number: bool) -> Column:  # noqa: ANN401 -- pyarrow has no types
    """Return an Arrow array as numbers with NaN for null, or as codes."""
    if as_number and (numbers := _numbers(array)) is not None:
        return numbers
    kind = array.type
    if pa.types.is_nested(kind) or pa.types.is_duration(kind) or pa.types.is_interval(kind):
        return Coded(np.arange(len(array)), tuple(array.to_pylist()))
    if pa.types.is_temporal(kind) or pa.types.is_string_view(kind):
        array = array.cast(pa.string())
    coded = array if pa.types.is_dictionary(kind) else array.dictionary_encode()
    codes = coded.indices.cast(pa.int64()).fill_null(MISSING).to_numpy()
    values = coded.dictionary.to_pylist()
    return Coded(
        codes, tuple(value.removeprefix(ROUNDED_SIGN) if isinstance(value, str) else value for value in values)
    )


def _numbers(array: Any) -> FloatArray | None:  # noqa: ANN401 -- as above
    """Return an Arrow array of numbers, or of texts that all spell numbers, as numbers; None for any other array."""
    kind = array.type
    if kind != _REAL:
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            empty = compute.is_in(array, value_set=pa.array(["", *MISSING_TEXTS]))
            array = compute.if_else(empty, None, array)
        elif not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
            return None
        try:
            array = array.cast(_REAL, safe=False)
        except pa.ArrowInvalid:
            return None
    numbers: FloatArray = array.to_numpy(zero_copy_only=False)
    return numbers


_INT64 = 2**63
_KINDS_OF_NO_VALUE = (bytes, list, dict)
OF_NO_VALUE = frozenset(f"({kind.__name__})" for kind in _KINDS_OF_NO_VALUE)
"""What bytes, lists and records become where cells of a column are texts."""


def cell_type(cells: Iterable[Any]) -> Any:  # noqa: ANN401 -- pyarrow has no types
    """Return the type of a column of such cells, where None holds nothing; pyarrow's null type for no cells."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        fits = all(-_INT64 <= cell < _INT64 for cell in cells if cell is not None)
        return pa.int64() if fits else pa.float64()
    if kinds and kinds <= {int, float}:
        return pa.float64()
    if kinds == {list} and all(_is_number(item) for cell in cells if cell is not None for item in cell):
        return pa.list_(pa.float64())
    return pa.string() if kinds else pa.null()


def cell_array(cells: Sequence[Any], kind: Any) -> Any:  # noqa: ANN401 -- as above
    """Return cells (n,) as an array of one type; bytes, lists and records among texts become the name of their type."""
    if kind == pa.string():
        return pa.array([cell if cell is None or isinstance(cell, str) else _spelt(cell) for cell in cells], kind)
    if kind == pa.float64():
        return pa.array([cell if cell is None else _real(cell) for cell in cells], kind)
    return pa.array(cells, kind)


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _real(cell: float) -> float:
    """Return a number as a float; infinity for one beyond the range of floats."""
    try:
        return float(cell)
    except OverflowError:
        return math.inf if cell > 0 else -math.inf


def _spelt(cell: object) -> str:
    if isinstance(cell, float) and cell.is_integer():
        return f"{ROUNDED_SIGN if is_rounded(cell) else ''}{int(cell)}"
    if isinstance(cell, dt.datetime):
        return str(cell.date()) if cell.time() == dt.time() else str(cell)
    if isinstance(cell, _KINDS_OF_NO_VALUE):
        return f"({type(cell).__name__})"
    return str(cell)
