"""Equal rows make equal shards, bit for bit, wherever an owner keeps them; and a query sees what it is given alone."""

from __future__ import annotations

import csv
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parley.common.data.columns import Category, Feature, Label
from parley.common.data.loading import Loaded
from parley.common.data.study import Study
from parley.common.errors import InvalidDataError
from parley.common.files.examples import load_source
from parley.common.files.sources import DataSource
from parley.common.files.study_fit import fit_of_source
from parley.common.files.tables import file_table
from parley.party.data.owner_data import load_apart
from parley.party.settings import Data
from tests.support.postgres import find_binaries, running_postgres

pytestmark = pytest.mark.long

STUDY = Study(
    name="visits",
    missing="drop",
    features=(
        Feature(name="age", lower=0, upper=120),
        Feature(name="marker", lower=-10, upper=10),
        Category(name="ward", values=("007", "010"), other=True),
        Category(name="date", values=("2026-01-01", "2026-01-02")),
    ),
    label=Label(name="ill", values=("no", "yes")),
)
N = 500
Rows = list[tuple[int, int | None, float | None, str, str, str]]
NAMES = ("id", "age", "marker", "ward", "date", "ill")
TWO = "SELECT v.age, l.marker, v.ward, v.date, v.ill FROM visits v LEFT JOIN labs l USING (id) ORDER BY v.id"


def rows() -> Rows:
    rng = np.random.default_rng(3)
    return [
        (
            i,
            None if i % 50 == 7 else int(rng.integers(0, 100)),
            None if i % 70 == 9 else float(rng.uniform(-10, 10)),
            str(rng.choice(["007", "010", "9"])),
            str(rng.choice(["2026-01-01", "2026-01-02"])),
            str(rng.choice(["no", "yes"])),
        )
        for i in range(N)
    ]


