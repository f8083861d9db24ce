"""Tables and views of SQLite files, opened read-only, as streams of Arrow batches.

SQLite's cells have types of their own, whatever their column declares, so a column's type is what its cells are: whole
numbers, numbers, or texts where any is a text. All reads of a table are of one state of it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from parley.common.errors import InvalidDataError
from parley.common.files.arrow import STREAM_ROWS, TableStream, cell_array

_HIDDEN = 1
"""How SQLite marks columns that SELECT * leaves out; it takes those that are generated."""
_LONGEST = 2**24
"""Bytes of a cell, which a view may make of nothing."""
_STEPS, _STEPS_A_BYTE, _STEPS_APART = 3 * 10**8, 30, 10**5
"""Steps of SQLite's machine that reading may take, of any file and by each byte more, for a view may never end; and
after how many it is asked."""


@contextmanager
def sqlite_stream(path: Path, table: str) -> Iterator[TableStream]:
    """A table of a file, in one state; raises InvalidDataError where either is missing or cannot be read."""
    if not path.is_file():
        raise InvalidDataError(f"data file {path} is missing")
    name = f"table {table!r} of {path}"
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(_opened(path, name))
            about = connection.execute(f"PRAGMA table_xinfo({_quoted(table)})")
            columns = [row[1] for row in about if row[-1] != _HIDDEN]
            if not columns:
                raise InvalidDataError(f"{name}: there is none of this name")
            schema = _schema(connection, table, columns)
        except sqlite3.Error as error:
            raise InvalidDataError(f"{name} cannot be read{_why(error)}") from None

        def read() -> Iterator[Any]:
            try:
                rows = connection.execute(f"SELECT * FROM {_quoted(table)}")  # noqa: S608 -- a quoted name
                while some := rows.fetchmany(STREAM_ROWS):
                    yield _batch(some, schema)
            except sqlite3.Error as error:
                raise InvalidDataError(f"{name} cannot be read to its end{_why(error)}") from None

        yield TableStream(name, schema, read)


@contextmanager
def _opened(path: Path, name: str) -> Iterator[sqlite3.Connection]:
    """A connection that only reads, and sees one state.

    Beside a database in WAL mode SQLite makes files, even to read. Where it may not, the database is read without, if
    all of it is in the one file. Raises InvalidDataError where a part is in another that cannot be read.
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


def _why(error: sqlite3.Error) -> str:
    """Which bound reading went beyond, and what to do; or nothing."""
    code = getattr(error, "sqlite_errorcode", None)  # the module's own errors have none
    if code == sqlite3.SQLITE_INTERRUPT:
        return ": it takes far more than its file's size: save its rows as a table"
    if code == sqlite3.SQLITE_TOOBIG:
        return f": a cell has more than {_LONGEST // 2**20} MB: make a view without it"
    return ""


def _can_be_read(uri: str) -> bool:
    """Whether SQLite can read a database as its file is."""
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.OperationalError:
        return False
    return True


def _in_wal_mode(path: Path) -> bool:
    """Whether a file says that it is a database in WAL mode (https://www.sqlite.org/fileformat.html, 1.3.3)."""
    with path.open("rb") as file:
        head = file.read(20)
    return head.startswith(b"SQLite format 3\0") and head[18:20] == b"\x02\x02"


def _schema(connection: sqlite3.Connection, table: str, columns: Sequence[str]) -> Any:  # noqa: ANN401 -- pyarrow's
    """The columns by what their cells are; this reads the table once."""
    kinds = ", ".join(
        f"coalesce(max(typeof({_quoted(name)}) = '{kind}'), 0)" for name in columns for kind in ("text", "blob", "real")
    )
    found = connection.execute(f"SELECT {kinds} FROM {_quoted(table)}").fetchone()  # noqa: S608 -- quoted names
    flags = zip(found[::3], found[1::3], found[2::3], strict=True)
    types = [pa.string() if text or blob else pa.float64() if real else pa.int64() for text, blob, real in flags]
    return pa.schema(list(zip(columns, types, strict=True)))


def _batch(rows: Sequence[tuple[Any, ...]], schema: Any) -> Any:  # noqa: ANN401 -- as above
    columns = zip(*rows, strict=True)
    return pa.record_batch(
        [cell_array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
