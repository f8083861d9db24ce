"""A table in a file as a shard: of either kind the same one, in all types and blocks; faults tell no value."""

from __future__ import annotations

import datetime as dt
import os
import re
import sqlite3
import subprocess
import sys
import time
import tracemalloc
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from parley.common.data.cells import CellRules
from parley.common.data.columns import Category, Columns, Feature, Label, RealLabel
from parley.common.data.loading import Loaded, Loading, RowLoading, load_columns, shard_of
from parley.common.data.study import Projection, Study
from parley.common.errors import InvalidDataError
from parley.common.files.examples import load_examples, load_source
from parley.common.files.kinds import check_names
from parley.common.files.sources import DataSource
from parley.common.files.studies import read_study
from parley.common.files.tables import read_columns
from parley.common.service.child import MEMORY

STUDY = Study(
    name="s",
    features=(
        Feature(name="age", lower=0, upper=100),
        Category(name="ward", values=("north", "south")),
        Feature(name="dose", lower=-1, upper=1),
    ),
    label=Label(name="ill", values=("0", "1")),
)
ADULT = Path(__file__).parents[1] / "data" / "adult" / "study.json"
SECRET = "6180339"


def save(table: pa.Table, path: Path) -> Path:
    if path.suffix == ".csv":
        csv.write_csv(table, path)
    else:
        parquet.write_table(table, path, row_group_size=7_000)
    return path


