"""Read rows of sparse features from a file, some at a time: imported only while one is read, because pyarrow is large.

A Parquet file has two columns of lists: the places and the values of a row's entries. A LIBSVM file (``.svm``,
``.libsvm``) has one row a line: its label, then ``place:value`` for each entry that is not zero; the text after a ``#``
is a comment (Chang & Lin 2011, "LIBSVM: a library for support vector machines"). Labels that are numbers are compared
as numbers: ``+1`` is the value 1 of a study. A row that begins with an entry has no label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.cells import Block, Column, Entries
from parley.common.data.columns import missing_policy
from parley.common.data.persons import PersonKeys
from parley.common.encoding.texts import text_of
from parley.common.errors import InvalidDataError
from parley.common.files.arrow import TableStream, column_of
from parley.common.files.identifiers import keys_of_array
from parley.common.files.kinds import UNPACK, check_names, check_text, reading

if TYPE_CHECKING:
    from parley.common.data.sparse_loading import SparseLoading
    from parley.common.data.study import Study

_Lists: TypeAlias = tuple[FloatArray, IntArray, BoolArray]
_LIBSVM = frozenset({".svm", ".libsvm"})
_LISTS = (
    pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view,
    pa.types.is_large_list_view,
)  # fmt: skip
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
"""SQL makes decimals of ``[0.5, 1]``; lists that are all empty may have pyarrow's null type."""
_LINES = 2**12
_SPACE = re.compile(r"\s+")
_ENTRIES = re.compile(r"\s*(?:[^\s:]+:[^\s:]+(?:\s+|$))*")
"""A line of entries without fault; in other lines, what is no entry becomes an entry that is not a number."""


@dataclass(frozen=True, slots=True, eq=False)
class SparseBlock:
    """The entries and the labels of some rows; and if a study says so, their weights and persons."""

    entries: Entries
    labels: Column
    beside: Block = field(default_factory=dict)
    keys: PersonKeys | None = None

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.labels)

    def add_to(self, loading: SparseLoading, start: int) -> None:
        """Have a shard under construction take the rows, from ``start`` on."""
        if self.keys is not None:
            loading.identify(self.keys)
        loading.add_entries(start, self.entries)
        loading.add_label(start, self.labels)
        loading.add(start, self.beside)


def is_libsvm(path: Path) -> bool:
    """Return whether the name of a file is one of LIBSVM."""
    return path.suffix.lower() in _LIBSVM


def check_kind(path: Path) -> None:
    """Raise InvalidDataError, with what to do, unless a file by its name holds rows of sparse features."""
    suffix = path.suffix.lower()
    if suffix not in {".parquet", *_LIBSVM}:
        problem = f"data file {path} must end in .parquet, .svm or .libsvm, as the features are sparse"
        raise InvalidDataError(f"{problem}: {UNPACK[suffix]}" if suffix in UNPACK else problem)


def sparse_blocks(path: Path, study: Study) -> tuple[int, Sequence[str], Iterator[SparseBlock]]:
    """Read a Parquet or LIBSVM file: its number of rows, its column names, and its rows if it has the study's columns.

    Raises InvalidDataError for another kind of file, a name that occurs twice, and columns that are not lists; OSError
    or pyarrow's own errors for a file that cannot be read.
    """
    check_kind(path)
    if is_libsvm(path):
        check_text(path)
        return sum(1 for _ in _lines(path)), study.table_names, _libsvm_blocks(path)
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415 -- 5 MB, for who needs it

    with ParquetFile(path, pre_buffer=False) as file:
        n_rows, names = file.metadata.num_rows, file.schema_arrow.names
    check_names(path, names)
    return n_rows, names, _list_file_blocks(path, study) if set(study.source_names) <= set(names) else iter(())


def libsvm_table(path: Path, study: Study) -> TableStream:
    """Stream a LIBSVM file as a table of a study of sparse features: two columns of lists, and labels as texts.

    Raises InvalidDataError for a file that cannot be read.
    """
    with reading(path):
        check_text(path)
    numbers = pa.list_(pa.float64())
    schema = pa.schema(dict(zip(study.table_names, (numbers, numbers, pa.string()), strict=True)))

    def read() -> Iterator[Any]:
        for labels, entry_texts in _split_lines(path):
            entries = _entries(entry_texts)
            starts = pa.array(entries.starts)
            lists = [pa.ListArray.from_arrays(starts, pa.array(column)) for column in (entries.places, entries.values)]
            yield pa.record_batch([*lists, pa.array(labels)], schema=schema)

    return TableStream(f"data file {path}", schema, read)


def _libsvm_blocks(path: Path) -> Iterator[SparseBlock]:
    for labels, entry_texts in _split_lines(path):
        yield SparseBlock(_entries(entry_texts), _labels(labels))


