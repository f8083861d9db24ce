"""Read Parquet files and their texts without repeating long ones: imported only while files are read.

A file may hold a text once and refer to it from a million rows; decoded, each row would have a copy of its own. So
columns of long texts are read as dictionaries, codes and the texts that they stand for, and are expanded only where
that does not take too much memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import compute

from parley.common.data.loading import BLOCK_ROWS
from parley.common.encoding.texts import shortened
from parley.common.errors import InvalidDataError

MOST_TEXT = 2**26
"""Bytes that the texts of a column may take in the rows that are read together."""
_OF_DICTIONARIES = frozenset({"PLAIN_DICTIONARY", "RLE_DICTIONARY", "PLAIN", "RLE", "BIT_PACKED"})
"""The encodings that pyarrow can read as a dictionary."""


def open_parquet(path: Path, buffer_size: int) -> Any:  # noqa: ANN401 -- pyarrow has no types
    """Open a Parquet file with its columns of long texts as dictionaries; raises the errors of pyarrow."""
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415 -- 5 MB, for who needs it

    file = ParquetFile(path, buffer_size=buffer_size, pre_buffer=False)
    metadata = file.metadata
    texts = [field.name for field in file.schema_arrow if _is_text(field.type)]
    for are_long in (_may_be_long, _are_long):  # by the metadata of the file, then by its dictionaries
        if not (texts := are_long(file, texts)):
            break
        file.close()
        file = ParquetFile(path, metadata=metadata, read_dictionary=texts, buffer_size=buffer_size, pre_buffer=False)
    else:
        return file
    file.close()
    return ParquetFile(path, metadata=metadata, buffer_size=buffer_size, pre_buffer=False)


def _may_be_long(file: Any, texts: Collection[str]) -> list[str]:  # noqa: ANN401 -- as above
    """Return columns of texts that might take too much memory if every row held the longest one that fits the file."""
    return list(dict.fromkeys(name for name, _ in _suspects(file.metadata, frozenset(texts))))


def _are_long(file: Any, texts: Collection[str]) -> list[str]:  # noqa: ANN401 -- as above
    """Return those of some columns, read as dictionaries, whose dictionary holds a long text."""
    long = set()
    for name, group in _suspects(file.metadata, frozenset(texts)):
        for batch in islice(file.iter_batches(1, row_groups=[group], columns=[name], use_threads=False), 1):
            lengths = compute.binary_length(batch.column(0).dictionary)
            if (compute.max(lengths).as_py() or 0) * BLOCK_ROWS > MOST_TEXT:
                long.add(name)
    return [name for name in texts if name in long]


def _suspects(metadata: Any, texts: Collection[str]) -> Iterator[tuple[str, int]]:  # noqa: ANN401 -- as above
    """Yield columns of texts, each with a group of rows that might take too much memory, one text for each row."""
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group)
        for i in range(rows.num_columns):
            column = rows.column(i)
            most = column.total_uncompressed_size * min(rows.num_rows, BLOCK_ROWS)
            if column.path_in_schema in texts and most > MOST_TEXT and _can_be_dictionary(column):
                yield column.path_in_schema, group


def _can_be_dictionary(column: Any) -> bool:  # noqa: ANN401 -- as above
    """Return whether a column of a group of rows has a dictionary that pyarrow can read as such."""
    return "DICTIONARY" in "".join(column.encodings) and set(column.encodings) <= _OF_DICTIONARIES


def as_texts(where: str, name: str, column: Any) -> Any:  # noqa: ANN401 -- as above
    """Expand a column (n,) that is a dictionary of texts; raises InvalidDataError where that takes too much memory."""
    check_texts(where, name, column)
    kind = column.type
    return column.cast(kind.value_type) if pa.types.is_dictionary(kind) and _is_text(kind.value_type) else column


def check_texts(where: str, name: str, column: Any) -> None:  # noqa: ANN401 -- as above
    """Raise InvalidDataError for a dictionary whose texts would take too much memory, one for each row."""
    if not pa.types.is_dictionary(column.type) or not _is_text(column.type.value_type):
        return
    sizes = compute.binary_length(column.dictionary).cast(pa.int64())
    most = compute.max(sizes).as_py() or 0
    if most * len(column) > MOST_TEXT and (compute.sum(sizes.take(column.indices)).as_py() or 0) > MOST_TEXT:
        raise InvalidDataError(
            f"{where}: column {shortened(name)!r} has more than {MOST_TEXT // 2**20} MB of texts in "
            f"{len(column):,} rows, the longest of {most:,} bytes: save the table without it"
        )


def _is_text(kind: Any) -> bool:  # noqa: ANN401 -- as above
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(is_kind(kind) for is_kind in kinds)
