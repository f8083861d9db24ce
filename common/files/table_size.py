"""How large a table is, by what its file says of itself: counted before any of it is decoded."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from common.files.file_tables import reading
from common.files.tables import column_names, is_csv

_BLOCK = 2**20


@dataclass(frozen=True, slots=True)
class TableSize:
    """Rows of a table, of CSV so many at most, and the cells of the columns that are wanted of it.

    A list has as many cells as it has items.
    """

    rows: int
    cells: int


def size_of(path: Path, wanted: Collection[str]) -> TableSize:
    """The size of a CSV or Parquet file, with no more of its cells decoded than the names of its columns.

    Raises InvalidDataError, which names the file, where it cannot be read. What a file says of itself may be wrong: a
    decoder does not read more rows than that, but what they take is told by decoding alone.
    """
    if not is_csv(path):
        return _parquet_size(path, wanted)
    names = column_names(path)
    with reading(path):
        rows = _count_lines(path) - 1
    return TableSize(rows, rows * len(set(names) & set(wanted)))


def _parquet_size(path: Path, wanted: Collection[str]) -> TableSize:
    from pyarrow.parquet import read_metadata  # noqa: PLC0415 -- 5 MB, for who needs it

    with reading(path):
        metadata = read_metadata(path)
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        rows = cells = 0
        for group in groups:
            rows += group.num_rows
            for i in range(group.num_columns):
                column = group.column(i)
                if column.path_in_schema.partition(".")[0] in wanted:
                    cells += max(column.num_values, group.num_rows)
        if min(metadata.num_rows, rows) < 0 or metadata.num_rows != rows:
            raise pa.ArrowInvalid
    return TableSize(rows, cells)


def _count_lines(path: Path) -> int:
    """At least as many lines as a CSV file has rows: a line end within a cell counts as well."""
    count, last = 1, b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            count += block.count(b"\n") or block.count(b"\r")
            last = block
    return count - last.endswith((b"\n", b"\r"))
