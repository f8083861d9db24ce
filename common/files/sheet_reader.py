"""What the child process of `cell_tables` runs: it reads a sheet and sends it as Arrow's messages."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from python_calamine import CalamineError, CalamineSheet, CalamineWorkbook

from parley.common.errors import InvalidDataError
from parley.common.files.arrow import STREAM_ROWS, cell_array, cell_type
from parley.common.files.cell_tables import arrow_message, cell_bounds
from parley.common.service.child import AnyArray, send_arrays

_EMPTY = ("", "#N/A")
"""Cells that hold nothing."""


def _arrays() -> Iterator[AnyArray]:
    """The schema of the sheet that the command line names, then its rows, each as bytes."""
    path, *inner = sys.argv[1:]
    sheet, head = _filled_sheet(Path(path), inner)
    schema = pa.schema([(name, cell_type(kinds.values())) for name, _, kinds in head.columns])
    yield arrow_message(schema)
    body = (row for row in islice(_rows(sheet), head.place + 1, None) if any(cell is not None for cell in row))
    while rows := list(islice(body, STREAM_ROWS)):
        cells = list(zip(*rows, strict=True))
        arrays = [cell_array(cells[i], field.type) for field, (_, i, _) in zip(schema, head.columns, strict=True)]
        yield arrow_message(pa.record_batch(arrays, schema=schema))


@dataclass(frozen=True, slots=True)
class _Head:
    """The line of names of a sheet: its place, and each column's name, place, and a cell below of each type."""

    place: int
    columns: Sequence[tuple[str, int, Mapping[type, Any]]]


def _filled_sheet(path: Path, inner: Sequence[str]) -> tuple[CalamineSheet, _Head]:
    """The sheet of a name, or the one that is filled; raises InvalidDataError."""
    filled = []
    try:
        with CalamineWorkbook.from_path(path) as book:
            if not set(inner) <= set(book.sheet_names):
                raise InvalidDataError(f"data file {path} has no sheet of this name")
            for each in inner or book.sheet_names:
                sheet = book.get_sheet_by_name(each)
                if (head := _head(path, sheet)) is not None:
                    filled.append((sheet, head))
                if len(filled) > 1:
                    raise InvalidDataError(f"data file {path} has several sheets: say which by FILE::SHEET")
    except CalamineError:
        why = "it is no workbook, or it has a password or far too many cells"
        raise InvalidDataError(f"data file {path} cannot be read: {why}") from None
    if not filled:
        raise InvalidDataError(f"data file {path} cannot be read: it is empty")
    return filled[0]


def _rows(sheet: CalamineSheet) -> Iterator[list[Any]]:
    """The rows of a sheet, None where a cell holds nothing."""
    for row in sheet.iter_rows():
        yield [None if cell in _EMPTY else cell for cell in row]


def _head(path: Path, sheet: CalamineSheet) -> _Head | None:
    """What is above and in the columns: the first row that fills more cells than one has the names, as titles do not.

    None of a sheet that is empty; raises InvalidDataError for a column that is named twice.
    """
    place, header, n_named = 0, [], 0
    kinds: list[dict[type, Any]] = []
    for number, row in enumerate(_rows(sheet)):
        n_filled = sum(cell is not None for cell in row)
        if n_filled > n_named and n_named < 2:  # noqa: PLR2004 -- a title fills one
            place, header, n_named = number, row, n_filled
            kinds = [{} for _ in row]
        elif n_filled:
            for types, cell in zip(kinds, row, strict=True):
                types.setdefault(type(cell), cell)
    places = [i for i, name in enumerate(header) if name is not None]
    names = [str(header[i]).strip() for i in places]
    if len(set(names)) < len(names):
        raise InvalidDataError(f"data file {path} names columns twice: see line {place + 1:,} of its sheet")
    columns = [(name, i, kinds[i]) for name, i in zip(names, places, strict=True)]
    return _Head(place, columns) if columns else None


if __name__ == "__main__":
    send_arrays(_arrays, cell_bounds(Path(sys.argv[1])))