def _split_lines(path: Path) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield the labels of some lines at a time, and the texts of their entries."""
    lines = _lines(path)
    while batch := list(islice(lines, _LINES)):
        labels, entry_texts = zip(*map(_split_line, batch), strict=True)
        yield labels, entry_texts


def _split_line(line: str) -> tuple[str, str]:
    """Split a line into its label, empty where it has none, and the text of its entries."""
    label, entry_text = _SPACE.split(f"{line} ", maxsplit=1)
    return ("", line) if ":" in label else (label, entry_text)


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines that are rows, without comments."""
    with text_of(path.open("rb"), errors="replace") as file:
        yield from (row for line in file if (row := line.partition("#")[0].strip()))


def _entries(entry_texts: tuple[str, ...]) -> Entries:
    """Parse the texts of some lines' entries."""
    if all(map(_ENTRIES.fullmatch, entry_texts)):
        counts, spelt = [text.count(":") for text in entry_texts], " ".join(entry_texts).replace(":", " ").split()
    else:
        rows = [[token.partition(":")[::2] for token in text.split()] for text in entry_texts]
        counts, spelt = [len(entries) for entries in rows], [part for row in rows for entry in row for part in entry]
    numbers = _numbers(spelt)
    no_row = np.zeros(len(entry_texts), dtype=np.bool_)
    return Entries(numbers[0::2], numbers[1::2], np.cumsum([0, *counts]), no_row, no_row)


def _numbers(spelt: list[str]) -> FloatArray:
    """Return texts as numbers, NaN for a text that is none."""
    try:
        return np.array(spelt, dtype=np.float64)
    except ValueError:
        return np.array([_number(text) for text in spelt], dtype=np.float64)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _labels(labels: tuple[str, ...]) -> Column:
    """Return labels as numbers where they spell numbers, as texts otherwise."""
    numbers = _numbers(list(labels))
    if np.isnan(numbers).any():
        return np.where(np.isnan(numbers), np.array(labels, dtype=object), numbers)
    return numbers


def _list_file_blocks(path: Path, study: Study) -> Iterator[SparseBlock]:
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415 -- as above

    with ParquetFile(path, pre_buffer=False) as file:
        yield from list_blocks(file.iter_batches(_LINES, columns=list(study.source_names), use_threads=False), study)


def list_blocks(batches: Iterable[Any], study: Study) -> Iterator[SparseBlock]:
    """Yield the rows of record batches with two columns of lists and a label; raises InvalidDataError for others."""
    label = study.label.name
    drops = missing_policy(study.features[0], study.missing) == "drop"
    for batch in batches:
        places, values = (_lists(batch.column(name), name) for name in study.table_names[:-1])
        yield SparseBlock(
            _paired(places, _without_gaps(values) if drops else values),
            column_of(batch.column(label), as_number=label not in study.text_names),
            {study.row_weights.column: column_of(batch.column(study.row_weights.column), as_number=True)}
            if study.row_weights
            else {},
            keys_of_array(batch.column(study.person.column), study.person.column) if study.person else None,
        )


def _paired(index: _Lists, value: _Lists) -> Entries:
    """Combine lists of places and lists of values into entries."""
    (places, at, no_places), (values, to, no_values) = index, value
    lengths, missing = np.diff(at), no_places | no_values
    unequal = (lengths != np.diff(to)) & ~missing
    fine = ~(missing | unequal)
    starts = np.cumsum([0, *np.where(fine, lengths, 0)])
    return Entries(places[np.repeat(fine, lengths)], values[np.repeat(fine, np.diff(to))], starts, missing, unequal)


def _without_gaps(lists: _Lists) -> _Lists:
    """Mark a row as missing where one of its numbers is: in a list of numbers NaN means nothing else."""
    numbers, starts, missing = lists
    gaps = np.cumsum([0, *np.isnan(numbers)])
    return numbers, starts, missing | (gaps[starts[1:]] > gaps[starts[:-1]])


def _lists(array: Any, name: str) -> _Lists:  # noqa: ANN401 -- as above
    """Return the numbers of a column of lists, the start of each row (n + 1,), and whether a row has no list (n,)."""
    kind = array.type
    if not any(is_kind(kind) for is_kind in _LISTS) or not any(is_kind(kind.value_type) for is_kind in _NUMBERS):
        raise InvalidDataError(f"column {name!r} must hold lists of numbers")
    array = array.cast(pa.large_list(kind.value_type))  # large lists, whose offsets all kinds then have
    missing = array.is_null().to_numpy(zero_copy_only=False)
    lengths = np.where(missing, 0, np.diff(array.offsets.to_numpy()))
    numbers = array.flatten().cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers, np.cumsum([0, *lengths]), missing
