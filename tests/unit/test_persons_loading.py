"""A table whose rows are persons': grouped by a coarse key, held out whole, and the same from every kind of source."""

from __future__ import annotations

import datetime as dt
import json
import math
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, feather, parquet
from pydantic import ValidationError

from parley.common.arrays import BoolArray
from parley.common.data import persons
from parley.common.data.columns import Category, Feature, Label
from parley.common.data.faults import UnfitDataError
from parley.common.data.loading import Loaded, Loading, load_columns, shard_of
from parley.common.data.persons import PersonIndex, PersonOrder, coarse, keys_of_column, weights_by_person
from parley.common.data.shard import Shard
from parley.common.data.study import Person, RowWeights, Study
from parley.common.errors import InvalidDataError
from parley.common.files.arrow import cell_array
from parley.common.files.examples import load_source
from parley.common.files.identifiers import keys_of_array
from parley.common.files.sources import DataSource
from parley.party.answers.party import digest_rows
from parley.party.data.owner_data import Holding, load_apart
from parley.party.settings import Data

N = 700
STUDY = Study(
    name="s",
    features=(
        Feature(name="a", lower=0, upper=1),
        Category(name="c", values=("u", "v")),
        Feature(name="b", lower=0, upper=1),
    ),
    label=Label(name="y", values=("n", "p")),
    hold_out=0.2,
    person=Person(column="id", most_rows=4),
    row_weights=RowWeights(column="w"),
)
PLAIN = STUDY.model_copy(update={"person": None, "hold_out": None, "row_weights": None})
SPARSE = Study.model_validate({
    "name": "s", "missing": "refuse", "label": {"name": "y", "values": ["0", "1"]}, "hold_out": 0.2,
    "features": [{"name": "tokens", "columns": 5, "entries": 3, "first": 0}],
    "person": {"column": "id", "most_rows": 4}, "row_weights": {"column": "w"},
})  # fmt: skip


def columns(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "a": rng.random(N), "c": rng.choice(["u", "v"], N), "b": rng.random(N), "y": rng.choice(["n", "p"], N),
        "id": rng.integers(0, 250, N), "w": rng.integers(0, 9, N) / 8,
    }  # fmt: skip


def order_by_hand(ids: list[Any], share: float, most_rows: int) -> list[int]:
    """The rows of persons by first appearance, those held out last, the first rows of each."""
    rows: dict[Any, list[int]] = {}
    for row, person in enumerate(ids):
        rows.setdefault(person, []).append(row)
    is_held = [math.floor((i + 1) * share) > math.floor(i * share) for i in range(len(rows))]
    return [
        row
        for wanted in (False, True)
        for of_person, held in zip(rows.values(), is_held, strict=True)
        if held == wanted
        for row in of_person[:most_rows]
    ]


def ordered(ids: Any, **terms: Any) -> PersonOrder:  # noqa: ANN401 -- of any kind
    index = PersonIndex(Person(column="id", **terms))
    index.add(keys_of_array(pa.array(ids), "id"))
    return index.ordered(None)


def begins_of(loaded: Loaded) -> BoolArray:
    assert loaded.shard.begins is not None
    return loaded.shard.begins


def assert_same(loaded: Loaded, shard: Shard) -> None:
    for name in ("X", "y", "begins", "weights"):
        assert np.array_equal(getattr(loaded.shard, name), getattr(shard, name)), name


