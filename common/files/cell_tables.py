"""JSON records and workbook sheets as tables: imported only while files are read, because pyarrow is large.

The size of such a file does not bound the memory that reading it takes: cells that are far apart, or records that share
no name, span billions of cells, and a workbook is compressed. So a child process runs this module as a script, reads
the file within bounds that grow with the file's size, and sends the schema and the rows as Arrow messages.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from parley.common.encoding.canonical_json import NameTwiceError, distinct_names
from parley.common.encoding.texts import decode_text
from parley.common.errors import InvalidDataError, TooLargeError
from parley.common.extras import require_extra
from parley.common.files.arrow import STREAM_ROWS, TableStream, cell_array, cell_type
from parley.common.files.kinds import reading
from parley.common.service.child import AnyArray, ChildBounds, receive_arrays, send_arrays

if TYPE_CHECKING:
    from python_calamine import CalamineSheet

_MEMORY, _MEMORY_A_BYTE = 192 * 2**20, 8
"""Bytes that reading may take: enough for 2 million cells, however well they are compressed, and so many more for each
byte of the file."""
_SECONDS, _BYTES_A_SECOND = 3, 2**22
"""Processor seconds that reading may take: for any file, and one more for each so many bytes."""


def json_table(path: Path) -> TableStream:
    """Read the records of a JSON file: a list of objects, or one object a line.

    Raises InvalidDataError for any other file, and where reading takes more than `cell_bounds`.
    """
    return _read_in_child(path, "json")


def sheet_table(path: Path, name: str | None = None) -> TableStream:
    """Read the sheet ``name`` of a workbook, or the only filled one; its first full row holds the names of columns.

    Raises MissingExtraError without the extra ``excel``, and InvalidDataError where the file is no workbook, several
    sheets are filled, or reading takes more than `cell_bounds`.
    """
    require_extra("excel", f"data file {path} is a workbook, which", instead="save it as CSV")
    return _read_in_child(path, "sheet", *([] if name is None else [name]))


def cell_bounds(path: Path) -> ChildBounds:
    """Return the memory and time that reading such a file may take, by its size."""
    size = path.stat().st_size
    return ChildBounds(
        _MEMORY + _MEMORY_A_BYTE * size,
        _SECONDS + size // _BYTES_A_SECOND,
        60.0 + size / _BYTES_A_SECOND,
        what=f"data file {path}",
        remedy="save the table alone, as CSV",
    )


def arrow_message(part: Any) -> AnyArray:  # noqa: ANN401 -- pyarrow has no types
    """Return a schema or a batch of rows as the child sends it: first the schema, then each batch."""
    return np.frombuffer(part.serialize(), np.uint8)


def _read_in_child(path: Path, kind: str, *names: str) -> TableStream:
    """Return the table that a child process reads from a file; ``names`` holds at most the name of a sheet."""
    with reading(path):
        path.open("rb").close()
    try:
        arrays = receive_arrays(__spec__.name, kind, str(path), *names, bounds=cell_bounds(path))
        schema, *batches = map(pa.py_buffer, arrays)
    except TooLargeError as error:
        raise InvalidDataError(error.detail) from None
    schema = pa.ipc.read_schema(schema)

    def read() -> Iterator[Any]:
        for batch in batches:
            yield pa.ipc.read_record_batch(batch, schema)

    return TableStream(f"data file {path}", schema, read)


# ── JSON ─────────────────────────────────────────────────────────────────────

_DECODER = json.JSONDecoder(object_pairs_hook=distinct_names)
_SPACE, _COMMA = re.compile(r"[ \t\n\r]*"), re.compile(r"[ \t\n\r]*,[ \t\n\r]*(?!\])")


def _json_messages(path: Path) -> Iterator[AnyArray]:
    """Yield the schema of a JSON file, then its batches of rows, each as bytes."""
    columns = _columns(path)
    schema = pa.schema([(name, cell_type(cells)) for name, cells in columns.items()])
    yield arrow_message(schema)
    table = pa.table([cell_array(columns.pop(field.name), field.type) for field in schema], schema=schema)
    for batch in table.to_batches(STREAM_ROWS):
        yield arrow_message(batch)


def _columns(path: Path) -> dict[str, list[Any]]:
    """Read the columns of a file's records, None where a record lacks a name; raises InvalidDataError."""
    try:
        return _collect_columns(decode_text(path.read_bytes()))
    except UnicodeDecodeError:
        reason = "it is not UTF-8: save it as such"
    except NameTwiceError:
        reason = "a record has a name twice"
    except TooLargeError as error:
        reason = error.detail
    except _LineError as error:
        reason = f"line {error.line:,} is no object of JSON"
    except _NoRecordsError:
        reason = "save the rows as a list of objects, or an object a line"
    except (ValueError, RecursionError):
        reason = "it is no JSON"
    raise InvalidDataError(f"data file {path} cannot be read: {reason}")


class _NoRecordsError(Exception):
    """A JSON text is not a table."""