def table(n: int = 3, **changes: object) -> pa.Table:
    rng = np.random.default_rng(1)
    whole = {
        "extra": ["unused"] * n,
        "ill": rng.integers(0, 2, n),
        "ward": rng.choice(["north", "south"], n),
        "dose": rng.uniform(-1, 1, n),
        "age": rng.integers(0, 100, n),
    }
    return pa.table({name: column for name, column in (whole | changes).items() if column is not None})


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_is_the_shard_of_its_columns(tmp_path: Path, kind: str) -> None:
    content = table(50_000)
    loaded = load_examples(save(content, tmp_path / f"data.{kind}"), STUDY)
    shard = shard_of(STUDY, {name: content.column(name).to_numpy() for name in content.column_names})
    assert np.array_equal(loaded.shard.X, shard.X)
    assert np.array_equal(loaded.shard.y, shard.y)
    assert loaded.shard.X.shape == (50_000, 5)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_that_fill_little_of_their_bounds_are_named_in_any_blocks(tmp_path: Path, kind: str) -> None:
    """A column is as wide as all of its blocks; by the letter, and beyond the bounds as far as they go."""
    n = 50_000
    late = np.where(np.arange(n) < n - 1, 95, 84)  # of age: 11 in all, though no block but the last has more than one
    for changes, clip, narrow in (
        ({"age": late}, False, ()),
        ({"age": late + (late == 84)}, False, ()),
        ({"age": late + 2 * (late == 84)}, False, ("age",)),
        ({"age": late + 20 * (late == 95)}, True, ()),
        ({"age": np.where(late == 95, 101, 92)}, True, ("age",)),
        ({"dose": np.where(late == 95, 0.0, 0.19)}, False, ("dose",)),
        ({"dose": np.where(late == 95, 0.0, 0.21)}, False, ()),
        ({"age": [7] * n}, False, ()),
    ):
        data = save(table(n, **changes), tmp_path / f"data.{kind}")
        assert load_examples(data, STUDY, clip=clip).narrow == narrow, (changes, clip)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2, 1], pa.int64()),
        pa.array([1, 2, 1], pa.uint8()),
        pa.array([1.0, 2.0, 1.0], pa.float32()),
        pa.array(["1", "2", "1"], pa.large_string()),
        pa.array(["1", "2", "1"], pa.string_view()),
        pa.array([b"1", b"2", b"1"], pa.binary()),
        pa.array(["1", "2", "1"]).dictionary_encode(),
        pa.array([1, 2, 1]).dictionary_encode(),
        pa.array([Decimal("1.00"), Decimal("2.00"), Decimal("1.00")]),
    ],
    ids=lambda column: str(column.type),
)
def test_a_value_is_its_spelling_in_every_type(tmp_path: Path, column: pa.Array) -> None:
    study = Study(name="s", features=(Category(name="x", values=("1", "2")),), label=Label(name="y", values=("1", "2")))
    path = save(pa.table({"x": column, "y": column}), tmp_path / "data.parquet")
    shard = load_examples(path, study).shard
    assert (shard.X[:, :2] > 0).tolist() == [[True, False], [False, True], [True, False]]
    assert shard.y.tolist() == [-1, 1, -1]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0.0, None, 1.0]),
        pa.array([0, None, 1]),
        pa.array([False, None, True]),
        pa.array(["0", "", "1.0"]),
        pa.array(["0", None, " 1 "]),
        pa.array([0, None, 1]).dictionary_encode(),
        pa.array([Decimal("0.0"), None, Decimal("1.0")]),
    ],
    ids=lambda column: str(column.type),
)
def test_a_number_is_its_value_in_every_type(tmp_path: Path, column: pa.Array) -> None:
    study = Study(
        name="s", features=(Feature(name="x", lower=0, upper=1, fill=0.5),), label=Label(name="y", values=("0", "1"))
    )
    for kind in ("csv", "parquet"):
        if kind == "csv" and pa.types.is_dictionary(column.type):
            continue
        path = save(pa.table({"x": column, "y": [0, 1, 1]}), tmp_path / f"data.{kind}")
        assert (np.sign(load_examples(path, study).shard.X[:, 0])).tolist() == [-1, 0, 1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ward": pa.array(["north", None, "south"])}, "column 'ward': missing in 1 row"),
        ({"ward": pa.array([1.0, float("nan"), 2.0])}, "column 'ward': unknown category in 2 rows, missing in 1 row"),
        ({"ward": pa.nulls(3)}, "column 'ward': missing in 3 rows"),
        ({"age": pa.nulls(3)}, "column 'age': missing in 3 rows"),
        ({"ward": pa.array([True, False, True])}, "column 'ward': unknown category in 3 rows"),
        ({"age": pa.array([dt.date(2020, 1, 1)] * 3)}, "column 'age': not numeric in 3 rows"),
        ({"age": pa.array([dt.datetime(2020, 1, 1, tzinfo=dt.UTC), None, None])}, "column 'age': not numeric in 1 row"),
        ({"age": pa.array([SECRET, "young", "3"])}, "column 'age': not numeric in 1 row, beyond the bounds in 1 row"),
        ({"age": pa.array([float("inf"), 1, 2])}, "column 'age': beyond the bounds in 1 row"),
        ({"age": None, "ward": None}, "column 'age': absent; column 'ward': absent"),
        ({"ill": pa.array([0, 7, 1])}, "column 'ill': unknown label in 1 row"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_unfit_files_are_told_by_column(tmp_path: Path, kind: str, changes: dict[str, Any], words: str) -> None:
    path = save(table(**changes), tmp_path / f"data.{kind}")
    with pytest.raises(InvalidDataError) as error:
        load_examples(path, STUDY)
    told = {part.strip() for part in re.split(r"[:;,]", words)}
    assert all(part in error.value.detail for part in told), error.value.detail
    assert SECRET not in error.value.detail


def test_types_without_an_order_are_no_numbers(tmp_path: Path) -> None:
    for column in (pa.array([[1], [2], []]), pa.array([dt.timedelta(days=1)] * 3), pa.array([{"a": 1}] * 3)):
        path = save(table(age=column), tmp_path / "data.parquet")
        with pytest.raises(InvalidDataError, match="column 'age': not numeric in 3 rows"):
            load_examples(path, STUDY)


def test_a_number_past_all_integers_is_beyond_the_bounds(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text(f"age,ward,dose,ill\n{10**30},north,0,1\n{10**400},south,0,0\n5, north ,-1,1\n")
    with pytest.raises(InvalidDataError, match="column 'age': beyond the bounds in 2 rows"):
        load_examples(path, STUDY)
    assert load_examples(path, STUDY, clip=True).clipped == {"age": 2 / 3}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "cannot be read"),
        ("\n", "cannot be read|absent"),
        ("age,ward,dose,ill\n", "no row"),
        ("age,ward,dose,ill,age\n1,north,0,1,2\n", "names columns twice: see places 1, 5"),
        ("age,ward,dose,ill\n1,north\n", "cannot be read"),
        ("age,ward,dose,ill\n1,nan,0,1\n", "column 'ward': missing in 1 row"),
        (
            "age,ward,dose,ill,note\n,,,,1\n",
            "column 'age': missing .*'ward': missing .*'dose': missing .*'ill': missing",
        ),
        ("a,b\n1,2\n", "column 'age': absent"),
    ],
)
def test_odd_csv_files_are_refused(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "data.csv"
    path.write_text(content)
    with pytest.raises(InvalidDataError, match=words):
        load_examples(path, STUDY)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_may_end_as_they_like(tmp_path: Path, end: str) -> None:
    path = tmp_path / "data.csv"
    rows = ["age,ward,dose,ill", *['5,"no\nrth",0,1'.replace("\n", "")] * 5]
    path.write_bytes(end.join(rows).encode())
    assert load_examples(path, STUDY).shard.n_examples == 5


def test_a_category_keeps_its_zeros_and_quotes(tmp_path: Path) -> None:
    study = Study(
        name="s", features=(Category(name="x", values=("01", "1", "a,\nb")),), label=Label(name="y", values=("0", "1"))
    )
    path = tmp_path / "data.csv"
    path.write_text('x,y\n01,0\n1,1\n"a,\nb",1\n')
    assert (load_examples(path, study).shard.X[:, :3] > 0).tolist() == np.eye(3, dtype=bool).tolist()


def test_a_file_of_many_columns_is_checked_in_a_moment(tmp_path: Path) -> None:
    names = [f"x{i}" for i in range(100_000)]
    started = time.process_time()
    check_names(tmp_path, names)
    assert time.process_time() - started < 0.1
    wide = Study(
        name="wide",
        features=tuple(Feature(name=name, lower=0, upper=1) for name in names[:2_000]),
        label=Label(name="y", values=("0", "1")),
    )
    whole = pa.table({"y": [0, 1, 1], **{name: np.array([0.0, 0.5, 1.0]) for name in names[:2_000]}})
    for kind in ("csv", "parquet"):
        assert load_examples(save(whole, tmp_path / f"wide.{kind}"), wide).shard.X.shape == (3, 2_001)
    with pytest.raises(InvalidDataError, match="names columns twice: see places 8, 100001"):
        check_names(tmp_path, [*names, "x7"])


def test_of_a_name_that_is_there_often_the_first_five_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidDataError, match=r"names columns twice: see places 1, 3, 4, 5, 6 of its first line$"):
        check_names(tmp_path, ["x", "y", *"xxxxx"])