def test_rows_lie_by_person_and_persons_are_held_out_whole() -> None:
    table = columns()
    loaded, plain = load_columns(STUDY, table), shard_of(PLAIN, table)
    rows = order_by_hand(table["id"].tolist(), 0.2, 4)
    assert np.array_equal(loaded.shard.X, plain.X[rows])
    assert np.array_equal(loaded.shard.y, plain.y[rows])
    ids = table["id"][rows]
    assert np.array_equal(begins_of(loaded), np.append(True, ids[1:] != ids[:-1]))
    sizes = np.bincount(ids)[ids]
    assert np.all(np.abs(loaded.shard.weights - table["w"][rows] / sizes) <= 2.0**-16)
    counts = loaded.persons
    assert counts is not None
    assert counts.persons == len(set(table["id"].tolist())) == int(loaded.shard.n_examples)
    assert (counts.rows, counts.left_out) == (N, N - len(rows))
    assert counts.left_out > 0
    assert counts.most == np.bincount(table["id"]).max()
    parts = Holding(STUDY, loaded).parts
    n_held = int(counts.persons * 0.2)
    assert [int(part.n_examples) for part in parts.values()] == [counts.persons - n_held, n_held]
    n = len(parts["training"].y)
    assert set(ids[:n]).isdisjoint(ids[n:])


@pytest.mark.parametrize(
    "source", ["t.parquet", "t.csv", "t.feather", "t.jsonl", "t.sqlite::t", "p*.parquet", "SELECT"]
)
def test_every_kind_of_source_makes_the_same_shard(tmp_path: Path, source: str) -> None:
    table = columns()
    expected, whole = load_columns(STUDY, table), pa.table(table)
    parquet.write_table(whole, tmp_path / "t.parquet")
    csv.write_csv(whole, tmp_path / "t.csv")
    feather.write_feather(whole, tmp_path / "t.feather")
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, whole.to_pylist())))
    for part in range(3):
        parquet.write_table(whole.slice(part * 300, 300), tmp_path / f"p{part}.parquet")
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        connection.execute("CREATE TABLE t (a, c, b, y, id, w)")
        connection.executemany(
            "INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", [tuple(row.values()) for row in whole.to_pylist()]
        )
    if source == "SELECT":
        data = DataSource(source="SELECT * FROM t", tables={"t": str(tmp_path / "t.csv")})
    else:
        data = DataSource(source=str(tmp_path / source))
    loaded = load_source(data, STUDY)
    assert_same(loaded, expected.shard)
    assert loaded.persons == expected.persons


def test_a_child_process_sends_persons_and_weights(tmp_path: Path) -> None:
    table = columns()
    csv.write_csv(pa.table(table), tmp_path / "t.csv")
    expected = load_columns(STUDY, table).shard
    loaded = load_apart(Data(source=str(tmp_path / "t.csv")), STUDY)
    assert_same(loaded, expected)
    assert digest_rows(loaded.shard) == digest_rows(expected)
    others = load_columns(STUDY, table | {"id": np.arange(N)}).shard
    assert digest_rows(Shard(expected.X, expected.y)) != digest_rows(expected) != digest_rows(others)


