"""Records of JSON, and sheets of workbooks, as tables: imported only while files are read.

What they take is not told by their file: cells that are far apart, or records that share no name, span billions, and a
workbook is packed. So a child process reads them (`parley.common.files.json_reader`,
`parley.common.files.sheet_reader`), within bounds that grow with the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from parley.common.errors import InvalidDataError, TooLargeError
from parley.common.extras import require_extra
from parley.common.files.streams import TableStream
from parley.common.files.tables import reading
from parley.common.service.child import AnyArray, ChildBounds, receive_arrays

_MEMORY, _MEMORY_A_BYTE = 192 * 2**20, 8
"""Bytes that reading may take: for 2 million cells, however well they are packed, and by each byte of the file more."""
_SECONDS, _BYTES_A_SECOND = 3, 2**22
"""Seconds of the processor that reading may take: of any file, and one more for each so many bytes."""


def json_table(path: Path) -> TableStream:
    """The records of a file of JSON: a list of objects, or an object a line.

    Raises InvalidDataError for any other, and where reading takes more than `cell_bounds`.
    """
    return _cells("json_reader", path)


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