def write_csv(path: Path, names: tuple[str, ...], table: list[tuple[Any, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([names, *table])


def write_sqlite(path: Path, table: str, names: tuple[str, ...], cells: list[tuple[Any, ...]]) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"CREATE TABLE {table} ({', '.join(names)})")
        marks = ", ".join("?" * len(names))
        database.executemany(f"INSERT INTO {table} VALUES ({marks})", cells)  # noqa: S608 -- our own


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, table = tmp_path_factory.mktemp("sources"), rows()
    write_csv(root / "visits.csv", NAMES, table)
    columns = pa.table({name: list(column) for name, column in zip(NAMES, zip(*table, strict=True), strict=True)})
    (root / "parts").mkdir()
    for i in range(3):
        pq.write_table(columns.slice(i * 200, 200), root / "parts" / f"part-{i}.parquet")
    write_sqlite(root / "visits.sqlite", "visits", NAMES, table)
    write_sqlite(root / "visits.sqlite", "labs", ("id", "marker"), [(row[0], row[2]) for row in reversed(table)])
    write_csv(root / "basics.csv", ("id", "age", "ward", "date", "ill"), [(*r[:2], *r[3:]) for r in table])
    return root


@pytest.fixture(scope="module")
def expected(folder: Path) -> Loaded:
    return load_source(DataSource(source=f"{folder}/visits.csv"), STUDY)


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    if (binaries := find_binaries()) is None:
        pytest.skip("there is no PostgreSQL here: no initdb in /usr/lib/postgresql or on the path")
    with running_postgres(binaries) as dsn:
        os.environ["SOURCES_DSN"] = dsn
        fill(dsn, rows())
        yield dsn
        del os.environ["SOURCES_DSN"]


def fill(dsn: str, table: Rows) -> None:
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    with dbapi.connect(dsn) as connection, connection.cursor() as cursor:
        cursor.execute(
            'CREATE TABLE visits (id int, age smallint, marker numeric, ward varchar(9), "date" date, ill text)'
        )
        for row in table:
            cells = ", ".join("NULL" if cell is None else f"'{cell}'" for cell in row)
            cursor.execute(f"INSERT INTO visits VALUES ({cells})")  # noqa: S608 -- as above
        cursor.execute("CREATE VIEW labs AS SELECT id, marker::float8 AS marker FROM visits ORDER BY id DESC")
        cursor.execute("CREATE TABLE written (n int)")
        cursor.execute(
            "CREATE FUNCTION sly() RETURNS int AS 'INSERT INTO written VALUES (1) RETURNING n' LANGUAGE sql VOLATILE"
        )
        cursor.execute("CREATE VIEW sneaky AS SELECT id, sly() AS age FROM visits")
        connection.commit()


def assert_equal(one: Loaded, other: Loaded) -> None:
    assert one.shard.X.tobytes() == other.shard.X.tobytes()
    assert one.shard.y.tobytes() == other.shard.y.tobytes()
    assert one.dropped_share == other.dropped_share > 0


@pytest.mark.parametrize(
    ("source", "tables"),
    [
        ("{}/parts/*.parquet", {}),
        ("{}/visits.sqlite::visits", {}),
        ("SELECT * FROM visits", {"visits": "{}/visits.csv"}),
        ("select * from visits", {"visits": "{}/parts/*.parquet"}),
        ("FROM visits ORDER BY id", {"visits": "{}/visits.sqlite::visits"}),
        (TWO, {"visits": "{}/basics.csv", "labs": "{}/visits.sqlite::labs"}),
        (TWO, {"visits": "{}/parts/*.parquet", "labs": "{}/visits.sqlite::labs"}),
    ],
    ids=["parts", "sqlite", "query-csv", "query-parquet", "query-sqlite", "csv-sqlite", "parquet-sqlite"],
)
def test_equal_rows_make_equal_shards(folder: Path, expected: Loaded, source: str, tables: dict[str, str]) -> None:
    named = {name: at.format(folder) for name, at in tables.items()}
    assert_equal(load_source(DataSource(source=source.format(folder), tables=named), STUDY), expected)


@pytest.mark.parametrize("query", ["SELECT * FROM visits ORDER BY id", TWO])
@pytest.mark.slow
def test_postgresql_makes_the_same_shard(
    folder: Path, expected: Loaded, postgres: str, tmp_path: Path, query: str
) -> None:
    secret = tmp_path / "dsn"
    secret.write_text(postgres + "\n", encoding="utf-8")
    tables: dict[str, Any] = {
        "visits": {"postgres": "env:SOURCES_DSN", "table": "public.visits"},
        "labs": {"postgres": f"file:{secret}", "table": "labs"},
    }
    source = Data(source=query, tables=tables)
    assert_equal(load_source(source, STUDY), expected)
    assert_equal(load_apart(source, STUDY), expected)


def test_postgresql_is_only_read(postgres: str) -> None:
    tables: dict[str, Any] = {"t": {"postgres": "env:SOURCES_DSN", "table": "sneaky"}}
    with pytest.raises(InvalidDataError, match=r"^table 'sneaky' of PostgreSQL cannot be read"):
        load_source(DataSource(source="SELECT * FROM t", tables=tables), STUDY)
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    with dbapi.connect(postgres) as connection, connection.cursor() as cursor:
        for query, count in (("SELECT count(*) FROM written", 0), ("SELECT count(age) FROM sneaky", N)):
            cursor.execute(query)  # who may write is not refused
            assert cursor.fetchone() == (count,)
        connection.rollback()


def test_reading_postgresql_loads_no_other_table_libraries(postgres: str) -> None:
    """The driver's DB-API would load polars where it is installed, and much of pyarrow: tens of MB beside the shard."""
    assert postgres
    script = (
        "import sys; from parley.common.files.databases import PostgresReader; "
        "from parley.common.files.sources import PostgresTable as T; reader = PostgresReader('env:SOURCES_DSN'); "
        "print(sum(b.num_rows for b in reader.stream(T(postgres='env:SOURCES_DSN', table='visits')).read())); "
        "print({'polars', 'pyarrow.dataset'} & sys.modules.keys() or 'neither')"
    )
    result = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert result.stdout.split() == [str(N), "neither"]


@pytest.mark.parametrize(
    ("secret", "words"),
    [
        ("env:NO_SUCH_DSN", "the environment variable NO_SUCH_DSN"),
        ("file:/no/such/dsn", "file /no/such/dsn"),
        ("env:WRONG_DSN", "PostgreSQL cannot be read"),
    ],
)
def test_a_connection_string_is_never_told(monkeypatch: pytest.MonkeyPatch, secret: str, words: str) -> None:
    pytest.importorskip("adbc_driver_postgresql")
    monkeypatch.setenv("WRONG_DSN", "host=/nowhere user=anna password=hunter2")
    tables: dict[str, Any] = {"t": {"postgres": secret, "table": "t"}}
    with pytest.raises(InvalidDataError, match=words) as refused:
        load_source(DataSource(source="SELECT * FROM t", tables=tables), STUDY)
    assert "hunter2" not in refused.value.detail
    assert "\n" not in refused.value.detail


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT 1; DROP TABLE t", "one SELECT"),
        ("DELETE FROM t", "one SELECT"),
        ("INSERT INTO t VALUES (1)", "one SELECT"),
        ("COPY t TO '{}/stolen.csv'", "one SELECT"),
        ("ATTACH '{}/visits.sqlite' AS v", "one SELECT"),
        ("SET threads = 4", "one SELECT"),
        ("PRAGMA version", "one SELECT"),
        ("INSTALL httpfs", "one SELECT"),
        ("LOAD postgres", "one SELECT"),
        ("", "at least 1"),
        ("SELEC * FROM t", "syntax error"),
        ("WITH w AS (INSERT INTO t VALUES (1) RETURNING *) SELECT * FROM w", "data.source"),
        ("SELECT * FROM read_csv('{}/visits.csv')", "file system operations are disabled"),
        ("SELECT * FROM '{}/visits.csv'", "file system operations are disabled"),
        ("SELECT * FROM read_text('/etc/passwd')", "file system operations are disabled"),
        ("SELECT * FROM glob('/etc/*')", "file system operations are disabled"),
        ("SELECT * FROM sqlite_scan('{}/visits.sqlite', 'visits')", "data.source"),
        ("SELECT * FROM query('COPY t TO ''x.csv''')", "data.source"),
        ("SELECT * FROM elsewhere", "elsewhere does not exist"),
        ("SELECT height FROM t", "height"),
        ("SELECT ward::DATE FROM t", "of type DATE, cannot be read .ConversionException"),
        ("SELECT age, age FROM t", "absent|names columns twice"),
    ],
)
def test_a_query_that_does_more_than_read_is_refused_in_a_line(folder: Path, query: str, words: str) -> None:
    before = sorted(folder.rglob("*"))
    with pytest.raises((InvalidDataError, ValueError), match=words) as refused:
        load_source(DataSource(source=query.format(folder), tables={"t": f"{folder}/visits.csv"}), STUDY)
    if isinstance(refused.value, InvalidDataError):
        assert "\n" not in refused.value.detail
    assert sorted(folder.rglob("*")) == before


