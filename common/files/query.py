"""Run a query over named tables with DuckDB, which sees these and nothing else: no file, no network, no extension.

DuckDB never opens a file: it reads tables as streams of Arrow batches, when it needs them. It runs one thread and keeps
the order of rows where the query states none, so that the same tables give the same rows in the same order. The rows
that a query sorts or joins stay in memory, and nothing is written to a disk, unless the owner names a folder for it:
DuckDB writes these rows in the clear, since its encryption needs an extension that it would download.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from parley.common.encoding.texts import shortened
from parley.common.errors import InvalidDataError
from parley.common.files.arrow import STREAM_ROWS, TableStream
from parley.common.files.parquet_files import check_texts
from parley.common.files.sources import Spill
from parley.common.storage.folders import scratch_folder

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
_QUERY_ERRORS = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException, duckdb.PermissionException)
"""Errors about the query's text; the text of other errors may quote a value."""
_CASTS = {pa.float16().id: pa.float32, pa.decimal256(1).id: pa.float64}
"""The types that columns get if DuckDB does not read theirs, by pyarrow's numbers of types."""
_READABLE = frozenset(
    kind.id
    for kind in (
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.bool_(), pa.date32(),
        pa.timestamp("us"),
    )
)  # fmt: skip
_MOST_TRIED = 200
"""At most so many columns of a failed query are tried one by one."""
_NO_TABLE = re.compile(r"^Catalog Error: Table with name .* does not exist")


@contextmanager
def run_query(query: str, streams: Mapping[str, TableStream], spill: Spill | None = None) -> Iterator[TableStream]:
    """Stream the rows of a query over tables; they can be read once.

    Raises InvalidDataError for anything but one SELECT, for names that do not exist, and where it fails; for the folder
    ``spill`` as `scratch_folder` does.
    """
    with (
        _memory_settings(spill, sum(len(stream.schema) for stream in streams.values())) as memory,
        closing(duckdb.connect(":memory:", config=_LOCKED | memory)) as connection,
        ExitStack() as stack,
    ):
        adapted = {name: _adapt(connection, stream) for name, stream in streams.items()}
        streams = {name: stream for name, (stream, _) in adapted.items()}
        left_out = [f"{shortened(column)!r} of {name}" for name, (_, columns) in adapted.items() for column in columns]
        stack.enter_context(_query_errors(streams, left_out))
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
        with _column_errors(relation, streams):
            reader = stack.enter_context(relation.to_arrow_reader(STREAM_ROWS))
            schema = reader.schema

        def read() -> Iterator[Any]:
            with _query_errors(streams, left_out), _column_errors(relation, streams):
                yield from reader
            rows.notes[:] = notes()

        def notes() -> list[str]:
            unread = [f"column {column} is of a type that a query cannot read: it is left out" for column in left_out]
            return [*(note for stream in streams.values() for note in stream.notes), *unread]

        rows = TableStream("data.source", schema, read)
        rows.notes += notes()
        yield rows


def _adapt(connection: duckdb.DuckDBPyConnection, stream: TableStream) -> tuple[TableStream, list[str]]:
    """Return a table in types that DuckDB reads, and the names of the columns that it cannot read."""
    kinds = {field.name: _CASTS.get(field.type.id, lambda: field.type)() for field in stream.schema}  # noqa: B023 -- called at once
    reads = {kind: _can_read(connection, kind) for kind in set(kinds.values())}
    left_out = [name for name, kind in kinds.items() if not reads[kind]]
    schema = pa.schema([(name, kind) for name, kind in kinds.items() if reads[kind]])
    is_unchanged = schema.equals(pa.schema([(field.name, field.type) for field in stream.schema]))

    def read() -> Iterator[Any]:
        for batch in stream.batches():
            for field in schema:  # DuckDB gives texts once a row
                check_texts(stream.name, field.name, batch.column(field.name))
            columns = [batch.column(field.name).cast(field.type) for field in schema]
            yield batch if is_unchanged else pa.record_batch(columns, schema=schema)

    adapted = TableStream(stream.name, schema, read)
    adapted.notes = stream.notes
    return adapted, left_out


def _can_read(connection: duckdb.DuckDBPyConnection, kind: Any) -> bool:  # noqa: ANN401 -- pyarrow has no types
    """Return whether DuckDB reads columns of a type."""
    if kind.id in _READABLE:
        return True
    try:
        connection.register("_tried", pa.table({"x": pa.array([], kind)}))
        connection.execute("SELECT * FROM _tried")
    except (duckdb.Error, pa.ArrowException):
        return False
    finally:
        connection.unregister("_tried")
    return True


@contextmanager
def _column_errors(relation: duckdb.DuckDBPyRelation, streams: Mapping[str, TableStream]) -> Iterator[None]:
    """Raise InvalidDataError that names the column for which a query fails: each is tried alone."""
    try:
        yield
    except (duckdb.Error, RuntimeError, pa.ArrowException) as error:
        if isinstance(error, duckdb.OutOfMemoryException) or any(
            stream.fault is not None for stream in streams.values()
        ):
            raise
        kinds = dict(zip(relation.columns, relation.types, strict=True))
        for name in relation.columns[:_MOST_TRIED]:
            if not _is_readable(relation, name):
                raise InvalidDataError(
                    f"data.source: column {shortened(name)!r}, of type {kinds[name]}, cannot be read "
                    f"({type(error).__name__}): leave it out, or make a number or a text of it"
                ) from None
        raise


def _is_readable(relation: duckdb.DuckDBPyRelation, name: str) -> bool:
    """Return whether one column of a query can be read."""
    try:
        with relation.select(duckdb.ColumnExpression(name)).to_arrow_reader(STREAM_ROWS) as reader:
            return all(batch.num_rows >= 0 for batch in reader)
    except (duckdb.Error, RuntimeError, pa.ArrowException):
        return False


@contextmanager
def _memory_settings(spill: Spill | None, n_columns: int) -> Iterator[dict[str, str | bool | int | float | list[str]]]:
    """Yield DuckDB's settings of memory and of the folder where rows beyond it go."""
    if spill is None:
        yield {}
        return
    with scratch_folder(spill.folder, "data.spill.folder") as folder:
        yield {"temp_directory": str(folder), "memory_limit": f"{spill.above_mb or max(96, 2 * n_columns)}MB"}


@contextmanager
def _query_errors(streams: Mapping[str, TableStream], left_out: Sequence[str]) -> Iterator[None]:
    """Raise InvalidDataError in place of DuckDB's errors, in its words where they are about the query's text alone.

    ``left_out`` are columns of the tables that no query can read.
    """
    try:
        yield
    except (duckdb.Error, OSError, RuntimeError) as error:
        for stream in streams.values():
            if stream.fault is not None:
                raise stream.fault from None
        if isinstance(error, _QUERY_ERRORS):
            message = str(error).splitlines()[0]
            remedy = " Say where it is: --table NAME=WHERE, or data.tables" if _NO_TABLE.search(message) else ""
            if left_out:
                remedy += f" No query can read these columns, by their types: {', '.join(left_out)}"
            raise InvalidDataError(f"data.source: {message}{remedy}") from None
        if isinstance(error, duckdb.OutOfMemoryException):
            raise InvalidDataError(
                "data.source: the query needs more memory than there is, or than data.spill.above_mb allows it, or the "
                "disk it spills to has no room"
            ) from None
        raise InvalidDataError(f"data.source: the query cannot be run: {type(error).__name__}") from None
