"""Tables of databases, to the letter: which types columns get, what PostgreSQL is asked, and what errors say."""

from __future__ import annotations

import itertools
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from parley.common.errors import InvalidDataError
from parley.common.extras import MissingExtraError
from parley.common.files import databases
from parley.common.files.databases import PostgresReader, sqlite_stream
from parley.common.files.sources import PostgresTable

# ── SQLite ───────────────────────────────────────────────────────────────────


def make_sqlite(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(statement)
    return path


def test_a_column_of_sqlite_gets_the_type_of_its_cells(tmp_path: Path) -> None:
    path = make_sqlite(
        tmp_path / "lab.sqlite",
        'CREATE TABLE t ("whole ""n""", part, note, scan, mixed, late, none)',
        "INSERT INTO t VALUES (1, 0.5, 'a', x'00ff', 7, 2, NULL)",
        "INSERT INTO t VALUES (NULL, 3, 'b', NULL, 'x', x'01', NULL)",
        "INSERT INTO t VALUES (9007199254740993, NULL, NULL, 5, 1.0, NULL, NULL)",
    )
    with sqlite_stream(path, "t") as stream:
        assert stream.name == f"table 't' of {path}"
        assert [(column.name, column.type) for column in stream.schema] == [
            ('whole "n"', pa.int64()),
            ("part", pa.float64()),
            ("note", pa.string()),
            ("scan", pa.string()),
            ("mixed", pa.string()),
            ("late", pa.string()),
            ("none", pa.int64()),
        ]
        (batch,) = stream.batches()
        assert batch.schema == stream.schema
        assert batch.to_pydict() == {
            'whole "n"': [1, None, 9007199254740993],
            "part": [0.5, 3.0, None],
            "note": ["a", "b", None],
            "scan": ["(bytes)", None, "5"],
            "mixed": ["7", "x", "1"],
            "late": ["2", "(bytes)", None],
            "none": [None, None, None],
        }


def test_an_empty_table_of_sqlite_has_columns_of_whole_numbers_and_no_rows(tmp_path: Path) -> None:
    with sqlite_stream(make_sqlite(tmp_path / "lab.sqlite", "CREATE TABLE t (age, ill TEXT)"), "t") as stream:
        assert stream.schema == pa.schema([("age", pa.int64()), ("ill", pa.int64())])
        assert list(stream.batches()) == []


def test_a_read_of_sqlite_that_takes_too_much_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT i FROM r"
    path = make_sqlite(
        tmp_path / "lab.sqlite",
        f"CREATE VIEW endless AS {count}",
        "CREATE VIEW large AS SELECT zeroblob(20000000) AS i",
    )
    monkeypatch.setattr(databases, "_STEPS", 10**5)
    for view, words in (
        ("endless", ": it takes far more than its file's size: save its rows as a table"),
        ("large", ": a cell has more than 16 MB: make a view without it"),
    ):
        with pytest.raises(InvalidDataError) as refused, sqlite_stream(path, view):
            pass
        assert refused.value.detail == f"table '{view}' of {path} cannot be read{words}"


def test_another_fault_of_sqlite_is_told_without_a_reason(tmp_path: Path) -> None:
    """One that SQLite finds, and one that Python's module finds, which has no code."""
    (tmp_path / "lab.sqlite").write_bytes(b"age,ill\n40,no\n" * 100)
    with pytest.raises(InvalidDataError) as refused, sqlite_stream(tmp_path / "lab.sqlite", "t"):
        pass
    assert refused.value.detail == f"table 't' of {tmp_path / 'lab.sqlite'} cannot be read"
    path = make_sqlite(
        tmp_path / "odd.sqlite", "CREATE TABLE t (ill TEXT)", "INSERT INTO t VALUES (CAST(x'ff' AS TEXT))"
    )
    with sqlite_stream(path, "t") as stream, pytest.raises(InvalidDataError) as refused:
        list(stream.batches())
    assert refused.value.detail == f"table 't' of {path} cannot be read to its end"


@pytest.mark.parametrize(
    ("head", "is_wal"),
    [
        (b"SQLite format 3\0\x10\x00\x02\x02", True),
        (b"SQLite format 3\0\x10\x00\x02\x02\x02\x02", True),
        (b"SQLite format 3\0\x10\x00\x01\x01", False),
        (b"SQLite format 3\0\x10\x00\x02\x01", False),
        (b"SQLite format 3\0\x10\x02\x02", False),
        (b"sqlite format 3\0\x10\x00\x02\x02", False),
        (b"", False),
    ],
)
def test_bytes_18_and_19_of_a_header_mark_wal_mode(tmp_path: Path, head: bytes, *, is_wal: bool) -> None:
    (tmp_path / "lab.sqlite").write_bytes(head)
    assert databases._in_wal_mode(tmp_path / "lab.sqlite") is is_wal


# ── PostgreSQL ───────────────────────────────────────────────────────────────

DSN = "host=/run user=anna password=hunter2"
LABS = pa.table(
    {"age": pa.array([30, 40, 50], pa.int32()), "ill": ["no", "yes", None]},
    schema=pa.schema(
        [pa.field("age", pa.int32(), metadata={"ADBC:postgresql:typname": "int4"}), ("ill", pa.string())],
        metadata={"from": "the driver"},
    ),
)
COLUMNS = pa.table({
    "quote_ident": ["age", '"Ill"'], "format_type": ["integer", "character varying"], "attrelid": ["clinic.labs"] * 2,
})  # fmt: skip
ANSWERS = {
    "SELECT pg_export_snapshot()": pa.table({"pg_export_snapshot": ["00000003-1"]}),
    databases._COLUMNS: COLUMNS,
    'SELECT age, "Ill"::text AS "Ill" FROM clinic.labs LIMIT 0': LABS.slice(0, 0),
    'SELECT age, "Ill"::text AS "Ill" FROM clinic.labs': pa.Table.from_batches(
        [*LABS.slice(0, 2).to_batches(), *LABS.slice(2).to_batches()]
    ),
}
BEGIN = [
    "do not commit by itself",
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    "SET LOCAL synchronize_seqscans = off",
    "SET LOCAL max_parallel_workers_per_gather = 0",
]


@dataclass(slots=True)
class Server:
    """Stands in for PostgreSQL behind its driver: gives ``answers`` by query, and notes what each connection does.

    ``broken`` are queries that fail, each with its SQLSTATE.
    """

    answers: dict[str, pa.Table] = field(default_factory=lambda: dict(ANSWERS))
    broken: dict[str, str | None] = field(default_factory=dict)
    noted: list[tuple[int, str]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def connect(self, dsn: str) -> Database:
        database = Database(self, next(self.numbers))
        database.note(f"connect to {dsn}")
        return database


@dataclass(slots=True)
class Database:
    """The driver's, by its number in the order of connections."""

    server: Server
    number: int

    def note(self, what: str) -> None:
        self.server.noted.append((self.number, what))
        if what in self.server.broken:
            error = FaultError("hunter2 is no password")
            error.sqlstate = self.server.broken[what]
            raise error

    def close(self) -> None:
        self.note("disconnect")


class FaultError(Exception):
    """The driver's error."""

    sqlstate: str | None


@dataclass(slots=True)
class Connection:
    """The driver's: a transaction."""

    database: Database

    def __post_init__(self) -> None:
        self.database.note("begin")

    def set_autocommit(self, enabled: bool) -> None:  # noqa: FBT001 -- the driver's
        assert enabled is False
        self.database.note("do not commit by itself")

    def close(self) -> None:
        self.database.note("roll back")


@dataclass(slots=True)
class Statement:
    """The driver's: a query, and the values of its parameters."""

    connection: Connection
    query: str = ""
    options: dict[str, str] = field(default_factory=dict)
    parameters: list[Any] = field(default_factory=list)

    def set_options(self, **options: str) -> None:
        self.options = options

    def set_sql_query(self, query: str) -> None:
        self.query = query

    def prepare(self) -> None:
        self.parameters = [None]

    def bind(self, values: object, schema: object) -> None:
        assert self.parameters == [None]
        self.parameters = list(pa.RecordBatch._import_from_c_capsule(schema, values).to_pylist()[0].values())

    def execute_query(self) -> tuple[pa.Table, int]:
        database = self.connection.database
        assert self.options == {"adbc.postgresql.batch_size_hint_bytes": str(2**20)}
        database.note(" ".join([self.query, *(f"-- {value}" for value in self.parameters)]))
        return database.server.answers.get(self.query, pa.table({})), -1

    def close(self) -> None:
        """As the driver's, which frees memory."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    manager = pytest.importorskip("adbc_driver_manager")
    driver = pytest.importorskip("adbc_driver_postgresql")
    made = Server()
    monkeypatch.setattr(driver, "connect", made.connect)
    for name, stand_in in (("AdbcConnection", Connection), ("AdbcStatement", Statement), ("Error", FaultError)):
        monkeypatch.setattr(manager, name, stand_in)
    monkeypatch.setenv("LAB_DSN", DSN)
    return made


TABLE = PostgresTable(postgres="env:LAB_DSN", table="labs")
LOOK_UP = f"{databases._COLUMNS} -- labs"
PICKED = 'SELECT age, "Ill"::text AS "Ill" FROM clinic.labs'


QUESTION = "is the connection string of env:LAB_DSN right, and does its server answer?"


def test_a_table_of_postgresql_is_read_in_the_snapshot_of_the_first_transaction(server: Server) -> None:
    reader = PostgresReader("env:LAB_DSN")
    stream = reader.stream(TABLE)
    assert stream.name == "table 'labs' of PostgreSQL"
    assert stream.schema.equals(pa.schema([("age", pa.int32()), ("ill", pa.string())]), check_metadata=True)
    batches = list(stream.batches())
    assert all(batch.schema.equals(stream.schema, check_metadata=True) for batch in batches)
    assert [batch.to_pydict() for batch in batches] == [
        {"age": [], "ill": []},
        {"age": [30, 40], "ill": ["no", "yes"]},
        {"age": [50], "ill": [None]},
    ]
    reader.close()
    opened, shut = [f"connect to {DSN}", "begin", *BEGIN], ["roll back", "disconnect"]
    joined = [*opened, "SET TRANSACTION SNAPSHOT '00000003-1'"]
    assert server.noted == [
        *((1, what) for what in (*opened, "SELECT pg_export_snapshot()", LOOK_UP)),
        *((2, what) for what in (*joined, f"{PICKED} LIMIT 0", *shut)),
        *((3, what) for what in (*joined, PICKED, *shut)),
        *((1, what) for what in shut),
    ]


@pytest.mark.parametrize("broken", ["begin", BEGIN[1], BEGIN[3], "SELECT pg_export_snapshot()"])
def test_a_connection_that_fails_to_begin_is_closed(server: Server, broken: str) -> None:
    server.broken[broken] = "42501"
    with pytest.raises((InvalidDataError, FaultError)):
        PostgresReader("env:LAB_DSN")
    assert server.noted[-1] == (1, "disconnect")
    assert ((1, "roll back") in server.noted) is (broken != "begin")


@pytest.mark.parametrize(
    ("broken", "sqlstate", "words"),
    [
        (f"connect to {DSN}", "08001", f"PostgreSQL cannot be read (SQLSTATE 08001): {QUESTION}"),
        (f"connect to {DSN}", None, f"PostgreSQL cannot be read: {QUESTION}"),
        (f"connect to {DSN}", "\0\0\0\0\0", f"PostgreSQL cannot be read: {QUESTION}"),
        (LOOK_UP, "42P01", "table 'labs' of PostgreSQL cannot be read (SQLSTATE 42P01)"),
        (f"{PICKED} LIMIT 0", "42501", "table 'labs' of PostgreSQL cannot be read (SQLSTATE 42501)"),
        (PICKED, "57014", "table 'labs' of PostgreSQL cannot be read (SQLSTATE 57014)"),
    ],
)
def test_an_error_of_postgresql_is_told_by_its_code_alone(
    server: Server, broken: str, sqlstate: str | None, words: str
) -> None:
    server.broken[broken] = sqlstate
    with pytest.raises(InvalidDataError) as refused, closing(PostgresReader("env:LAB_DSN")) as reader:
        list(reader.stream(TABLE).batches())
    assert refused.value.detail == words


def test_a_table_of_postgresql_without_columns_is_refused(server: Server) -> None:
    server.answers[databases._COLUMNS] = COLUMNS.slice(0, 0)
    with pytest.raises(InvalidDataError) as refused:
        PostgresReader("env:LAB_DSN").stream(TABLE)
    assert refused.value.detail == "table 'labs' of PostgreSQL has no columns"


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_DSN", DSN)
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    with pytest.raises(MissingExtraError) as missing:
        PostgresReader("env:LAB_DSN")
    assert str(missing.value) == "reading tables of PostgreSQL needs pip install 'parley-learning[postgres]'"


@pytest.mark.parametrize(
    ("kind", "picked"),
    [
        *((kind, "x") for kind in ("smallint", "integer", "bigint", "boolean", "date", "timestamp without time zone")),
        *((kind, "x::numeric::float8 AS x") for kind in ("real", "double precision", "numeric", "money")),
        *((kind, "x::text AS x") for kind in ("text", "character varying", "timestamp with time zone", "uuid")),
    ],
)
def test_a_column_of_postgresql_is_asked_for_in_a_type_that_a_shard_can_use(kind: str, picked: str) -> None:
    assert databases._expression("x", kind) == picked


def test_a_connection_string_is_in_the_environment_or_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_DSN", DSN)
    monkeypatch.setenv("NO_DSN", "")
    (tmp_path / "a:b").write_text(f" {DSN}\n", encoding="utf-16")
    assert databases._connection_string("env:LAB_DSN") == DSN
    assert databases._connection_string(f"file:{tmp_path}/a:b") == DSN
    for secret, words in (
        ("env:NO_DSN", "the environment variable NO_DSN, PostgreSQL's connection string, is not set"),
        (f"file:{tmp_path}/c", f"file {tmp_path}/c, PostgreSQL's connection string, cannot be read"),
    ):
        with pytest.raises(InvalidDataError) as refused:
            databases._connection_string(secret)
        assert refused.value.detail == words
