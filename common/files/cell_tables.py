"""Records of JSON, and sheets of workbooks, as tables: imported only while files are read.

What they take is not told by their file: cells that are far apart, or records that share no name, span billions, and a
workbook is packed. So a child process reads them (`parley.common.files.cell_tables`,
`parley.common.files.sheet_reader`), within bounds that grow with the file.

What the child process of `cell_tables` runs for JSON: it reads records and sends Arrow's messages.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from parley.common.encoding.canonical_json import NameTwiceError, distinct_names
from parley.common.encoding.texts import decode_text
from parley.common.errors import InvalidDataError, TooLargeError
from parley.common.extras import require_extra
from parley.common.files.arrow import STREAM_ROWS, TableStream, cell_array, cell_type
from parley.common.files.tables import reading
from parley.common.service.child import AnyArray, ChildBounds, receive_arrays, send_arrays

_MEMORY, _MEMORY_A_BYTE = 192 * 2**20, 8
"""Bytes that reading may take: for 2 million cells, however well they are packed, and by each byte of the file more."""
_SECONDS, _BYTES_A_SECOND = 3, 2**22
"""Seconds of the processor that reading may take: of any file, and one more for each so many bytes."""


def json_table(path: Path) -> TableStream:
    """The records of a file of JSON: a list of objects, or an object a line.

    Raises InvalidDataError for any other, and where reading takes more than `cell_bounds`.
    """
    return _cells("cell_tables", path)


def sheet_table(path: Path, name: str | None = None) -> TableStream:
    """A sheet of a workbook, by its name, or the one that is filled; its first full row has the names.

    Raises MissingExtraError without the extra ``excel``, and InvalidDataError where the file is no workbook, several
    sheets are filled, or reading takes more than `cell_bounds`.
    """
    require_extra("excel", f"data file {path} is a workbook, which", instead="save it as CSV")
    return _cells("sheet_reader", path, *([] if name is None else [name]))


def cell_bounds(path: Path) -> ChildBounds:
    """What reading such a file may take, by its size."""
    size = path.stat().st_size
    return ChildBounds(
        _MEMORY + _MEMORY_A_BYTE * size,
        _SECONDS + size // _BYTES_A_SECOND,
        60.0 + size / _BYTES_A_SECOND,
        what=f"data file {path}",
        remedy="save the table alone, as CSV",
    )


def arrow_message(part: Any) -> AnyArray:  # noqa: ANN401 -- pyarrow has no types
    """A schema or a batch of rows as a child sends it: the first is the schema."""
    return np.frombuffer(part.serialize(), np.uint8)


def _cells(reader: str, path: Path, *arguments: str) -> TableStream:
    """What a child process reads of a file."""
    with reading(path):
        path.open("rb").close()
    try:
        arrays = receive_arrays(f"parley.common.files.{reader}", str(path), *arguments, bounds=cell_bounds(path))
        schema, *batches = map(pa.py_buffer, arrays)
    except TooLargeError as error:
        raise InvalidDataError(error.detail) from None
    schema = pa.ipc.read_schema(schema)

    def read() -> Iterator[Any]:
        for batch in batches:
            yield pa.ipc.read_record_batch(batch, schema)

    return TableStream(f"data file {path}", schema, read)


_DECODER = json.JSONDecoder(object_pairs_hook=distinct_names)
_SPACE, _COMMA = re.compile(r"[ \t\n\r]*"), re.compile(r"[ \t\n\r]*,[ \t\n\r]*(?!\])")


def _arrays() -> Iterator[AnyArray]:
    """The schema of the file that the command line names, then its rows, each as bytes."""
    columns = _columns(Path(sys.argv[1]))
    schema = pa.schema([(name, cell_type(cells)) for name, cells in columns.items()])
    yield arrow_message(schema)
    table = pa.table([cell_array(columns.pop(field.name), field.type) for field in schema], schema=schema)
    for batch in table.to_batches(STREAM_ROWS):
        yield arrow_message(batch)


def _columns(path: Path) -> dict[str, list[Any]]:
    """The columns of the records of a file, None where a record has none of a name; raises InvalidDataError."""
    try:
        return _gathered(decode_text(path.read_bytes()))
    except UnicodeDecodeError:
        why = "it is not UTF-8: save it as such"
    except NameTwiceError:
        why = "a record has a name twice"
    except TooLargeError as error:
        why = error.detail
    except _LineError as error:
        why = f"line {error.line:,} is no object of JSON"
    except _NoRecordsError:
        why = "save the rows as a list of objects, or an object a line"
    except (ValueError, RecursionError):
        why = "it is no JSON"
    raise InvalidDataError(f"data file {path} cannot be read: {why}")


class _NoRecordsError(Exception):
    """A text of JSON is no table."""


class _LineError(ValueError):
    """A line that is no object."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line


def _gathered(text: str) -> dict[str, list[Any]]:
    """The columns of a text's records, of which one at a time is there besides."""
    is_list = text.startswith("[", _after_space(text, 0))
    columns: dict[str, list[Any]] = {}
    n_records = 0
    for record in _listed(text) if is_list else _lines(text):
        for name, cell in record.items():
            cells = columns.setdefault(name, [])
            cells.extend(repeat(None, n_records - len(cells)))
            cells.append(cell)
        n_records += 1
    if n_records == 1 and not is_list and _hold_tables([cells[0] for cells in columns.values()]):
        raise _NoRecordsError
    if n_records and not columns:
        raise _NoRecordsError
    for cells in columns.values():
        cells.extend(repeat(None, n_records - len(cells)))
    return columns


def _listed(text: str) -> Iterator[Mapping[str, Any]]:
    """The objects of a list; raises ValueError, and _NoRecordsError where an item is anything else."""
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


def _lines(text: str) -> Iterator[Mapping[str, Any]]:
    """The objects of a text, one a line; raises _LineError."""
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
    """Where a text goes on after what stands between JSON's values."""
    match = _SPACE.match(text, start)
    return match.end() if match else start


def _hold_tables(cells: Iterable[Any]) -> bool:
    """Whether cells of an object are no row: nothing but lists and objects, and not only lists of numbers."""
    cells = list(cells)
    lists = [cell for cell in cells if isinstance(cell, list)]
    are_numbers = len(lists) == len(cells) and all(isinstance(each, int | float) for cell in lists for each in cell)
    return bool(cells) and all(isinstance(cell, list | dict) for cell in cells) and not are_numbers


if __name__ == "__main__":
    send_arrays(_arrays, cell_bounds(Path(sys.argv[1])))
