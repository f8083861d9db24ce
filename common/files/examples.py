"""A file of examples into a shard, batch by batch: imported only while a file is read, because pyarrow is large.

Batches are of some rows, of a Parquet file of a few columns at a time, so that little more than the shard is ever in
memory. Numbers of a CSV file are parsed as such at once; only where that fails is it read again as text, to count what
is no number.

Rows of sparse features are columns of lists in a Parquet file, or a row a line in a LIBSVM file (``.svm``,
``.libsvm``): its label, then ``place:value`` for each entry that is not zero; what follows a ``#`` is a comment. Labels
that are numbers are told apart as such: ``+1`` is the value 1 of a study.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from common.arrays import FloatArray
from common.data.cells import Block, Column
from common.data.loading import BLOCK_ROWS, Entries, Loaded, Loading, SparseLoading
from common.data.study import Study
from common.errors import InvalidDataError
from common.files.arrow_columns import column_of
from common.files.tables import check_names, is_csv, unreadable

_CSV_BLOCK = 2**19
_GATHERED_ROWS = 2**12
_LIBSVM = frozenset({".svm", ".libsvm"})
_LINES = 2**14
_PARQUET_COLUMNS = 8
"""Columns of a Parquet file that are read together: each keeps a few decoded pages of some megabytes in memory."""


def load_examples(path: Path, study: Study, *, clip: bool = False) -> Loaded:
    """The examples of a CSV or Parquet file in the study's columns; other columns are not read.

    Of sparse features, of a Parquet or LIBSVM file.

    Raises InvalidDataError as `read_columns`, and for data that does not fit the study, as `load_columns`.
    """
    try:
        if study.sparse:
            return _load_sparse(path, study, clip=clip)
        return (load_csv if is_csv(path) else load_parquet)(path, study, clip=clip)
    except (OSError, pa.ArrowException) as error:
        raise unreadable(path, error) from None


def load_parquet(path: Path, study: Study, *, clip: bool) -> Loaded:
    """The rows of some columns after those of others; the file knows its number of rows."""
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415 -- not for CSV

    with ParquetFile(path, buffer_size=2**16, pre_buffer=False) as file:
        names = _wanted(path, study, file.schema_arrow.names)
        loading, texts = Loading(study, file.metadata.num_rows, clip=clip), study.text_names
        loading.expect(names)
        most = max(_PARQUET_COLUMNS, len(names) // 64)
        rows = max(2**8, BLOCK_ROWS * _PARQUET_COLUMNS // most)
        for i in range(0, len(names), most):
            start = 0
            for batch in file.iter_batches(rows, columns=names[i : i + most], use_threads=False):
                loading.add(start, _block(batch, texts))
                start += batch.num_rows
        pa.default_memory_pool().release_unused()
        return loading.finish(file.metadata.num_rows)


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
            for batch in _gathered(file):
                loading.add(start, _block(batch, texts))
                start += batch.num_rows
    pa.default_memory_pool().release_unused()
    return loading.finish(start)


def _gathered(batches: Iterable[Any]) -> Iterator[Any]:
    """Record batches joined to some thousand rows, so that what is done once a column and batch costs little."""
    held, rows = [], 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= _GATHERED_ROWS:
            yield pa.concat_batches(held)
            held, rows = [], 0
    if held:
        yield pa.concat_batches(held)


def _wanted(path: Path, study: Study, found: Sequence[str]) -> list[str]:
    """The columns of a file that a study names, in the file's order."""
    check_names(path, found)
    names = frozenset(study.table_names)
    return [name for name in found if name in names]


def _block(batch: Any, texts: frozenset[str]) -> Block:  # noqa: ANN401 -- pyarrow has no types
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


def _load_sparse(path: Path, study: Study, *, clip: bool) -> Loaded:
    """The examples of a file in a study of sparse features."""
    suffix = path.suffix.lower()
    if suffix not in _LIBSVM | {".parquet"}:
        raise InvalidDataError(f"data file {path} must end in .parquet, .svm or .libsvm, as the features are sparse")
    if suffix in _LIBSVM:
        with path.open(encoding="utf-8", errors="replace") as file:
            return _of_text(file, study, clip=clip)
    return _of_parquet(path, study, clip=clip)


