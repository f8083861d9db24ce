"""How large a table is, by what its file says of itself: counted before any of it is decoded."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from parley.common.files.column_names import columns_meant
from parley.common.files.csv_files import CsvFile
from parley.common.files.tables import kind_of, reading


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
    with reading(path):
        if kind_of(path) != "csv":
            return _parquet_size(path, wanted)
        file = CsvFile(path)
        return TableSize(file.n_lines, file.n_lines * len(columns_meant(file.places, wanted)))


def _parquet_size(path: Path, wanted: Collection[str]) -> TableSize:
    from pyarrow.parquet import read_metadata  # noqa: PLC0415 -- 5 MB, for who needs it

    metadata = read_metadata(path)
    meant = set(columns_meant(metadata.schema.to_arrow_schema().names, wanted).values())
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    rows = cells = 0
    for group in groups:
        rows += group.num_rows
        for i in range(group.num_columns):
            column = group.column(i)
            if column.path_in_schema.partition(".")[0] in meant:
                cells += max(column.num_values, group.num_rows)
    if min(metadata.num_rows, rows) < 0 or metadata.num_rows != rows:
        raise pa.ArrowInvalid
    return TableSize(rows, cells)
