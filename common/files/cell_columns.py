"""Cells that have types of their own, whatever their column: imported only while data are read.

So it is in SQLite, in spreadsheets and in JSON. A column's type is what its cells are: whole numbers, numbers, truth
values, lists of numbers; or texts where any is a text.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

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