def test_a_query_sees_no_variable_of_this_process(folder: Path) -> None:
    t = folder / "visits.csv"  # noqa: F841 -- the name of a table that is not given
    with pytest.raises(InvalidDataError, match="Table with name t does not exist"):
        load_source(DataSource(source="SELECT * FROM t"), STUDY)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("Ä,ill\n1,no\nÄ,".encode() + b"\xc4\n", "it is not UTF-8 throughout"),
        (b"age,sex;ill\n30,1;no\n", "may stand between commas or semicolons"),
        (b"age,ill\n30,no\n31\n", "line 3 has 1 cell, and the line of names 2"),
        (b"", "it is empty"),
    ],
)
@pytest.mark.parametrize("source", ["{}/t.csv", "{}/*.csv", "SELECT * FROM t"])
def test_why_a_file_cannot_be_read_is_told(tmp_path: Path, content: bytes, words: str, source: str) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    tables = {"t": f"{tmp_path}/t.csv"} if source.startswith("SELECT") else {}
    with pytest.raises(InvalidDataError, match=words):
        load_source(DataSource(source=source.format(tmp_path), tables=tables), STUDY)


@pytest.mark.parametrize(("source", "tables"), [("{}", {}), ("SELECT * FROM t", {"t": "{}"})])
def test_a_file_may_be_called_as_a_pattern(
    folder: Path, tmp_path: Path, expected: Loaded, source: str, tables: dict[str, str]
) -> None:
    path = str(shutil.copy(folder / "visits.csv", tmp_path / "visits [1].csv"))
    data_source = DataSource(source=source.format(path), tables={name: at.format(path) for name, at in tables.items()})
    assert_equal(load_source(data_source, STUDY), expected)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["0", "12", ""], pa.int64()), (["-0", "7"], pa.int64()), (["0.5", "-0.5", "12"], pa.float64()),
        (["0", "0e1"], pa.float64()), (["12", "007"], pa.string()),
        (["0.5", "-00.5"], pa.string()), (["1", " +01"], pa.string()), (["1"] * 3000 + ["05"], pa.string()),
        (["1"] * 3000 + ["1.5"], pa.float64()), (["1"] * 3000 + ["--01"], pa.string()), (["", ""], pa.int64()),
    ],
)  # fmt: skip
def test_a_column_is_of_numbers_unless_one_begins_with_a_zero_as_codes_do(
    tmp_path: Path, cells: list[str], kind: pa.DataType
) -> None:
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{cell},a\n" for cell in cells))
    assert file_table(f"{tmp_path}/t.csv").schema.field("x").type == kind


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("source", ["{}/*.{}", "SELECT * FROM t"])
def test_the_one_of_many_files_that_cannot_be_read_is_named(
    folder: Path, tmp_path: Path, source: str, kind: str
) -> None:
    for part in (1, 2, 3):
        file = folder / ("visits.csv" if kind == "csv" else "parts/part-0.parquet")
        shutil.copy(file, tmp_path / f"part-{part}.{kind}")
    (tmp_path / f"part-2.{kind}").write_bytes(b"\xff\xfe\x00PAR1")
    tables = {"t": f"{tmp_path}/*.{kind}"} if source.startswith("SELECT") else {}
    with pytest.raises(InvalidDataError, match=rf"part-2\.{kind} cannot be read: it is no"):
        load_source(DataSource(source=source.format(tmp_path, kind), tables=tables), STUDY)