def _of_text(file: IO[str], study: Study, *, clip: bool) -> Loaded:
    n_rows = sum(1 for line in file if line.partition("#")[0].strip())
    file.seek(0)
    loading, start = SparseLoading(study, n_rows, clip=clip), 0
    loading.expect((*study.table_names,))
    lines = (text for line in file if (text := line.partition("#")[0].strip()))
    while batch := list(islice(lines, _LINES)):
        heads, entries = _parsed(batch)
        loading.add_entries(start, entries)
        loading.add_label(start, heads)
        start += len(batch)
    return loading.finish(n_rows)


def _parsed(lines: list[str]) -> tuple[Any, Entries]:
    """Labels, and the entries of lines."""
    heads, _, rests = zip(*(line.replace("\t", " ").partition(" ") for line in lines), strict=True)
    counts = [rest.count(":") for rest in rests]
    starts = np.concatenate([[0], np.cumsum(counts)])
    spelt = " ".join(rests).replace(":", " ").split()
    plain = len(spelt) == 2 * starts[-1] and all(each.count(":") == 1 for rest in rests for each in rest.split())
    try:
        numbers = np.array(spelt, dtype=np.float64)
    except ValueError:  # somewhere something else stands
        plain = False
    if not plain:  # one by one
        numbers = np.array([number for rest in rests for number in _entries_of(rest)], dtype=np.float64)
        starts = np.concatenate([[0], np.cumsum([len(rest.split()) for rest in rests])])
    none = np.zeros(len(lines), dtype=np.bool_)
    return _labels(heads), Entries(numbers[0::2], numbers[1::2], starts.astype(np.int64), none, none)


def _entries_of(rest: str) -> Iterator[float]:
    """Place and value of each entry of a line, NaN for what is none."""
    for token in rest.split():
        place, _, value = token.partition(":")
        yield _number(place)
        yield _number(value)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _labels(heads: tuple[str, ...]) -> Column:
    """Labels as numbers where they are."""
    numbers = [_number(head) for head in heads]
    spelt = [head if number != number else number for head, number in zip(heads, numbers, strict=True)]  # noqa: PLR0124
    return np.array(spelt, dtype=object) if any(isinstance(each, str) for each in spelt) else np.array(numbers)


def _of_parquet(path: Path, study: Study, *, clip: bool) -> Loaded:
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415 -- as above

    with ParquetFile(path, pre_buffer=False) as file:
        found = file.schema_arrow.names
        check_names(path, found)
        loading, start = SparseLoading(study, file.metadata.num_rows, clip=clip), 0
        loading.expect(found)
        names = [name for name in study.table_names if name in found]
        if len(names) == len(study.table_names):
            for batch in file.iter_batches(BLOCK_ROWS, columns=names, use_threads=False):
                _add(loading, study, start, batch)
                start += batch.num_rows
        return loading.finish(file.metadata.num_rows)


def _add(loading: SparseLoading, study: Study, start: int, batch: Any) -> None:  # noqa: ANN401 -- pyarrow has no types
    features = study.sparse
    assert features is not None  # noqa: S101 -- its caller knows
    index, value = (_lists(batch.column(name), name) for name in (features.index, features.value))
    missing = index[2] | value[2]
    unequal = (np.diff(index[1]) != np.diff(value[1])) & ~missing
    fine = ~(missing | unequal)
    places, values = (numbers[np.repeat(fine, np.diff(starts))] for numbers, starts, _ in (index, value))
    starts = np.concatenate([[0], np.cumsum(np.where(fine, np.diff(index[1]), 0))])
    loading.add_entries(start, Entries(places, values, starts.astype(np.int64), missing, unequal))
    label = study.label.name
    loading.add_label(start, column_of(batch.column(label), as_number=label not in study.text_names))


def _lists(array: Any, name: str) -> tuple[FloatArray, Any, Any]:  # noqa: ANN401 -- as above
    """Numbers of a column of lists, where each row's start, and which rows have none."""
    kind = array.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise InvalidDataError(f"column {name!r} must hold lists of numbers")
    if not (pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type)):
        raise InvalidDataError(f"column {name!r} must hold lists of numbers")
    missing = array.is_null().to_numpy(zero_copy_only=False)
    lengths = np.diff(array.offsets.to_numpy())
    starts = np.concatenate([[0], np.cumsum(np.where(missing, 0, lengths))])
    numbers = array.flatten().cast(pa.float64()).to_numpy(zero_copy_only=False)
    return numbers, starts, missing
