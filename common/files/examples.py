"""A file of examples into a shard, batch by batch: imported only while a file is read, because pyarrow is large.

Batches are of some rows, of a Parquet file of a few columns at a time, so that little more than the shard is ever in
memory. Numbers of a CSV file are parsed as such at once; only where that fails is it read again as text, to count what
is no number.

Rows of sparse features: `common.files.sparse_examples`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa

from common.data.cells import Block
from common.data.loading import BLOCK_ROWS, Loaded, Loading, RowLoading
from common.data.study import Study
from common.errors import InvalidDataError
from common.files.arrow_columns import column_of
from common.files.file_tables import matching_files, one_file, reading
from common.files.sources import DataSource
from common.files.sparse_examples import is_libsvm, list_blocks, sparse_blocks
from common.files.streams import TableStream, gathered
from common.files.tables import check_columns, check_names, is_csv

_CSV_BLOCK = 2**19
_GATHERED_ROWS = 2**12
_PARQUET_COLUMNS = 8
"""Columns of a Parquet file that are read together: each keeps a few decoded pages of some megabytes in memory."""


def load_examples(path: Path, study: Study, *, clip: bool = False) -> Loaded:
    """The examples of a CSV or Parquet file in the study's columns; other columns are not read.

    Of sparse features, of a Parquet or LIBSVM file.

    Raises InvalidDataError as `read_columns`, and for data that does not fit the study, as `load_columns`.
    """
    with reading(path):
        if study.sparse:
            return _load_sparse([path], study, clip=clip)
        return load_csv(path, study, clip=clip) if is_csv(path) else load_parquet([path], study, clip=clip)


def load_source(data: DataSource, study: Study, *, clip: bool = False) -> Loaded:
    """The examples of a source: of a file as `load_examples`, of files, a table or a query in the order they come in.

    Raises InvalidDataError as `load_examples`, and for a query that is not one SELECT over the tables that are named.
    """
    if (path := one_file(data)) is not None:
        return load_examples(path, study, clip=clip)
    if not data.is_query and (
        is_libsvm(Path(data.source)) if study.sparse else data.source.lower().endswith(".parquet")
    ):
        return (_load_sparse if study.sparse else load_parquet)(matching_files(data.source), study, clip=clip)
    from common.files.query import open_stream  # noqa: PLC0415 -- DuckDB, for who needs it

    with open_stream(data, study.text_names) as rows:
        loading, n_rows = _collected(rows, study, clip=clip)
    return loading.finish(n_rows)  # in the memory that the query had


def _collected(stream: TableStream, study: Study, *, clip: bool) -> tuple[Loading, int]:
    """The rows of a stream, of which nobody knows how many there are until they are counted here."""
    check_columns(stream.name, stream.schema.names)
    if study.sparse:
        return _collected_lists(stream, study, clip=clip)
    loading = RowLoading(study, clip=clip)
    names, texts, start = [name for name in stream.schema.names if name in study.table_names], study.text_names, 0
    loading.expect(names)
    for batch in stream.batches() if names else ():
        loading.add(start, block_of(batch.select(names), texts))
        start += batch.num_rows
    pa.default_memory_pool().release_unused()
    return loading, start


def _collected_lists(stream: TableStream, study: Study, *, clip: bool) -> tuple[Loading, int]:
    """The rows of a stream with two columns of lists, and how many there are."""
    from common.data.sparse_loading import SparseLoading  # noqa: PLC0415 -- SciPy, for who needs it

    loading, start = SparseLoading(study, 0, clip=clip), 0
    names = [name for name in stream.schema.names if name in study.table_names]
    loading.expect(names)
    for entries, labels in list_blocks(stream.batches(), study) if len(names) == len(study.table_names) else ():
        loading.reserve(start + len(labels))
        loading.add_entries(start, entries)
        loading.add_label(start, labels)
        start += len(labels)
    pa.default_memory_pool().release_unused()
    return loading, start


def load_parquet(paths: Sequence[Path], study: Study, *, clip: bool) -> Loaded:
    """The rows of files, of some columns after those of others; files know their numbers of rows."""
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415 -- not for CSV

    with ExitStack() as stack:
        files = []
        for path in paths:
            with reading(path):
                files.append(stack.enter_context(ParquetFile(path, buffer_size=2**16, pre_buffer=False)))
        wanted = [_wanted(path, study, file.schema_arrow.names) for path, file in zip(paths, files, strict=True)]
        for path, found in zip(paths, wanted, strict=True):
            if set(found) != set(wanted[0]):
                raise InvalidDataError(f"data file {path} has other columns than {paths[0]}")
        n_rows = sum(file.metadata.num_rows for file in files)
        loading = Loading(study, n_rows, clip=clip)
        loading.expect(wanted[0])
        start = 0
        for path, file in zip(paths, files, strict=True):
            with reading(path):
                _add_parquet(loading, start, file, wanted[0], study.text_names)
            start += file.metadata.num_rows
            if len(paths) > 1:
                loading.end_file(str(path))
        pa.default_memory_pool().release_unused()
        return loading.finish(n_rows)


def _add_parquet(loading: Loading, first: int, file: Any, names: Sequence[str], texts: frozenset[str]) -> None:  # noqa: ANN401 -- pyarrow has no types
    """The rows of one file from the row ``first`` on."""
    most = max(_PARQUET_COLUMNS, len(names) // 64)
    rows = max(2**8, BLOCK_ROWS * _PARQUET_COLUMNS // most)
    for i in range(0, len(names), most):
        start = first
        for batch in file.iter_batches(rows, columns=names[i : i + most], use_threads=False):
            loading.add(start, block_of(batch, texts))
            start += batch.num_rows


def load_csv(path: Path, study: Study, *, clip: bool) -> Loaded:
    """The rows as they are parsed, numbers as numbers where they are."""
    try:
        return _load_csv(path, study, clip=clip, as_text=False)
    except pa.ArrowInvalid:  # a cell of a numeric column is no number, or this is no table
        return _load_csv(path, study, clip=clip, as_text=True)


def _load_csv(path: Path, study: Study, *, clip: bool, as_text: bool) -> Loaded:
    from pyarrow import csv  # noqa: PLC0415 -- not for Parquet

    n_rows, header = _count_lines(path)
    blocks = csv.ReadOptions(block_size=max(_CSV_BLOCK, 64 * header), use_threads=False)
    with csv.open_csv(path, blocks) as file:
        names = _wanted(path, study, file.schema.names)
    loading, texts, start = Loading(study, n_rows, clip=clip), study.text_names, 0
    loading.expect(names)
    if names:
        types = {name: pa.string() if as_text or name in texts else pa.float64() for name in names}
        convert = csv.ConvertOptions(column_types=types, include_columns=names)
        with csv.open_csv(path, blocks, convert_options=convert) as file:
            for batch in gathered(file, _GATHERED_ROWS):
                loading.add(start, block_of(batch, texts))
                start += batch.num_rows
    pa.default_memory_pool().release_unused()
    return loading.finish(start)


def _wanted(path: Path, study: Study, found: Sequence[str]) -> list[str]:
    """The columns of a file that a study names, in the file's order."""
    check_names(path, found)
    names = frozenset(study.table_names)
    return [name for name in found if name in names]


