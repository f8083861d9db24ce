"""A query over named tables, by DuckDB, which sees these and nothing else: no file, no network, no extension.

DuckDB never opens a file: tables reach it as streams of Arrow batches, which are read as it asks for them. It runs one
thread, and keeps the order of rows where the query says none, so that the same tables give the same rows in the same
order. What a query sorts or joins is in memory meanwhile, and nothing is written to a disk, unless the owner names a
folder for it: DuckDB writes rows as they are, for it encrypts what it spills by an extension only that is downloaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import duckdb

from common.errors import InvalidDataError
from common.files.cell_tables import sheet_table
from common.files.csv_format import CsvFormat
from common.files.csv_tables import TextColumns
from common.files.file_tables import file_table
from common.files.postgres_tables import PostgresReader
from common.files.sources import DataSource, PostgresTable, Spill, TableAt, sqlite_table
from common.files.sqlite_tables import sqlite_stream
from common.files.streams import STREAM_ROWS, TableStream
from common.files.tables import BOOKS
from common.storage.scratch import scratch_folder

_LOCKED: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "preserve_insertion_order": True,
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_persistent_secrets": False,
    "temp_directory": "",
    "python_enable_replacements": False,
}
_TELLING = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException, duckdb.PermissionException)
"""What is wrong with the query's text; other errors may quote a value."""
_NO_TABLE = re.compile(r"^Catalog Error: Table with name .* does not exist")


@contextmanager
def open_tables(
    tables: Mapping[str, TableAt], texts: TextColumns, said: CsvFormat | None = None, *, as_texts: bool = False
) -> Iterator[dict[str, TableStream]]:
    """Tables by name; ``texts`` are columns of CSV files that hold no numbers. Raises InvalidDataError."""
    readers: dict[str, PostgresReader] = {}
    with ExitStack() as stack:
        streams = {}
        for name, at in tables.items():
            if isinstance(at, PostgresTable):
                if at.postgres not in readers:
                    readers[at.postgres] = stack.enter_context(closing(PostgresReader(at.postgres)))
                streams[name] = readers[at.postgres].stream(at)
            elif found := sqlite_table(at):
                path, inner = found
                is_book = path.suffix.lower() in BOOKS
                streams[name] = sheet_table(path, inner) if is_book else stack.enter_context(sqlite_stream(path, inner))
            else:
                streams[name] = file_table(at, texts, said, as_texts=as_texts)
        yield streams


@contextmanager
def open_stream(data: DataSource, texts: TextColumns | None = None, *, as_texts: bool = False) -> Iterator[TableStream]:
    """The rows of a query, of files, or of a table of SQLite; raises as `open_tables` and `queried`.

    With ``as_texts`` the columns of CSV files that are the source are texts, as they stand there.
    """
    if not data.is_query:
        with open_tables({"source": data.source}, texts or {}, data.csv, as_texts=as_texts) as tables:
            yield tables["source"]
        return
    with open_tables(data.tables, texts or {}, data.csv) as tables, queried(data.source, tables, data.spill) as rows:
        yield rows


@contextmanager
def queried(query: str, streams: Mapping[str, TableStream], spill: Spill | None = None) -> Iterator[TableStream]:
    """The rows of a query over tables, which can be read once.

    Raises InvalidDataError for anything but one SELECT, for what it names that there is not, and where it fails; for a
    folder to ``spill`` to as `scratch_folder`.
    """
    with (
        _memory(spill, sum(len(stream.schema) for stream in streams.values())) as memory,
        closing(duckdb.connect(":memory:", config=_LOCKED | memory)) as connection,
        _telling(streams),
    ):
        for name, stream in streams.items():
            connection.register(name, stream)
        connection.execute("SET enable_progress_bar = false")  # which writes where a child sends what it loads
        connection.execute("SET lock_configuration = true")
        statements = connection.extract_statements(query)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise InvalidDataError("data.source must be one SELECT: a query that reads, and does nothing else")
        relation = connection.sql(statements[0].query)
        if relation is None:
            raise InvalidDataError("data.source must be one SELECT: a query that gives rows")
        with relation.to_arrow_reader(STREAM_ROWS) as reader:

            def read() -> Iterator[Any]:
                with _telling(streams):
                    yield from reader

            yield TableStream("data.source", reader.schema, read)


@contextmanager
def _memory(spill: Spill | None, n_columns: int) -> Iterator[dict[str, str | bool | int | float | list[str]]]:
    """What DuckDB is told of memory and of where the rest goes."""
    if spill is None:
        yield {}
        return
    with scratch_folder(spill.folder, "data.spill.folder") as folder:
        yield {"temp_directory": str(folder), "memory_limit": f"{spill.above_mb or max(96, 2 * n_columns)}MB"}


@contextmanager
def _telling(streams: Mapping[str, TableStream]) -> Iterator[None]:
    """Raise InvalidDataError for what DuckDB raises: in its words where they are about the query alone."""
    try:
        yield
    except (duckdb.Error, OSError, RuntimeError) as error:
        for stream in streams.values():
            if stream.fault is not None:
                raise stream.fault from None
        if isinstance(error, _TELLING):
            told = str(error).splitlines()[0]
            remedy = " Say where it is: --table NAME=WHERE, or data.tables" if _NO_TABLE.search(told) else ""
            raise InvalidDataError(f"data.source: {told}{remedy}") from None
        if isinstance(error, duckdb.OutOfMemoryException):
            raise InvalidDataError(
                "data.source: the query needs more memory than there is, or than data.spill.above_mb allows it, or the "
                "disk it spills to has no room"
            ) from None
        raise InvalidDataError(f"data.source: the query cannot be run: {type(error).__name__}") from None