class _LineError(ValueError):
    """A line is not a JSON object."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line


def _collect_columns(text: str) -> dict[str, list[Any]]:
    """Decode the records of a text one at a time, and collect their cells by column."""
    is_list = text.startswith("[", _after_space(text, 0))
    columns: dict[str, list[Any]] = {}
    n_records = 0
    for record in _list_records(text) if is_list else _line_records(text):
        for name, cell in record.items():
            cells = columns.setdefault(name, [])
            cells.extend(repeat(None, n_records - len(cells)))
            cells.append(cell)
        n_records += 1
    if n_records == 1 and not is_list and _are_nested([cells[0] for cells in columns.values()]):
        raise _NoRecordsError
    if n_records and not columns:
        raise _NoRecordsError
    for cells in columns.values():
        cells.extend(repeat(None, n_records - len(cells)))
    return columns


def _list_records(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a JSON list; raises _NoRecordsError where an item is none, ValueError for a broken list."""
    place = _after_space(text, _after_space(text, 0) + 1)
    while not text.startswith("]", place):
        record, place = _DECODER.raw_decode(text, place)
        if not isinstance(record, dict):
            raise _NoRecordsError
        yield record
        if comma := _COMMA.match(text, place):
            place = comma.end()
        elif not text.startswith("]", place := _after_space(text, place)):
            raise ValueError
    if _after_space(text, place + 1) < len(text):
        raise ValueError


def _line_records(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a text that has one a line; raises _LineError."""
    start = number = 0
    while start < len(text):
        end = text.find("\n", start) % (len(text) + 1)  # the last line may have none
        line, number, start = text[start:end], number + 1, end + 1
        if not line.strip():
            continue
        try:
            record = _DECODER.decode(line)
        except NameTwiceError:
            raise
        except ValueError:
            raise _LineError(number) from None
        if not isinstance(record, dict):
            raise _LineError(number)
        yield record


def _after_space(text: str, start: int) -> int:
    """Return the place of the next character from ``start`` on that is not white space between JSON values."""
    match = _SPACE.match(text, start)
    return match.end() if match else start


def _are_nested(cells: Iterable[Any]) -> bool:
    """Return whether cells of an object hold tables, not a row: only lists and objects, not just lists of numbers."""
    cells = list(cells)
    lists = [cell for cell in cells if isinstance(cell, list)]
    are_numbers = len(lists) == len(cells) and all(isinstance(item, int | float) for cell in lists for item in cell)
    return bool(cells) and all(isinstance(cell, list | dict) for cell in cells) and not are_numbers


# ── workbooks ────────────────────────────────────────────────────────────────

_EMPTY_CELLS = ("", "#N/A")
"""Cells of a workbook that hold nothing."""


def _sheet_messages(path: Path, wanted: Sequence[str]) -> Iterator[AnyArray]:
    """Yield the schema of a workbook's sheet, then its batches of rows, each as bytes."""
    sheet, head = _filled_sheet(path, wanted)
    schema = pa.schema([(name, cell_type(kinds.values())) for name, _, kinds in head.columns])
    yield arrow_message(schema)
    body = (row for row in islice(_sheet_rows(sheet), head.place + 1, None) if any(cell is not None for cell in row))
    while rows := list(islice(body, STREAM_ROWS)):
        cells = list(zip(*rows, strict=True))
        arrays = [cell_array(cells[i], field.type) for field, (_, i, _) in zip(schema, head.columns, strict=True)]
        yield arrow_message(pa.record_batch(arrays, schema=schema))


@dataclass(frozen=True, slots=True)
class _Head:
    """A sheet's line of names: its place, and each column's name, place, and one cell of each type below."""

    place: int
    columns: Sequence[tuple[str, int, Mapping[type, Any]]]


def _filled_sheet(path: Path, wanted: Sequence[str]) -> tuple[CalamineSheet, _Head]:
    """Return the sheet whose name is ``wanted``, or the only filled one; raises InvalidDataError."""
    from python_calamine import CalamineError, CalamineWorkbook  # noqa: PLC0415 -- an extra

    filled = []
    try:
        with CalamineWorkbook.from_path(path) as book:
            if not set(wanted) <= set(book.sheet_names):
                raise InvalidDataError(f"data file {path} has no sheet of this name")
            for name in wanted or book.sheet_names:
                sheet = book.get_sheet_by_name(name)
                if (head := _head(path, sheet)) is not None:
                    filled.append((sheet, head))
                if len(filled) > 1:
                    raise InvalidDataError(f"data file {path} has several sheets: say which by FILE::SHEET")
    except CalamineError:
        reason = "it is no workbook, or it has a password or far too many cells"
        raise InvalidDataError(f"data file {path} cannot be read: {reason}") from None
    if not filled:
        raise InvalidDataError(f"data file {path} cannot be read: it is empty")
    return filled[0]


def _sheet_rows(sheet: CalamineSheet) -> Iterator[list[Any]]:
    """Yield the rows of a sheet, None where a cell holds nothing."""
    for row in sheet.iter_rows():
        yield [None if cell in _EMPTY_CELLS else cell for cell in row]


def _head(path: Path, sheet: CalamineSheet) -> _Head | None:
    """Find the line of names and what the columns below hold; None for an empty sheet.

    The names are in the first row that fills more than one cell: a title fills one. Raises InvalidDataError for a
    column that is named twice.
    """
    place, header, n_named = 0, [], 0
    kinds: list[dict[type, Any]] = []
    for number, row in enumerate(_sheet_rows(sheet)):
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


# ── the child process ────────────────────────────────────────────────────────


def _main(kind: str, file: str, *names: str) -> None:
    """Send the parent the table of a file; a workbook's sheet may be named."""
    path = Path(file)
    if kind == "sheet":
        import python_calamine  # noqa: F401, PLC0415 -- its memory does not count: the bounds begin below

        make = partial(_sheet_messages, path, names)
    else:
        make = partial(_json_messages, path)
    send_arrays(make, cell_bounds(path))


if __name__ == "__main__":
    _main(*sys.argv[1:])
