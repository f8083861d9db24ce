"""Tables as streams of Arrow record batches that can be read again: imported only while data are read.

Arrow arrays as columns of cells: imported only while a file is read, because pyarrow is large.

Cells that have types of their own, whatever their column: imported only while data are read.

So it is in SQLite, in spreadsheets and in JSON. A column's type is what its cells are: whole numbers, numbers, truth
values, lists of numbers; or texts where any is a text.
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
from parley.common.data.cells import MISSING, MISSING_TEXTS, Coded, Column
from parley.common.errors import InvalidDataError, ParleyError

STREAM_ROWS = 2**11
"""Rows of a batch: of fifty columns of numbers, 800 KB."""


@dataclass(slots=True, eq=False)
class TableStream:
    """A table's columns, and its rows each time that they are asked for. ``name`` is what to call it in errors.

    Other libraries read it by Arrow's interface for streams. These make errors of their own of what goes wrong in
    between, so it is kept as ``fault``. ``notes`` say how the table is read, where its owner should know.
    """

    name: str
    schema: Any
    read: Callable[[], Iterable[Any]]
    fault: ParleyError | None = field(default=None, init=False)
    notes: list[str] = field(default_factory=list, init=False)

    def batches(self) -> Iterator[Any]:
        """The rows, from the first on; raises InvalidDataError that never quotes a value."""
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


def gathered(batches: Iterable[Any], n_rows: int) -> Iterator[Any]:
    """Record batches joined to so many rows or a few more: what is done once a column and batch costs little then."""
    held, rows = [], 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= n_rows:
            yield pa.concat_batches(held)
            held, rows = [], 0
    if held:
        yield pa.concat_batches(held)


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


_INT64 = 2**63


def cell_type(cells: Iterable[Any]) -> Any:  # noqa: ANN401 -- pyarrow has no types
    """The type of a column of such cells, None where one holds nothing; of no cell that of nothing."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        fits = all(-_INT64 <= cell < _INT64 for cell in cells if cell is not None)
        return pa.int64() if fits else pa.float64()
    if kinds and kinds <= {int, float}:
        return pa.float64()
    if kinds == {list} and all(_is_number(each) for cell in cells if cell is not None for each in cell):
        return pa.list_(pa.float64())
    return pa.string() if kinds else pa.null()


def cell_array(cells: Sequence[Any], kind: Any) -> Any:  # noqa: ANN401 -- as above
    """Cells (n,) as one type; of bytes, lists and records among texts only that there are some."""
    if kind == pa.string():
        return pa.array([cell if cell is None or isinstance(cell, str) else _spelt(cell) for cell in cells], kind)
    if kind == pa.float64():
        return pa.array([cell if cell is None else _real(cell) for cell in cells], kind)
    return pa.array(cells, kind)


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _real(cell: float) -> float:
    """A number as a float: of one past all of these, infinity."""
    try:
        return float(cell)
    except OverflowError:
        return math.copysign(math.inf, cell)


def _spelt(cell: object) -> str:
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, dt.datetime):
        return str(cell.date()) if cell.time() == dt.time() else str(cell)
    if isinstance(cell, bytes | list | dict):
        return f"({type(cell).__name__})"
    return str(cell)
