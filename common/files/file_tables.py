"""Files as tables: one, or all of a pattern, in the order of their names. Every command and service reads by this.

How large a table is, by what its file says of itself: counted before any of it is decoded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path
from typing import Any

import pyarrow as pa

from parley.common.data.columns import Columns
from parley.common.encoding.texts import shortened
from parley.common.errors import InvalidDataError
from parley.common.files.arrow import STREAM_ROWS, TableStream
from parley.common.files.cell_tables import json_table, sheet_table
from parley.common.files.column_names import columns_meant, same_columns
from parley.common.files.csv_files import CsvFile, CsvTable, TextColumns, csv_stream
from parley.common.files.parquet_files import as_texts, open_parquet
from parley.common.files.sources import CsvFormat, DataSource, sqlite_table
from parley.common.files.tables import check_names, kind_of, one_kind, reading

_NO_TEXTS: Mapping[str, tuple[str, ...]] = {}


def is_pattern(text: str) -> bool:
    """Whether a text names files by a pattern: a file that is called so, such as ``rows[1].csv``, is one file."""
    return has_magic(text) and not Path(text).is_file()


def source_files(data: DataSource) -> list[Path] | None:
    """The files that a source is; None of a table of a database or in a workbook, or a query."""
    return None if data.is_query or sqlite_table(data.source) is not None else matching_files(data.source)


def matching_files(pattern: str) -> list[Path]:
    """The files of a pattern by name, or the one that it names; raises InvalidDataError where there is none."""
    path = Path(pattern)
    if not is_pattern(pattern):
        return [path]
    if not (found := sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))):
        raise InvalidDataError(f"data files {pattern}: there is none")
    return found


def file_table(
    pattern: str,
    texts: TextColumns = _NO_TEXTS,
    said: CsvFormat | None = None,
    *,
    wanted: Collection[str] = (),
    as_texts: bool = False,
) -> TableStream:
    """The rows of files of one kind, ``texts`` being columns of a CSV that hold no numbers; or with ``as_texts`` all.

    Raises InvalidDataError for a file that is missing, unreadable, of another kind, or of other columns than the first,
    or has two columns that one of the names ``wanted`` means.
    """
    paths = matching_files(pattern)
    match one_kind(pattern, paths):
        case "csv":
            table = CsvTable(f"data file {pattern}", paths, said)
            table.check_wanted(wanted)
            return csv_stream(table, texts, as_texts=as_texts)
        case "parquet":
            return _joined(pattern, [(path, _parquet_table(path)) for path in paths])
        case "arrow":
            return _joined(pattern, [(path, _arrow_table(path)) for path in paths])
        case "json":
            return _joined(pattern, [(path, json_table(path)) for path in paths])
        case "sheet":
            return _joined(pattern, [(path, sheet_table(path)) for path in paths])


def read_columns(
    path: Path, texts: TextColumns = _NO_TEXTS, said: CsvFormat | None = None, wanted: Collection[str] = ()
) -> Columns:
    """The columns of a file, numbers as such, NaN where one is missing; ``texts`` are columns that hold none.

    Columns that ``wanted`` names mean have these names.

    Raises InvalidDataError as `file_table`, and for a file that names a column twice.
    """
    stream = file_table(str(path), texts, said, wanted=wanted)
    check_names(path, stream.schema.names)
    with reading(path):
        table = pa.Table.from_batches(stream.batches(), stream.schema)
    names = {column: name for name, column in columns_meant(table.column_names, wanted).items()}
    return {names.get(name, name): table.column(name).to_numpy() for name in table.column_names}


def column_names(path: Path, said: CsvFormat | None = None) -> tuple[str, ...]:
    """The names of the columns of a file in its order; raises InvalidDataError as `file_table`."""
    with reading(path):
        kind = kind_of(path)
        if kind == "csv":
            return CsvTable(f"data file {path}", [path], said).files[0].names
        if kind == "parquet":
            from pyarrow.parquet import read_schema  # noqa: PLC0415 -- not for CSV

            names = read_schema(path).names
            check_names(path, names)
            return tuple(names)
    return tuple(file_table(str(path)).schema.names)


def _joined(pattern: str, tables: Sequence[tuple[Path, TableStream]]) -> TableStream:
    """The rows of some tables after one another, in the columns of the first, of types that hold the cells of all."""
    first, schema = tables[0][0], tables[0][1].schema
    check_names(first, schema.names)
    orders = [schema.names]
    for path, table in tables[1:]:
        check_names(path, table.schema.names)
        meant = same_columns(path, table.schema.names, first, schema.names)
        orders.append([meant[name] for name in schema.names])
        schema = pa.schema([_wider(path, first, field, table.schema.field(meant[field.name]).type) for field in schema])

    def read() -> Iterator[Any]:
        for (_, table), order in zip(tables, orders, strict=True):
            for batch in table.batches():
                cells = [batch.column(column).cast(field.type) for column, field in zip(order, schema, strict=True)]
                yield pa.record_batch(cells, schema=schema)

    return TableStream(f"data file {pattern}", schema, read)


def _wider(path: Path, first: Path, column: Any, kind: Any) -> Any:  # noqa: ANN401 -- pyarrow has no types
    """A column of a type that holds what it held and cells of another type; raises InvalidDataError."""
    if kind == column.type:
        return column
    plain = [pa.field("x", each.value_type if pa.types.is_dictionary(each) else each) for each in (column.type, kind)]
    try:
        both = pa.unify_schemas([pa.schema([each]) for each in plain], promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        raise InvalidDataError(
            f"data file {path}: column {shortened(column.name)!r} is of type {kind}, and of type {column.type} "
            f"in {first}: make them alike"
        ) from None
    return pa.field(column.name, both.field(0).type)


def _parquet_table(path: Path) -> TableStream:
    from pyarrow.parquet import read_schema  # noqa: PLC0415 -- 5 MB, for who needs it

    where = f"data file {path}"
    with reading(path):
        schema = pa.schema([(field.name, field.type) for field in read_schema(path)])

    def read() -> Iterator[Any]:
        with open_parquet(path, 2**14) as file:
            for batch in file.iter_batches(STREAM_ROWS, use_threads=False):
                cells = [
                    column if column.type == field.type else as_texts(where, field.name, column).cast(field.type)
                    for field, column in zip(schema, batch.columns, strict=True)
                ]
                yield pa.record_batch(cells, schema=schema)
        pa.default_memory_pool().release_unused()  # pages of all columns, while the query goes on

    return TableStream(where, schema, read)


def _arrow_table(path: Path) -> TableStream:
    """The rows of a file of Arrow, as Feather is one, or of a stream of it."""
    from pyarrow import ipc  # noqa: PLC0415 -- not for other kinds

    def opened() -> Any:  # noqa: ANN401 -- as above
        try:
            return ipc.open_file(pa.OSFile(str(path)))
        except pa.ArrowInvalid:
            return ipc.open_stream(pa.OSFile(str(path)))

    with reading(path), opened() as file:
        schema = pa.schema([(field.name, field.type) for field in file.schema])

    def read() -> Iterator[Any]:
        with opened() as file:
            n_batches = getattr(file, "num_record_batches", None)
            for batch in file if n_batches is None else (file.get_batch(i) for i in range(n_batches)):
                for start in range(0, batch.num_rows, STREAM_ROWS):
                    yield pa.record_batch(batch.slice(start, STREAM_ROWS).columns, schema=schema)

    return TableStream(f"data file {path}", schema, read)


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