def test_generated_columns_of_sqlite_are_columns(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "v.sqlite")) as database, database:
        database.execute("CREATE TABLE t (months, marker, ward, date, ill, age AS (months / 12), one AS (1) STORED)")
        database.execute("INSERT INTO t (months, marker, ward, date, ill) VALUES (360, 2.0, '007', '2026-01-01', 'no')")
    loaded = load_source(DataSource(source=f"{tmp_path}/v.sqlite::t"), STUDY)
    assert loaded.shard.n_examples == 1


def _drop_age(path: Path) -> None:
    write_csv(path, ("id", "marker", "ward", "date", "ill"), [(1, 2.0, "007", "2026-01-01", "no")])


def _odd_age(path: Path) -> None:
    write_csv(path, NAMES, [(1, "old", 2.0, "007", "2026-01-01", "no"), (2, 3, 2.0, "007", "2026-01-01", "no")])


@pytest.mark.parametrize(
    ("write", "words"), [(_drop_age, "'age'.*absent|age"), (_odd_age, "age.*not numeric")], ids=["gone", "odd"]
)
@pytest.mark.parametrize("kind", ["file", "query", "sqlite"])
def test_a_column_that_is_gone_or_odd_is_counted(
    tmp_path: Path, write: Callable[[Path], None], words: str, kind: str
) -> None:
    write(path := tmp_path / "visits.csv")
    if kind == "sqlite":
        with path.open(encoding="utf-8") as file:
            names, *cells = csv.reader(file)
        write_sqlite(tmp_path / "v.sqlite", "t", tuple(names), [tuple(row) for row in cells])
    source = {"file": f"{path}", "query": "SELECT * FROM t", "sqlite": f"{tmp_path}/v.sqlite::t"}[kind]
    with pytest.raises(InvalidDataError, match=words) as refused:
        load_source(DataSource(source=source, tables={"t": f"{path}"} if kind == "query" else {}), STUDY)
    assert "old" not in refused.value.detail


def test_a_file_of_sqlite_is_let_go_whether_it_could_be_read_or_not(folder: Path) -> None:
    """Who writes into it would wait for a reader that a kept error held."""
    path = folder / "visits.sqlite"
    references: list[object] = []
    for table in ("visits", "nothing"):
        try:
            references.append(load_source(DataSource(source=f"{path}::{table}"), STUDY))
        except InvalidDataError as error:
            references.append(error)
    assert len(references) == 2
    assert not [fd for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink() and fd.readlink() == path]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("source", ["{}/t.{}", "{}/*.{}", "SELECT * FROM t"])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, source: str, kind: str) -> None:
    os.mkfifo(tmp_path / f"t.{kind}")
    tables = {"t": f"{tmp_path}/t.{kind}"} if source.startswith("SELECT") else {}
    data_source = DataSource(source=source.format(tmp_path, kind), tables=tables)
    with pytest.raises(InvalidDataError, match=rf"t\.{kind} is no regular file"):
        load_source(data_source, STUDY)
    if not tables:
        with pytest.raises(InvalidDataError, match=rf"t\.{kind} is no regular file"):
            fit_of_source(STUDY, data_source)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{}/nothing/*.parquet", "there is none"),
        ("{}/nothing.sqlite::t", "is missing"),
        ("{}/visits.sqlite::nothing", "there is none of this name"),
        ("{}/visits.csv::t", "cannot be read"),
        ("{}/*.*", "must end in .csv or .parquet"),
    ],
)
def test_what_is_not_there_is_named(folder: Path, source: str, words: str) -> None:
    with pytest.raises(InvalidDataError, match=words):
        load_source(DataSource(source=source.format(folder)), STUDY)
