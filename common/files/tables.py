"""Tables of files, workbooks, databases and queries as streams of rows: every command and service reads through here.

A path or a pattern names one or more files of the same kind and columns, read in the order of their names. A query has
tables by name, each one of these or of a database. `size_of` says how large a file's table is by its metadata, before
any cell is decoded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path
from typing import Any

import pyarrow as pa

from parley.common.data.columns import Columns
from parley.common.encoding.texts import shortened
from parley.common.errors import InvalidDataError
from parley.common.extras import require_extra
from parley.common.files.arrow import STREAM_ROWS, TableStream
from parley.common.files.cell_tables import json_table, sheet_table
from parley.common.files.column_names import match_all_columns, match_columns
from parley.common.files.csv_files import CsvFile, CsvTable, TextColumns, csv_stream
from parley.common.files.kinds import WORKBOOK_ENDINGS, check_names, common_kind, reading, table_kind
from parley.common.files.parquet_files import as_texts, open_parquet
from parley.common.files.sources import CsvFormat, DataSource, PostgresTable, TableAt, split_inner_table

_NO_TEXTS: Mapping[str, tuple[str, ...]] = {}


def is_pattern(text: str) -> bool:
    """Return whether a text is a pattern of files; a file with such a name, as ``rows[1].csv``, is one file."""
    return has_magic(text) and not Path(text).is_file()


def source_files(data: DataSource) -> list[Path] | None:
    """Return the files of a source; None for a table of a database, a sheet of a workbook or a query."""
    return None if data.is_query or split_inner_table(data.source) is not None else matching_files(data.source)


def matching_files(pattern: str) -> list[Path]:
    """Return the files that match a pattern, in the order of names; raises InvalidDataError where there are none."""
    path = Path(pattern)
    if not is_pattern(pattern):
        return [path]
    if not (matches := sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))):
        raise InvalidDataError(f"data files {pattern}: there is none")
    return matches


def table_contents(data: DataSource) -> tuple[bytes, ...]:
    """Return SHA-256 of each table of a source: of the bytes of its files, or of where it is, if that is a database.

    So a table at two paths is one table. Raises InvalidDataError for a file that cannot be read.
    """
    return tuple(_content_of(at) for at in (data.tables.values() if data.is_query else [data.source]))


def _content_of(at: TableAt) -> bytes:
    """Return the digest of one table; a sheet counts by the bytes of its workbook, and by its name."""
    if isinstance(at, PostgresTable):
        return hashlib.sha256(f"{at.postgres} {at.table}".encode()).digest()
    inner = split_inner_table(at)
    if inner is not None and inner[0].suffix.lower() not in WORKBOOK_ENDINGS:  # its bytes change when others write it
        return hashlib.sha256(f"{inner[0].resolve()}::{inner[1]}".encode()).digest()
    digest = hashlib.sha256(b"" if inner is None else inner[1].encode())
    for path in matching_files(at) if inner is None else [inner[0]]:
        with reading(path), path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.digest()


def file_table(
    pattern: str,
    texts: TextColumns = _NO_TEXTS,
    csv_format: CsvFormat | None = None,
    *,
    wanted: Collection[str] = (),
    as_texts: bool = False,
) -> TableStream:
    """Stream the rows of files of one kind; ``texts`` are CSV columns without numbers, ``as_texts`` makes all texts.

    Raises InvalidDataError for a file that is missing, unreadable, of another kind, or of other columns than the first,
    or has two columns that one of the names ``wanted`` matches.
    """
    paths = matching_files(pattern)
    match common_kind(pattern, paths):
        case "csv":
            table = CsvTable(f"data file {pattern}", paths, csv_format)
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
    path: Path, texts: TextColumns = _NO_TEXTS, csv_format: CsvFormat | None = None, wanted: Collection[str] = ()
) -> Columns:
    """Read the columns of a file as arrays (n,), NaN for a missing number; ``texts`` are columns without numbers.

    Columns that match a name of ``wanted`` get that name. Raises InvalidDataError as `file_table` does, and for a file
    that names a column twice.
    """
    stream = file_table(str(path), texts, csv_format, wanted=wanted)
    check_names(path, stream.schema.names)
    with reading(path):
        table = pa.Table.from_batches(stream.batches(), stream.schema)
    names = {column: name for name, column in match_columns(table.column_names, wanted).items()}
    return {names.get(name, name): table.column(name).to_numpy() for name in table.column_names}


def column_names(path: Path, csv_format: CsvFormat | None = None) -> tuple[str, ...]:
    """Return the names of the columns of a file, in its order; raises InvalidDataError as `file_table` does."""
    with reading(path):
        kind = table_kind(path)
        if kind == "csv":
            return CsvTable(f"data file {path}", [path], csv_format).files[0].names
        if kind == "parquet":
            from pyarrow.parquet import read_schema  # noqa: PLC0415 -- not for CSV

            names = read_schema(path).names
            check_names(path, names)
            return tuple(names)
    return tuple(file_table(str(path)).schema.names)


def _joined(pattern: str, tables: Sequence[tuple[Path, TableStream]]) -> TableStream:
    """Stream the rows of several files one after another, in the columns of the first, of types that hold all cells."""
    first, schema = tables[0][0], tables[0][1].schema
    check_names(first, schema.names)
    orders = [schema.names]
    for path, table in tables[1:]:
        check_names(path, table.schema.names)
        meant = match_all_columns(path, table.schema.names, first, schema.names)
        orders.append([meant[name] for name in schema.names])
        schema = pa.schema([_wider(path, first, field, table.schema.field(meant[field.name]).type) for field in schema])

    def read() -> Iterator[Any]:
        for (_, table), order in zip(tables, orders, strict=True):
            for batch in table.batches():
                cells = [batch.column(column).cast(field.type) for column, field in zip(order, schema, strict=True)]
                yield pa.record_batch(cells, schema=schema)

    return TableStream(f"data file {pattern}", schema, read)


def _wider(path: Path, first: Path, column: Any, kind: Any) -> Any:  # noqa: ANN401 -- pyarrow has no types
    """Return a column of a type that holds its own cells and those of another type; raises InvalidDataError."""
    if kind == column.type:
        return column
    plain = [
        cell_type.value_type if pa.types.is_dictionary(cell_type) else cell_type for cell_type in (column.type, kind)
    ]
    try:
        both = pa.unify_schemas([pa.schema([("x", cell_type)]) for cell_type in plain], promote_options="permissive")
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
    """Stream the rows of a file in Arrow's format for files (as Feather is) or for streams."""
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
    """The rows of a table, at most so many for CSV, and the cells of its wanted columns.

    A list counts as many cells as it has items.
    """

    rows: int
    cells: int


