"""A table on disk, CSV or Parquet: whole, as columns, or in blocks straight into a shard.

A file of examples is read in batches of rows, of a Parquet file a few columns at a time, so that little more than the
shard is ever in memory. Numbers of a CSV file are parsed as such at once; only where that fails is it read again as
text, to count what is no number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from common.arrays import FloatArray
from common.data.cells import MISSING, MISSING_TEXTS, Block, Coded, Column
from common.data.columns import Columns
from common.data.loading import BLOCK_ROWS, Loaded
from common.data.study import Study
from common.errors import InvalidDataError

_CSV_BLOCK = 2**20
_PARQUET_COLUMNS = 16
"""Columns of a Parquet file that are read together: each keeps a few decoded pages of some megabytes in memory."""


def read_columns(path: Path) -> Columns:
    """The columns of a CSV (``.csv``, with a header) or Parquet (``.parquet``) file; empty numeric cells become NaN.

    Raises InvalidDataError, which names the file and never its content, where the file is missing, unreadable, of
    another kind or not a table, or names a column twice.
    """
    import pyarrow as pa  # noqa: PLC0415 -- slow to import, and needed once in the life of a service

    try:
        if _is_csv(path):
            from pyarrow.csv import read_csv as read  # noqa: PLC0415 -- as above
        else:
            from pyarrow.parquet import read_table as read  # noqa: PLC0415 -- as above
        table = read(path)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from None
    _check_names(path, table.column_names)
    return {name: table.column(name).to_numpy() for name in table.column_names}


def load_examples(path: Path, study: Study, *, clip: bool = False) -> Loaded:
    """The examples of a CSV or Parquet file in the study's columns; other columns are not read.

    Raises InvalidDataError as `read_columns`, and for data that does not fit the study, as `Study.load`.
    """
    import pyarrow as pa  # noqa: PLC0415 -- as above

    try:
        if not _is_csv(path):
            return _load_parquet(path, study, clip=clip)
        try:
            return _load_csv(path, study, clip=clip)
        except pa.ArrowInvalid:  # a cell of a numeric column is no number, or this is no table
            return _load_csv(path, study, clip=clip, as_text=True)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from None


def _load_parquet(path: Path, study: Study, *, clip: bool) -> Loaded:
    """Batches of rows of a few columns after the other; the file knows its number of rows."""
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415 -- as above

    with ParquetFile(path, buffer_size=2**16, pre_buffer=False) as file:
        names = _wanted(path, study, file.schema_arrow.names)
        loading, texts = study.loading(file.metadata.num_rows, clip=clip), study.text_names
        most = max(_PARQUET_COLUMNS, len(names) // 64)
        rows = max(2**8, BLOCK_ROWS * _PARQUET_COLUMNS // most)
        for i in range(0, len(names), most):
            start = 0
            for batch in file.iter_batches(rows, columns=names[i : i + most], use_threads=False):
                loading.add(start, _block(batch, texts))
                start += batch.num_rows
        return loading.finish(file.metadata.num_rows)


def _load_csv(path: Path, study: Study, *, clip: bool, as_text: bool = False) -> Loaded:
    """Batches of rows as they are parsed, numbers as numbers unless ``as_text``."""
    import pyarrow as pa  # noqa: PLC0415 -- as above
    from pyarrow import csv  # noqa: PLC0415 -- as above

    n_rows, header = _count_lines(path)
    blocks = csv.ReadOptions(block_size=max(_CSV_BLOCK, 64 * header), use_threads=False)
    with csv.open_csv(path, blocks) as file:
        names = _wanted(path, study, file.schema.names)
    texts = study.text_names
    types = {name: pa.string() if as_text or name in texts else pa.float64() for name in names}
    loading, start = study.loading(n_rows, clip=clip), 0
    if names:
        convert = csv.ConvertOptions(column_types=types, include_columns=names)
        with csv.open_csv(path, blocks, convert_options=convert) as file:
            for batch in file:
                loading.add(start, _block(batch, texts))
                start += batch.num_rows
    return loading.finish(start)


def _wanted(path: Path, study: Study, found: Sequence[str]) -> list[str]:
    """The columns of a file that a study names, in the file's order."""
    _check_names(path, found)
    names = {*study.feature_names, study.label.name}
    return [name for name in found if name in names]


def _check_names(path: Path, names: Sequence[str]) -> None:
    """Raise InvalidDataError for a file that names a column twice."""
    if len(set(names)) < len(names):
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        raise InvalidDataError(f"data file {path} names columns twice: {', '.join(twice[:5])}")


def _block(batch: Any, texts: Set[str]) -> Block:  # noqa: ANN401 -- pyarrow has no types
    """A record batch as arrays: numbers where they are wanted and there are any, all else by its distinct values."""
    return {
        name: _column(array, as_number=name not in texts)
        for name, array in zip(batch.schema.names, batch.columns, strict=True)
    }


def _column(array: Any, *, as_number: bool) -> Column:  # noqa: ANN401 -- as above
    """An Arrow array as numbers with NaN for null, or as codes."""
    import pyarrow as pa  # noqa: PLC0415 -- as above
    from pyarrow import types  # noqa: PLC0415 -- as above

    if as_number and (numbers := _numbers(array)) is not None:
        return numbers
    if types.is_nested(array.type) or types.is_duration(array.type):
        return Coded(np.arange(len(array)), tuple(array.to_pylist()))
    if types.is_temporal(array.type) or types.is_string_view(array.type):
        array = array.cast(pa.string())
    coded = array if types.is_dictionary(array.type) else array.dictionary_encode()
    codes = coded.indices.cast(pa.int64()).fill_null(MISSING).to_numpy(zero_copy_only=False)
    return Coded(codes, tuple(coded.dictionary.to_pylist()))


def _numbers(array: Any) -> FloatArray | None:  # noqa: ANN401 -- as above
    """An Arrow array of numbers, or of texts that spell nothing else, as numbers; None for any other."""
    import pyarrow as pa  # noqa: PLC0415 -- as above
    from pyarrow import compute, types  # noqa: PLC0415 -- as above

    if types.is_string(array.type) or types.is_large_string(array.type):
        empty = compute.is_in(array, value_set=pa.array(["", *MISSING_TEXTS], array.type))
        array = compute.if_else(empty, pa.scalar(None, array.type), array)
    elif not (types.is_floating(array.type) or types.is_integer(array.type) or types.is_decimal(array.type)):
        return None
    try:
        numbers: FloatArray = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return None
    return numbers


def _count_lines(path: Path) -> tuple[int, int]:
    """At least as many lines as the file has rows, and the length of the first in bytes."""
    ends, header, chunk = Counter[bytes](), 0, bytearray(2**20)
    with path.open("rb") as file:
        while size := file.readinto(chunk):
            for end in (b"\n", b"\r"):
                ends[end] += chunk.count(end, 0, size)
            header = header or len(chunk[:size].splitlines()[0])
    return max(ends.values(), default=0) + 1, header


def _is_csv(path: Path) -> bool:
    """Whether a file is CSV, or else Parquet; raises InvalidDataError for another kind."""
    if path.suffix.lower() not in {".csv", ".parquet"}:
        raise InvalidDataError(f"data file {path} must end in .csv or .parquet")
    return path.suffix.lower() == ".csv"


def _unreadable(path: Path, error: Exception) -> InvalidDataError:
    """What to say of a file: never its content, which pyarrow's message holds."""
    missing = isinstance(error, FileNotFoundError)
    return InvalidDataError(f"data file {path} {'is missing' if missing else 'cannot be read'}")
