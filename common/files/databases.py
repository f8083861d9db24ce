"""Tables and views of databases as streams of Arrow batches, read-only, each in one state of the database.

SQLite: each cell has a type of its own, and the declared type of its column does not bind it. So a column's type is
that of its cells: whole numbers, numbers, or texts where any cell is a text.

PostgreSQL: rows come by COPY, a megabyte at a time. Each read has a connection of its own in a read-only transaction,
and all reads share the snapshot of the first. Errors quote only PostgreSQL's five-character code: its text may name
hosts, users and values.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from parley.common.encoding.texts import decode_text
from parley.common.errors import InvalidDataError
from parley.common.extras import require_extra
from parley.common.files.arrow import STREAM_ROWS, TableStream, cell_array
from parley.common.files.sources import PostgresTable

# ── SQLite ───────────────────────────────────────────────────────────────────

_HIDDEN = 1
"""SQLite's mark of columns that SELECT * leaves out; generated columns have another one, and are read."""
_LONGEST = 2**24
"""Bytes that a cell may have: a view can make a large cell from nothing."""
_STEPS, _STEPS_A_BYTE, _STEPS_APART = 3 * 10**8, 30, 10**5
"""Steps of SQLite's machine that reading may take, since a view may never end: for any file, for each byte of it more,
and how many pass between two checks."""


@contextmanager
def sqlite_stream(path: Path, table: str) -> Iterator[TableStream]:
    """Stream a table of a file in one state; raises InvalidDataError where either is missing or cannot be read."""
    if not path.is_file():
        raise InvalidDataError(f"data file {path} is missing")
    name = f"table {table!r} of {path}"
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(_open_sqlite(path, name))
            about = connection.execute(f"PRAGMA table_xinfo({_quote(table)})")
            columns = [row[1] for row in about if row[-1] != _HIDDEN]
            if not columns:
                raise InvalidDataError(f"{name}: there is none of this name")
            schema = _sqlite_schema(connection, table, columns)
        except sqlite3.Error as error:
            raise InvalidDataError(f"{name} cannot be read{_exceeded_bound(error)}") from None

        def read() -> Iterator[Any]:
            try:
                rows = connection.execute(f"SELECT * FROM {_quote(table)}")  # noqa: S608 -- a quoted name
                while some := rows.fetchmany(STREAM_ROWS):
                    yield _sqlite_batch(some, schema)
            except sqlite3.Error as error:
                raise InvalidDataError(f"{name} cannot be read to its end{_exceeded_bound(error)}") from None

        yield TableStream(name, schema, read)


@contextmanager
def _open_sqlite(path: Path, name: str) -> Iterator[sqlite3.Connection]:
    """Open a connection that only reads, and sees one state.

    To read a database in WAL mode, SQLite creates files beside it. Where it may not, the database is read without them,
    if all of it is in its one file. Raises InvalidDataError where a part is in another file that cannot be read.
    """
    uri = f"{path.resolve().as_uri()}?mode=ro"
    if not _can_be_read(uri) and _in_wal_mode(path):
        log = path.resolve().with_name(f"{path.resolve().name}-wal")
        if log.exists() and log.stat().st_size:
            raise InvalidDataError(
                f"{name} cannot be read: a part of it is in {log.name}, which SQLite reads only in a folder that it "
                "may write to: close what writes to the database, or copy both files elsewhere"
            )
        uri += "&immutable=1"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)) as connection:
        connection.execute("PRAGMA query_only = ON")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
        calls = count(1)
        most = (_STEPS + _STEPS_A_BYTE * path.stat().st_size) // _STEPS_APART
        connection.set_progress_handler(lambda: next(calls) > most, _STEPS_APART)
        connection.execute("BEGIN")
        yield connection