@pytest.mark.parametrize("kind", ["parquet", "feather", "apart"])
def test_sparse_rows_lie_by_person(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(3)
    ids, weights = rng.integers(0, 60, 200), rng.integers(0, 5, 200) / 4
    table = pa.table({
        "index": [[i % 5] for i in range(200)], "value": [[(i % 7) / 7] for i in range(200)],
        "y": rng.integers(0, 2, 200), "id": [f"P{person}" for person in ids], "w": weights,
    })  # fmt: skip
    path = tmp_path / f"t.{'feather' if kind == 'feather' else 'parquet'}"
    (feather.write_feather if kind == "feather" else parquet.write_table)(table, path)
    data = Data(source="SELECT * FROM t", tables={"t": str(path)}) if kind == "feather" else Data(source=str(path))
    loaded = (load_apart if kind == "apart" else load_source)(data, SPARSE)
    unit = SPARSE.model_copy(update={"person": None, "hold_out": None, "row_weights": None})
    plain, rows = load_source(data, unit).shard, order_by_hand(ids.tolist(), 0.2, 4)
    assert np.array_equal(loaded.shard.X, plain.X[rows])
    assert np.array_equal(loaded.shard.y, plain.y[rows])
    assert np.array_equal(begins_of(loaded), np.append(True, np.diff(ids[rows]) != 0))
    assert np.all(np.abs(loaded.shard.weights - weights[rows] / np.minimum(np.bincount(ids), 4)[ids[rows]]) <= 2.0**-16)


# ── keys ─────────────────────────────────────────────────────────────────────

ALIKE = [
    ["7", " 7 ", "007", "7.0", "7,00", "+7", "0.7e1", "7E0", "７"],  # noqa: RUF001 -- a digit as wide as an ideogram
    ["A1", "a1", "  a1\t"],
    ["Müller", "MÜLLER", "Mu\u0308ller"],
    ["12345678901234567890", "0012345678901234567890", "12345678901234567890.0"],
    ["7.5", "07.50", "7,5", "75e-1"],
    ["straße", "STRASSE"],
    ["-3", "-03", "-3.0"],
    ["e1", "E1"], ["1-2"], ["x"], ["x" * 300], ["x" * 301],
]  # fmt: skip


@pytest.mark.parametrize("as_array", [True, False])
def test_identifiers_that_read_alike_are_one_person(*, as_array: bool) -> None:
    texts = [text for alike in ALIKE for text in alike]
    lot = [number for number, alike in enumerate(ALIKE) for _ in alike]
    for at_a_time in (len(texts), 1):  # the same however many come together
        keys: list[int] = []
        for start in range(0, len(texts), at_a_time):
            some = texts[start : start + at_a_time]
            made = keys_of_array(pa.array(some), "id") if as_array else keys_of_column(np.array(some, dtype=object))
            keys += made.keys.tolist()
        assert len(set(keys)) == len(ALIKE)
        assert len(set(zip(keys, lot, strict=True))) == len(ALIKE)


@pytest.mark.parametrize(
    "sevens",
    [
        pa.array([7], pa.int8()), pa.array([7.0]), pa.array([7], pa.uint64()), pa.array([Decimal("7.00")]),
        pa.array(["007"]).dictionary_encode(), pa.array(["7"], pa.large_string()), pa.array(["7"], pa.string_view()),
        pa.DictionaryArray.from_arrays(pa.array([0]), pa.array(["7"], pa.string_view())), pa.array([7.0], pa.float16()),
    ],
    ids=lambda array: str(array.type),
)  # fmt: skip
def test_a_number_is_one_person_in_every_type(sevens: Any) -> None:  # noqa: ANN401 -- pyarrow has no types
    assert keys_of_array(sevens, "id").keys.tolist() == [7]


def test_numbers_and_texts_of_numpy_are_alike() -> None:
    for sevens in (
        np.array([7], np.uint8),
        np.array([7], np.uint64),
        np.array([7.0]),
        np.array(["07"]),
        np.array([7], object),
    ):
        assert keys_of_column(sevens).keys.tolist() == [7]
    halves = [np.array([7.5]), np.array(["7.50"]), np.array([7.5, 1.0])]
    assert len({int(keys_of_column(column).keys[0]) for column in halves}) == 1


@pytest.mark.parametrize("factor", [pow(int(persons._SPREAD), -1, 2**64), 2**32, 2**48, -(2**62)])
def test_keys_that_agree_in_many_bits_stay_apart(factor: int) -> None:
    numbers = np.random.default_rng(0).integers(0, 4, 200).tolist()
    keys = np.array([number * factor % 2**64 for number in numbers], dtype=np.uint64).view(np.int64)
    index = PersonIndex(Person(column="id"))
    index.add(persons.keys_of_whole(keys))
    assert index.ordered(None).rows.tolist() == order_by_hand(numbers, 2.0**-20, 1000)


def test_near_equal_identifiers_are_counted() -> None:
    assert ordered(["a", "A", "a", "b", "7", "007", "07", "B ", "c"]).counts.alike == 4
    assert ordered([7, 8, 7]).counts.alike == 0
    assert ordered(["A1", "A2", "A1"]).counts.alike == 0


@pytest.mark.parametrize("missing", [None, "", "  ", "NA", "?"])
def test_a_row_without_identifier_is_refused_or_alone(missing: str | None) -> None:
    table = columns() | {"id": np.array(["p"] * 3 + [missing] * 2 + ["p"] * (N - 5), dtype=object)}
    with pytest.raises(UnfitDataError, match="column 'id': identifier missing in 2 rows") as caught:
        load_columns(STUDY, table)
    assert caught.value.rows == {"id": {"identifier missing": 2}}
    alone = STUDY.model_copy(update={"person": Person(column="id", missing="alone", most_rows=1000)})
    loaded = load_columns(alone, table)
    assert int(loaded.shard.n_examples) == 3
    assert loaded.persons is not None
    assert loaded.persons.missing == 2
    assert keys_of_array(pa.array([missing, "p"]), "id").missing.tolist() == [True, False]


def test_floats_that_rounded_identifiers_are_refused() -> None:
    table = columns() | {"id": np.where(np.arange(N) < 3, 2.0**60, 1.0)}
    with pytest.raises(UnfitDataError, match="identifier rounded in 3 rows"):
        load_columns(STUDY, table)
    assert keys_of_column(np.array([np.nan, 1.0])).missing.tolist() == [True, False]


@pytest.mark.parametrize(
    ("cells", "n_rounded"),
    [
        (pa.array([2.0**53 - 1, 2.0**53]), 1),
        (pa.array([2.0**24 - 1, 2.0**24, None], pa.float32()), 1),
        (pa.array([0.5, 2.0**11], pa.float16()), 1),
        (cell_array([2.0**53, 7.0, "P1", math.nan, "1e60"], pa.string()), 1),
    ],
    ids=str,
)
def test_a_number_may_have_been_rounded_in_every_type(cells: Any, n_rounded: int) -> None:  # noqa: ANN401 -- of pyarrow
    assert keys_of_array(cells, "id").inexact == n_rounded


def test_one_time_or_fraction_is_one_person_in_every_type() -> None:
    times = [dt.datetime(2020, 1, day, hour, 0, 30 * hour, 500_000 * hour) for day, hour in ((1, 0), (2, 1))]  # noqa: DTZ001 -- of no zone
    of_units = [pa.array(times, pa.timestamp(unit)) for unit in ("ms", "us", "ns")]
    there = pa.array(times, pa.timestamp("us", "UTC")).cast(pa.timestamp("us", "Asia/Tokyo"))
    texts = pa.array(["2020-01-01", "2020-01-02 01:00:30.5"])
    assert len({tuple(keys_of_array(cells, "id").keys.tolist()) for cells in (*of_units, there, texts)}) == 1
    days = pa.array([dt.date(2020, 1, 1)])
    assert keys_of_array(days, "id").keys[0] == keys_of_array(texts, "id").keys[0]
    tenths = [pa.array([0.1], kind) for kind in (pa.float16(), pa.float32(), pa.float64())]
    assert len({int(keys_of_array(cells, "id").keys[0]) for cells in (*tenths, pa.array(["0,10"]))}) == 1


@pytest.mark.parametrize("cell", [b"7", [7], {"id": 7}])
def test_a_cell_of_no_value_is_no_identifier(cell: object) -> None:
    with pytest.raises(InvalidDataError, match="'id' has bytes, lists or records"):
        keys_of_array(cell_array(["7", cell], pa.string()), "id")


def test_long_texts_become_keys_at_once() -> None:
    coarse("1" * 200_000 + "x")  # hours, if each digit were tried at each place
    assert coarse("1" + "0" * 60) == coarse("01" + "0" * 60) == coarse("10e59") == "1e60"
    long = pa.array(["A" * 300, "a" * 300, "a" * 299])
    assert keys_of_array(long, "id").keys[0] == keys_of_array(long, "id").keys[1] != keys_of_array(long, "id").keys[2]


def test_rows_without_identifier_take_no_weight_of_another_person() -> None:
    assert weights_by_person(keys_of_array(pa.array([0, None, None, 0]), "id")).tolist() == [0.5, 1, 1, 0.5]


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_the_share_dropped_is_of_rows_that_stay(tmp_path: Path, kind: str) -> None:
    study = PLAIN.model_copy(update={"person": Person(column="id", most_rows=1), "missing": "drop"})
    cells = {"a": [0.5, None, None], "b": [0.5] * 3, "c": ["u"] * 3, "y": ["n"] * 3, "id": [1] * 3}
    write = {"parquet": parquet.write_table, "feather": feather.write_feather}[kind]
    write(pa.table(cells), path := tmp_path / f"t.{kind}")
    assert load_source(DataSource(source=str(path)), study).dropped_share == 0


def test_a_column_of_no_identifiers_is_refused(tmp_path: Path) -> None:
    table = columns()
    parquet.write_table(pa.table(table).drop_columns("id"), tmp_path / "t.parquet")
    with pytest.raises(UnfitDataError, match="column 'id': absent"):
        load_source(DataSource(source=str(tmp_path / "t.parquet")), STUDY)
    parquet.write_table(pa.table(table | {"id": [[1]] * N}), tmp_path / "t.parquet")
    with pytest.raises(InvalidDataError, match="column 'id' is of type list"):
        load_source(DataSource(source=str(tmp_path / "t.parquet")), STUDY)


def test_one_person_for_all_rows_and_a_person_a_row() -> None:
    table = columns()
    one = load_columns(STUDY, table | {"id": np.zeros(N, dtype=np.int64)})
    assert (int(one.shard.n_examples), int(one.shard.n_rows)) == (1, 4)
    each = load_columns(STUDY, table | {"id": np.arange(N)})
    records = load_columns(STUDY.model_copy(update={"person": None}), table)
    assert np.array_equal(each.shard.X, records.shard.X)
    assert np.array_equal(each.shard.weights, records.shard.weights)


# ── what is refused ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("weight", [-0.1, 1.1, math.nan, math.inf, "heavy"])
def test_a_weight_that_is_none_is_refused_without_a_value(weight: Any) -> None:  # noqa: ANN401 -- of any kind
    table = columns() | {"w": np.array([weight] * 2 + [1] * (N - 2), dtype=object)}
    with pytest.raises(UnfitDataError, match="column 'w': no weight from 0 to 1 in 2 rows") as caught:
        load_columns(STUDY, table)
    assert str(weight) not in str(caught.value).replace("from 0 to 1", "")


def test_earlier_rows_of_persons_are_refused(tmp_path: Path) -> None:
    csv.write_csv(pa.table(columns()), tmp_path / "t.csv")
    with pytest.raises(InvalidDataError, match="only the whole table can be taken"):
        load_source(DataSource(source=str(tmp_path / "t.csv")), STUDY, places=(10, None))


@pytest.mark.parametrize("n_identifiers", [9, 11])
def test_a_table_that_changes_while_it_is_read_is_refused(n_identifiers: int) -> None:
    index = PersonIndex(Person(column="id"))
    index.add(keys_of_column(columns()["id"][:n_identifiers]))
    loading = Loading(STUDY, 10, order=index.ordered(0.2))
    table = {name: values[:10] for name, values in columns().items()}
    loading.expect(table)

    def read() -> None:
        loading.add(0, table)
        loading.finish(10)

    with pytest.raises(InvalidDataError, match="changed while it was read"):
        read()


@pytest.mark.parametrize("column", ["a", "y", "id"])
def test_weights_have_a_column_of_their_own(column: str) -> None:
    with pytest.raises(ValidationError, match="row_weights"):
        Study.model_validate(STUDY.model_dump() | {"row_weights": {"column": column}})


def test_a_study_without_persons_and_weights_keeps_its_digest() -> None:
    assert "person" not in PLAIN.model_dump()
    assert "row_weights" not in PLAIN.model_dump()