def test_of_several_files_the_first_with_a_fault_is_named(tmp_path: Path) -> None:
    study = Study(name="s", features=(Feature(name="x", lower=0, upper=1),), label=Label(name="y", values=("0", "1")))
    for day, x in ((1, 0.5), (2, 7.25), (3, 9.75)):
        save(pa.table({"x": [x, 1.0], "y": [0, 1]}), tmp_path / f"day{day}.parquet")
    with pytest.raises(InvalidDataError) as refused:
        load_source(DataSource(source=f"{tmp_path}/day*.parquet"), study)
    assert f"beyond the bounds in 2 rows; the first file with such rows is {tmp_path}/day2.parquet; " in str(
        refused.value
    )
    assert "7.25" not in str(refused.value)
    with pytest.raises(InvalidDataError) as refused:
        load_source(DataSource(source=f"{tmp_path}/day2.parquet"), study)
    assert "the first file" not in str(refused.value), "there is but one"


def test_a_database_may_name_its_tables_and_columns_oddly(tmp_path: Path) -> None:
    study = Study(
        name="s", features=(Feature(name='the "x"', lower=0, upper=1),), label=Label(name="y", values=("0", "1"))
    )
    with closing(sqlite3.connect(tmp_path / "odd.sqlite")) as database, database:
        database.execute('CREATE TABLE "a ""b""" ("the ""x""" REAL, y TEXT)')
        database.executemany('INSERT INTO "a ""b""" VALUES (?, ?)', [(0.25, "0"), (0.75, "1")])
    loaded = load_source(DataSource(source=f'{tmp_path}/odd.sqlite::a "b"'), study)
    assert loaded.shard.y.tolist() == [-1.0, 1.0]