def _exceeded_bound(error: sqlite3.Error) -> str:
    """Say which bound a read has exceeded, and what to do; empty for other errors."""
    code = getattr(error, "sqlite_errorcode", None)  # the module's own errors have none
    if code == sqlite3.SQLITE_INTERRUPT:
        return ": it takes far more than its file's size: save its rows as a table"
    if code == sqlite3.SQLITE_TOOBIG:
        return f": a cell has more than {_LONGEST // 2**20} MB: make a view without it"
    return ""


def _can_be_read(uri: str) -> bool:
    """Return whether SQLite can read a database without creating files beside it."""
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.OperationalError:
        return False
    return True


def _in_wal_mode(path: Path) -> bool:
    """Return whether the header marks a database as in WAL mode (https://www.sqlite.org/fileformat.html, 1.3.3)."""
    with path.open("rb") as file:
        head = file.read(20)
    return head.startswith(b"SQLite format 3\0") and head[18:20] == b"\x02\x02"


def _sqlite_schema(connection: sqlite3.Connection, table: str, columns: Sequence[str]) -> Any:  # noqa: ANN401 -- pyarrow's
    """Return the columns and their types by their cells; this reads the table once."""
    kinds = ", ".join(
        f"coalesce(max(typeof({_quote(name)}) = '{kind}'), 0)" for name in columns for kind in ("text", "blob", "real")
    )
    present = connection.execute(f"SELECT {kinds} FROM {_quote(table)}").fetchone()  # noqa: S608 -- quoted names
    flags = zip(present[::3], present[1::3], present[2::3], strict=True)
    types = [pa.string() if text or blob else pa.float64() if real else pa.int64() for text, blob, real in flags]
    return pa.schema(list(zip(columns, types, strict=True)))