def size_of(path: Path, wanted: Collection[str]) -> TableSize:
    """Return the size of a CSV or Parquet file; only the names of its columns are decoded.

    Raises InvalidDataError, which names the file, where it cannot be read. A file's metadata may be wrong: a decoder
    reads no more rows than they say, but only decoding shows how much memory these take.
    """
    with reading(path):
        if table_kind(path) != "csv":
            return _parquet_size(path, wanted)
        file = CsvFile(path)
        return TableSize(file.n_lines, file.n_lines * len(match_columns(file.places, wanted)))


def _parquet_size(path: Path, wanted: Collection[str]) -> TableSize:
    from pyarrow.parquet import read_metadata  # noqa: PLC0415 -- 5 MB, for who needs it

    metadata = read_metadata(path)
    meant = set(match_columns(metadata.schema.to_arrow_schema().names, wanted).values())
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


@contextmanager
def open_tables(
    tables: Mapping[str, TableAt], texts: TextColumns, csv_format: CsvFormat | None = None, *, as_texts: bool = False
) -> Iterator[dict[str, TableStream]]:
    """Open tables by name; ``texts`` are columns of CSV files that hold no numbers.

    Raises InvalidDataError.
    """
    from parley.common.files.databases import PostgresReader, sqlite_stream  # noqa: PLC0415 -- few sources need them

    readers: dict[str, PostgresReader] = {}
    with ExitStack() as stack:
        streams = {}
        for name, location in tables.items():
            if isinstance(location, PostgresTable):
                if location.postgres not in readers:
                    readers[location.postgres] = stack.enter_context(closing(PostgresReader(location.postgres)))
                streams[name] = readers[location.postgres].stream(location)
            elif inner_table := split_inner_table(location):
                path, inner = inner_table
                is_book = path.suffix.lower() in WORKBOOK_ENDINGS
                streams[name] = sheet_table(path, inner) if is_book else stack.enter_context(sqlite_stream(path, inner))
            else:
                streams[name] = file_table(location, texts, csv_format, as_texts=as_texts)
        yield streams


@contextmanager
def open_stream(data: DataSource, texts: TextColumns | None = None, *, as_texts: bool = False) -> Iterator[TableStream]:
    """Stream the rows of a query, of files, or of a table of SQLite.

    With ``as_texts`` the columns of CSV files that are the source are texts as they are in the file. Raises as
    `open_tables` and `run_query` do, and MissingExtraError for a query without the extra ``query``.
    """
    if not data.is_query:
        with open_tables({"source": data.source}, texts or {}, data.csv, as_texts=as_texts) as tables:
            yield tables["source"]
        return
    require_extra("query", "data.source is a query, which")
    from parley.common.files.query import run_query  # noqa: PLC0415 -- DuckDB, for who has a query

    with open_tables(data.tables, texts or {}, data.csv) as tables, run_query(data.source, tables, data.spill) as rows:
        yield rows
