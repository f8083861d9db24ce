"""Sheets of workbooks as tables: imported only while files are read.

What a sheet takes is not told by its file: cells that are far apart span billions, and a workbook is packed. So a child
process reads it (`common.files.sheet_reader`), within bounds that grow with the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from common.errors import InvalidDataError, TooLargeError
from common.files.streams import TableStream
from common.files.tables import reading
from common.service.child import ChildBounds, receive_arrays

_READER = "common.files.sheet_reader"
_MEMORY, _MEMORY_A_BYTE = 208 * 2**20, 8
"""Bytes that reading may take: for 2 million cells, however well they are packed, and by each byte of the file more."""
_SECONDS, _BYTES_A_SECOND = 3, 2**22
"""Seconds of the processor likewise."""


def sheet_table(path: Path, name: str | None = None) -> TableStream:
    """A sheet of a workbook, by its name, or the one that is filled; its first full row has the names.

    Raises InvalidDataError where the extra is not installed, the file is no workbook, several sheets are filled, or
    reading takes more than `sheet_bounds`.
    """
    if find_spec("python_calamine") is None:
        raise InvalidDataError(f"data file {path} is a workbook, which needs pip install 'parley[excel]'; or save CSV")
    with reading(path):
        path.open("rb").close()
    inner = [] if name is None else [name]
    try:
        head, *parts = receive_arrays(_READER, str(path), *inner, bounds=sheet_bounds(path))
    except TooLargeError as error:
        raise InvalidDataError(error.detail) from None
    schema = pa.ipc.read_schema(pa.py_buffer(head))

    def read() -> Iterator[Any]:
        for part in parts:
            yield pa.ipc.read_record_batch(pa.py_buffer(part), schema)

    return TableStream(f"data file {path}", schema, read)


def sheet_bounds(path: Path) -> ChildBounds:
    """What reading a workbook may take, by the size of its file."""
    size = path.stat().st_size
    return ChildBounds(
        _MEMORY + _MEMORY_A_BYTE * size,
        _SECONDS + size // _BYTES_A_SECOND,
        60.0 + size / _BYTES_A_SECOND,
        what=f"data file {path}",
        remedy="save the sheet alone, as CSV",
    )