def block_of(batch: Any, texts: frozenset[str]) -> Block:  # noqa: ANN401 -- pyarrow has no types
    """A record batch as arrays: numbers where they are wanted and there are any, all else by its distinct values."""
    return {
        name: column_of(array, as_number=name not in texts)
        for name, array in zip(batch.schema.names, batch.columns, strict=True)
    }


def _count_lines(path: Path) -> tuple[int, int]:
    """At least as many lines as the file has rows, and the length of the first in bytes."""
    with path.open("rb") as file:
        first = file.read(_CSV_BLOCK)
        end = b"\n" if b"\n" in first else b"\r"
        count, chunk = first.count(end) + 1, bytearray(_CSV_BLOCK)
        while size := file.readinto(chunk):
            count += chunk.count(end, 0, size)
    return count, len(first.split(end, 1)[0])


def _load_sparse(paths: Sequence[Path], study: Study, *, clip: bool) -> Loaded:
    """The examples of files in a study of sparse features, of some after those of others."""
    from common.data.sparse_loading import SparseLoading  # noqa: PLC0415 -- as above

    files = []
    for path in paths:
        with reading(path):
            files.append(sparse_blocks(path, study))
    n_rows, start = sum(n for n, _, _ in files), 0
    loading = SparseLoading(study, n_rows, clip=clip)
    loading.expect(files[0][1])
    for path, (_, _, blocks) in zip(paths, files, strict=True):
        with reading(path):
            for entries, labels in blocks:
                loading.add_entries(start, entries)
                loading.add_label(start, labels)
                start += len(labels)
        if len(paths) > 1:
            loading.end_file(str(path))
    pa.default_memory_pool().release_unused()
    return loading.finish(n_rows)
