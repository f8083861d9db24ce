"""Tables and views of PostgreSQL as streams of Arrow batches: by COPY, a megabyte at a time.

Each read has a connection of its own, in a read-only transaction; all see the state of the database at first.
Whatever PostgreSQL says in an error is told by its five characters alone: the text may name hosts, users and values.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from parley.common.encoding.texts import decode_text
from parley.common.errors import InvalidDataError
from parley.common.extras import require_extra
from parley.common.files.arrow import TableStream
from parley.common.files.sources import PostgresTable

_BATCH_BYTES = 2**20
_NUMBERS = frozenset({"real", "double precision", "numeric", "money"})
_KEPT = frozenset({"smallint", "integer", "bigint", "boolean", "date", "timestamp without time zone"})
_COLUMNS = """
SELECT quote_ident(attname), format_type(atttypid, NULL), attrelid::regclass::text FROM pg_attribute
WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""


class PostgresReader:
    """Reads tables of one database, all in one state; for as long as it is open."""

    def __init__(self, secret: str) -> None:
        """``secret`` says where the connection string is: see `PostgresTable`. Raises InvalidDataError."""
        self._dsn = _connection_string(secret)
        self._first = _connected(self._dsn)
        try:
            self._snapshot = str(self._first.rows("SELECT pg_export_snapshot()")[0][0])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the transaction, which wrote nothing."""
        self._first.close()

    def stream(self, named: PostgresTable) -> TableStream:
        """The rows of a table; raises InvalidDataError where there is no such, or it may not be read."""
        name = f"table {named.table!r} of PostgreSQL"
        with _refusing(name):
            columns = self._first.rows(_COLUMNS, named.table)
        if not columns:
            raise InvalidDataError(f"{name} has no columns")
        picked = ", ".join(_expression(column, kind) for column, kind, _ in columns)
        select = f"SELECT {picked} FROM {columns[0][2]}"  # noqa: S608 -- names that PostgreSQL has quoted
        with _refusing(name):
            schema = next(self._read(f"{select} LIMIT 0")).schema

        def read() -> Iterator[Any]:
            with _refusing(name):
                yield from self._read(select)

        return TableStream(name, schema, read)

    def _read(self, select: str) -> Iterator[Any]:
        """The batches of a query, of which there is at least one."""
        with closing(_connected(self._dsn, self._snapshot)) as connection, connection.reading(select) as reader:
            plain = pa.schema([(field.name, field.type) for field in reader.schema])
            yield pa.record_batch([pa.array([], field.type) for field in plain], plain)
            for batch in reader:
                yield pa.record_batch(batch.columns, plain)


def _expression(column: str, kind: str) -> str:
    """A column as what a shard can be made of: numbers, truth values, times, or else texts."""
    if kind in _KEPT:
        return column
    return f"{column}::{'numeric::float8' if kind in _NUMBERS else 'text'} AS {column}"


def _connection_string(secret: str) -> str:
    kind, _, where = secret.partition(":")
    if kind == "env":
        if not (found := os.environ.get(where)):
            raise InvalidDataError(f"the environment variable {where}, PostgreSQL's connection string, is not set")
        return found
    try:
        return decode_text(Path(where).read_bytes()).strip()
    except (OSError, UnicodeError):
        raise InvalidDataError(f"file {where}, PostgreSQL's connection string, cannot be read") from None


class _Connection:
    """A transaction; by the driver itself, as its DB-API loads all of pyarrow, and polars where it is installed."""

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
        """End it, whatever it has done undone."""
        self._connection.close()
        self._database.close()

    @contextmanager
    def reading(self, query: str, parameter: str | None = None) -> Iterator[Any]:
        """What a query gives, as a reader of batches; ``parameter`` is what it has as $1."""
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
        """What a query gives, all of it."""
        with self.reading(query, parameter) as reader:
            return [tuple(row.values()) for row in reader.read_all().to_pylist()]

    def run(self, statement: str) -> None:
        """Run what gives nothing."""
        self.rows(statement)


def _connected(dsn: str, snapshot: str | None = None) -> _Connection:
    """A connection in a read-only transaction that sees one state."""
    require_extra("postgres", "reading tables of PostgreSQL")
    with _refusing("PostgreSQL"):
        connection = _Connection(dsn)
        try:
            connection.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            connection.run("SET LOCAL synchronize_seqscans = off")  # else a scan begins where another's is ...
            connection.run("SET LOCAL max_parallel_workers_per_gather = 0")  # ... and rows come as workers find them
            if snapshot is not None:
                connection.run(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
        except BaseException:
            connection.close()
            raise
    return connection


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    """Raise InvalidDataError for what the driver raises, without its text."""
    from adbc_driver_manager import Error  # noqa: PLC0415 -- an extra, and only for who needs it

    try:
        yield
    except (Error, pa.ArrowException, OSError) as error:
        state = getattr(error, "sqlstate", None)
        why = f" (SQLSTATE {state})" if state and str(state).strip("\0") else ""
        raise InvalidDataError(f"{name} cannot be read{why}") from None