def _sqlite_batch(rows: Sequence[tuple[Any, ...]], schema: Any) -> Any:  # noqa: ANN401 -- as above
    columns = zip(*rows, strict=True)
    return pa.record_batch(
        [cell_array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema
    )


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# ── PostgreSQL ───────────────────────────────────────────────────────────────

_BATCH_BYTES = 2**20
_NUMBER_TYPES = frozenset({"real", "double precision", "numeric", "money"})
_PLAIN_TYPES = frozenset({"smallint", "integer", "bigint", "boolean", "date", "timestamp without time zone"})
_COLUMNS = """
SELECT quote_ident(attname), format_type(atttypid, NULL), attrelid::regclass::text FROM pg_attribute
WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""


class PostgresReader:
    """Reads tables of one database in one state, as long as it is open."""

    def __init__(self, secret: str) -> None:
        """Connect; ``secret`` says where the connection string is, see `PostgresTable`. Raises InvalidDataError."""
        self._secret, self._dsn = secret, _connection_string(secret)
        self._first = _connect(self._dsn, secret)
        try:
            self._snapshot = str(self._first.rows("SELECT pg_export_snapshot()")[0][0])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the transaction, which wrote nothing."""
        self._first.close()

    def stream(self, location: PostgresTable) -> TableStream:
        """Stream the rows of a table; raises InvalidDataError where it does not exist or must not be read."""
        name = f"table {location.table!r} of PostgreSQL"
        with _postgres_errors(name):
            columns = self._first.rows(_COLUMNS, location.table)
        if not columns:
            raise InvalidDataError(f"{name} has no columns")
        picked = ", ".join(_expression(column, kind) for column, kind, _ in columns)
        select = f"SELECT {picked} FROM {columns[0][2]}"  # noqa: S608 -- names that PostgreSQL has quoted
        with _postgres_errors(name):
            schema = next(self._read(f"{select} LIMIT 0")).schema

        def read() -> Iterator[Any]:
            with _postgres_errors(name):
                yield from self._read(select)

        return TableStream(name, schema, read)

    def _read(self, select: str) -> Iterator[Any]:
        """Yield the batches of a query, at least one."""
        with (
            closing(_connect(self._dsn, self._secret, self._snapshot)) as connection,
            connection.reading(select) as reader,
        ):
            plain = pa.schema([(field.name, field.type) for field in reader.schema])
            yield pa.record_batch([pa.array([], field.type) for field in plain], plain)
            for batch in reader:
                yield pa.record_batch(batch.columns, plain)


def _expression(column: str, kind: str) -> str:
    """Return the SQL of a column as a type that a shard can use: number, truth value, time, or text otherwise."""
    if kind in _PLAIN_TYPES:
        return column
    return f"{column}::{'numeric::float8' if kind in _NUMBER_TYPES else 'text'} AS {column}"


def _connection_string(secret: str) -> str:
    """Read the connection string from the environment or a file; raises InvalidDataError, which never quotes it."""
    kind, _, place = secret.partition(":")
    if kind == "env":
        if not (connection_string := os.environ.get(place)):
            raise InvalidDataError(f"the environment variable {place}, PostgreSQL's connection string, is not set")
        return connection_string
    try:
        return decode_text(Path(place).read_bytes()).strip()
    except (OSError, UnicodeError):
        raise InvalidDataError(f"file {place}, PostgreSQL's connection string, cannot be read") from None


class _Connection:
    """A transaction through the driver itself: its DB-API would load all of pyarrow, and polars where installed."""

    def __init__(self, dsn: str) -> None:
        from adbc_driver_manager import AdbcConnection  # noqa: PLC0415 -- an extra, and only for who needs it
        from adbc_driver_postgresql import connect  # noqa: PLC0415 -- as above

        self._database = connect(dsn)
        try:
            self._connection = AdbcConnection(self._database)
        except BaseException:
            self._database.close()
            raise
        self._connection.set_autocommit(False)

    def close(self) -> None:
        """End the transaction and undo all its changes."""
        self._connection.close()
        self._database.close()

    @contextmanager
    def reading(self, query: str, parameter: str | None = None) -> Iterator[Any]:
        """Run a query and read its result as batches; ``parameter`` is the value of $1."""
        from adbc_driver_manager import AdbcStatement  # noqa: PLC0415 -- as above

        with closing(AdbcStatement(self._connection)) as statement:
            statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
            statement.set_sql_query(query)
            if parameter is not None:
                statement.prepare()
                schema, values = pa.record_batch({"parameter": [parameter]}).__arrow_c_array__()
                statement.bind(values, schema)
            with pa.RecordBatchReader.from_stream(statement.execute_query()[0]) as reader:
                yield reader

    def rows(self, query: str, parameter: str | None = None) -> list[tuple[Any, ...]]:
        """Return all rows of a query's result."""
        with self.reading(query, parameter) as reader:
            return [tuple(row.values()) for row in reader.read_all().to_pylist()]

    def run(self, statement: str) -> None:
        """Run a statement that has no result."""
        self.rows(statement)


def _connect(dsn: str, secret: str, snapshot: str | None = None) -> _Connection:
    """Connect and begin a read-only transaction that sees one state; an error says where the secret ``dsn`` is."""
    require_extra("postgres", "reading tables of PostgreSQL")
    with _postgres_errors("PostgreSQL", f": is the connection string of {secret} right, and does its server answer?"):
        connection = _Connection(dsn)
        try:
            connection.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            connection.run("SET LOCAL synchronize_seqscans = off")  # scans begin at the first row ...
            connection.run(
                "SET LOCAL max_parallel_workers_per_gather = 0"
            )  # ... and no workers change the order of rows
            if snapshot is not None:
                connection.run(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
        except BaseException:
            connection.close()
            raise
    return connection


@contextmanager
def _postgres_errors(name: str, question: str = "") -> Iterator[None]:
    """Raise InvalidDataError, which may end with a question, in place of the driver's errors, without their text."""
    from adbc_driver_manager import Error  # noqa: PLC0415 -- an extra, and only for who needs it

    try:
        yield
    except (Error, pa.ArrowException, OSError) as error:
        sqlstate = getattr(error, "sqlstate", None)
        code = f" (SQLSTATE {sqlstate})" if sqlstate and str(sqlstate).strip("\0") else ""
        raise InvalidDataError(f"{name} cannot be read{code}{question}") from None
