"""Tables of files, workbooks and databases by the names that a query has for them, and the rows of any source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager

from parley.common.extras import require_extra
from parley.common.files.arrow import TableStream
from parley.common.files.cell_tables import sheet_table
from parley.common.files.csv_files import TextColumns
from parley.common.files.file_tables import file_table
from parley.common.files.postgres_tables import PostgresReader
from parley.common.files.sources import CsvFormat, DataSource, PostgresTable, TableAt, sqlite_table
from parley.common.files.sqlite_tables import sqlite_stream
from parley.common.files.tables import BOOKS


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

    Raises MissingExtraError for a query without the extra ``query``.

    With ``as_texts`` the columns of CSV files that are the source are texts, as they stand there.
    """
    if not data.is_query:
        with open_tables({"source": data.source}, texts or {}, data.csv, as_texts=as_texts) as tables:
            yield tables["source"]
        return
    require_extra("query", "data.source is a query, which")
    from parley.common.files.query import queried  # noqa: PLC0415 -- DuckDB, for who has a query

    with open_tables(data.tables, texts or {}, data.csv) as tables, queried(data.source, tables, data.spill) as rows:
        yield rows