_CHILD = """
import sys
from pathlib import Path
from parley.common.files.examples import load_source
from parley.common.files.sources import DataSource
from parley.common.files.studies import read_study
query = {"source": "SELECT * FROM t", "tables": {"t": sys.argv[1]}}
data = DataSource(**query if sys.argv[3] == "query" else {"source": sys.argv[1]})
shard = load_source(data, read_study(Path(sys.argv[2]))).shard
status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
peak, of_files = (int(status[name].split()[0]) * 1024 for name in ("VmHWM", "RssFile"))
print(peak - of_files, shard.X.nbytes)
"""  # not getrusage, whose peak may be that of the process which forked this one


def test_room_for_rows_that_a_file_does_not_have_is_left_alone() -> None:
    study = Study(name="s", features=(Feature(name="x", lower=0, upper=1),), label=Label(name="y", values=("0", "1")))
    loading = Loading(study, 5)
    loading._X[3:] = np.inf  # what happened to be in memory
    loading.expect(["x", "y"])
    loading.add(0, {"x": np.array([0.0, 0.5, 1.0]), "y": np.array([0, 1, 1])})
    assert np.abs(loading.finish(3).shard.X).max() <= 1


WIDE = Study(
    name="s",
    features=(
        *(Feature(name=f"x{j}", lower=-1, upper=1, missing="drop") for j in range(9)),
        Category(name="ward", values=("north", "south"), other=True),
    ),
    label=RealLabel(name="y", lower=-1, upper=1),
)


def by_rows(study: Study, columns: Columns, lengths: list[int]) -> Loaded:
    """What `RowLoading` makes of columns that come in blocks of so many rows, the last one over and over."""
    loading, start, n_rows = RowLoading(study, CellRules(clip=True)), 0, len(columns["y"])
    loading.expect(columns)
    while start < n_rows:
        end = start + (lengths.pop(0) if len(lengths) > 1 else lengths[0])
        loading.add(start, {name: column[start:end] for name, column in columns.items()})
        start = min(end, n_rows)
    return loading.finish(n_rows)


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"row_norm": "largest"}, {"row_norm": 0.5}, {"hold_out": 0.3}, {"norm": "max", "row_norm": "largest"},
        {"intercept": False}, {"label": Label(name="y", values=("0", "1", "2"))},
        {"projection": Projection.of(np.full(12, 0.1), np.eye(3, 12), 2.0)},
    ],
    ids=lambda changes: next(iter(changes), ""),
)  # fmt: skip
@pytest.mark.long
def test_rows_that_come_whole_are_the_same_bits_in_any_blocks(changes: dict[str, Any]) -> None:
    study, n, rng = (
        Study(**{"name": "s", "features": WIDE.features, "label": WIDE.label} | changes),
        70_000,
        np.random.default_rng(1),
    )
    columns: dict[str, Any] = {f"x{j}": rng.uniform(-1.2, 1.2, n) * (rng.random(n) < 0.8) for j in range(9)}
    columns |= {"ward": rng.choice(["north", "south", "east"], n), "y": rng.integers(0, 2, n)}
    columns["x3"][rng.random(n) < 0.1] = np.nan
    expected = load_columns(study, columns, clip=True)
    for lengths in ([2048], [1, 1, 20_000], [30_000, 5, 333]):
        found = by_rows(study, columns, lengths)
        assert found.shard.X.tobytes() == expected.shard.X.tobytes()
        assert found.shard.y.tobytes() == expected.shard.y.tobytes()
        assert (found.clipped, found.clipped_share) == (expected.clipped, expected.clipped_share)
        assert (found.dropped_share, found.missing) == (expected.dropped_share, expected.missing)
        assert found.others == expected.others
    assert expected.dropped_share > 0
    assert expected.clipped_share > 0
    assert expected.others == {"ward": np.mean(columns["ward"] == "east")}


@pytest.mark.long
def test_rows_that_come_whole_leave_half_of_the_memory_until_all_have_come() -> None:
    """A query may hold as much meanwhile: what it sorts or joins."""
    study, n = Study(name="s", features=WIDE.features[:9], label=WIDE.label), 1_200_000
    block = {name: np.linspace(-1, 1, 2000) for name in study.table_names}
    loading, size = RowLoading(study), n * study.n_features * 8
    tracemalloc.start()
    for start in range(0, n, 2000):
        loading.add(start, block)
    held, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"held {held / size:.2f} of X, at most {most / size:.2f}")
    assert held < 0.57 * size
    assert most < 0.71 * size


@pytest.mark.parametrize("kind", ["csv", "parquet", "query"])
@pytest.mark.slow
def test_little_more_than_the_shard_is_ever_in_memory(tmp_path: Path, kind: str) -> None:
    n, d = 400_000, 50
    rng = np.random.default_rng(1)
    whole = pa.table({"y": rng.integers(0, 2, n)} | {f"x{j}": rng.uniform(0, 1, n).astype("f4") for j in range(d)})
    study = Study(
        name="s",
        features=tuple(Feature(name=f"x{j}", lower=0, upper=1) for j in range(d)),
        label=Label(name="y", values=("0", "1")),
    )
    (tmp_path / "study.json").write_text(study.model_dump_json())
    path = save(whole, tmp_path / f"data.{'csv' if kind == 'csv' else 'parquet'}")
    command = [sys.executable, "-c", _CHILD, str(path), str(tmp_path / "study.json"), kind]
    run = subprocess.run(command, check=True, capture_output=True, text=True, env={**MEMORY, **os.environ})
    peak, size = map(int, run.stdout.split())
    print(
        f"{kind}: peak {peak / size:.2f} of X, without pages of libraries, which depend on what the machine has cached"
    )
    assert peak < 1.2 * size + 100 * 2**20


def test_adult_by_its_study_alone() -> None:
    folder = os.environ.get("PARLEY_DATA")
    if not folder:
        pytest.skip("Adult is not here: $PARLEY_DATA is not set")
    study = read_study(ADULT)
    for part, n in (("train", 32_561), ("test", 16_281)):
        loaded = load_examples(Path(folder) / "adult" / f"adult-{part}.parquet", study)
        rows, columns = loaded.shard.X.shape
        print(f"Adult, {part}: {rows:,} rows, {columns} columns, {loaded.clipped_share:.1%} clipped")
        assert (rows, columns) == (n, 109)
        assert loaded.clipped_share == 0
        assert (loaded.shard.y > 0).mean() == pytest.approx(0.24, abs=0.005)
        assert np.linalg.norm(loaded.shard.X, axis=1).min() > 0.6
    assert study.column_names[:2] == ("age", "workclass=Private")


def test_whole_columns_are_read_as_before(tmp_path: Path) -> None:
    path = save(table(), tmp_path / "data.csv")
    assert read_columns(path)["age"].tolist() == table().column("age").to_pylist()


def test_duckdb_does_not_encrypt_what_it_would_spill(tmp_path: Path) -> None:
    """Why a query may not spill: where this fails, DuckDB may have learned to, and a sort need not be all in memory."""
    settings: dict[str, str | bool | int | float | list[str]] = {
        "temp_directory": str(tmp_path / "spilt"),
        "temp_file_encryption": True,
        "memory_limit": "40MB",
        "threads": 1,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    with duckdb.connect(":memory:", config=settings) as connection:
        rows = connection.sql("SELECT i, hash(i) AS h, hash(i + 1) AS k FROM range(1000000) AS t(i) ORDER BY h")
        with pytest.raises(duckdb.Error, match="read-only crypto module"):
            rows.to_arrow_reader().read_all()
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size]
