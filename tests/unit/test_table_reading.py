"""Tables of files as columns and as examples, to the letter: rows, types, sizes, notes, and the file with a fault."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, feather, ipc, parquet

from parley.common.data.columns import Category, Feature, Label
from parley.common.data.faults import UnfitDataError
from parley.common.data.sparse import SparseShard
from parley.common.data.study import Study
from parley.common.errors import InvalidDataError
from parley.common.files import examples, parquet_files, sparse_examples
from parley.common.files.examples import block_of, load_examples, load_source
from parley.common.files.sources import CsvFormat, DataSource, Spill
from parley.common.files.sparse_examples import libsvm_table, sparse_blocks
from parley.common.files.tables import (
    TableSize,
    column_names,
    file_table,
    is_pattern,
    matching_files,
    open_stream,
    read_columns,
    size_of,
    source_files,
)

WRITERS: dict[str, Callable[[pa.Table, Path], object]] = {
    "csv": csv.write_csv,
    "parquet": parquet.write_table,
    "feather": lambda table, path: feather.write_feather(table, str(path)),
    "json": lambda table, path: path.write_text(json.dumps(table.to_pylist())),
}
TABLE = pa.table({"x": [1.5, None, 3.0], "t": ["a", "", "c"], "n": [1, 2, 3]})


def rows_of(stream: Any) -> list[dict[str, Any]]:  # noqa: ANN401 -- of any kind
    return [row for batch in stream.batches() for row in batch.to_pylist()]


def test_a_pattern_means_files_unless_a_file_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b.csv", "a.csv", "c[1].csv"):
        (tmp_path / name).write_text("x\n1\n")
    assert [is_pattern(f"{tmp_path}/{name}") for name in ("*.csv", "c[1].csv", "c[2].csv", "a.csv")] == [
        True, False, True, False
    ]  # fmt: skip
    assert matching_files(f"{tmp_path}/[ab]*") == [tmp_path / "a.csv", tmp_path / "b.csv"]
    assert matching_files("none.csv") == [Path("none.csv")]
    monkeypatch.chdir(tmp_path)
    assert matching_files("[ab]*") == [Path("a.csv"), Path("b.csv")]
    with pytest.raises(InvalidDataError) as refused:
        matching_files("z*.csv")
    assert refused.value.detail == "data files z*.csv: there is none"
    assert source_files(DataSource(source="a.csv")) == [Path("a.csv")]
    assert source_files(DataSource(source="FROM t")) is None
    assert source_files(DataSource(source="a.sqlite::t")) is None


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_rows_of_files_come_in_the_order_of_their_names_and_in_types_that_hold_all(tmp_path: Path, kind: str) -> None:
    write = WRITERS[kind]
    first = pa.table({"n": pa.array([1, 2], pa.int8()), "t": pa.array(["a", None]).dictionary_encode()})
    write(first.replace_schema_metadata({"by": "somebody"}), tmp_path / f"1.{kind}")
    write(pa.table({"T": pa.array(["c"], pa.large_string()), "N": [2.5]}), tmp_path / f"2.{kind}")
    stream = file_table(f"{tmp_path}/*.{kind}")
    assert stream.name == f"data file {tmp_path}/*.{kind}"
    assert stream.schema.equals(pa.schema([("n", pa.float64()), ("t", pa.large_string())]), check_metadata=True)
    for _ in range(2):
        assert rows_of(stream) == [{"n": 1.0, "t": "a"}, {"n": 2.0, "t": None}, {"n": 2.5, "t": "c"}]
    one = file_table(f"{tmp_path}/1.{kind}")
    assert one.schema.equals(first.schema, check_metadata=True)
    assert pa.Table.from_batches(one.batches()).equals(first)
    write(pa.table({"n": ["x"], "t": ["y"]}), tmp_path / f"3.{kind}")
    with pytest.raises(InvalidDataError) as refused:
        file_table(f"{tmp_path}/*.{kind}")
    assert refused.value.detail == (
        f"data file {tmp_path}/3.{kind}: column 'n' is of type string, and of type double in {tmp_path}/1.{kind}: make "
        "them alike"
    )


@pytest.mark.parametrize("kind", ["parquet", "feather", "stream"])
def test_rows_come_some_at_a_time(tmp_path: Path, kind: str) -> None:
    table, path = pa.table({"n": range(5000), "t": ["a"] * 5000}), tmp_path / "t.arrow"
    if kind == "stream":
        with ipc.new_stream(path, table.schema) as file:
            file.write_table(table)
    elif kind == "feather":
        feather.write_feather(table, str(path), chunksize=3000)
    else:
        path = tmp_path / "t.parquet"
        parquet.write_table(table, path)
    stream = file_table(str(path))
    sizes = [batch.num_rows for batch in stream.batches()]
    assert sizes == ([2048, 952, 2000] if kind == "feather" else [2048, 2048, 904])
    assert pa.Table.from_batches(stream.batches()).equals(table)
    assert stream.name == f"data file {path}"


@pytest.mark.parametrize("name", ["t.parquet", "t.feather", "t.csv"])
def test_a_table_that_is_none_is_told_by_its_file(tmp_path: Path, name: str) -> None:
    for read in (
        lambda path: file_table(str(path)),
        column_names,
        read_columns,
        lambda path: fit_rows(DataSource(source=str(path))),
    ):
        with pytest.raises(InvalidDataError) as refused:
            read(tmp_path / name)
        assert refused.value.detail == f"data file {tmp_path}/{name} is missing"


def fit_rows(source: DataSource) -> Any:  # noqa: ANN401 -- what is loaded
    return load_source(source, STUDY)


def test_whole_columns_are_arrays_by_the_names_that_are_wanted(tmp_path: Path) -> None:
    for kind in ("csv", "parquet", "feather"):
        WRITERS[kind](TABLE, tmp_path / f"t.{kind}")
        columns = read_columns(tmp_path / f"t.{kind}", wanted=("X", "n"))
        assert list(columns) == ["X", "t", "n"]
        assert np.array_equal(columns["X"], [1.5, np.nan, 3.0], equal_nan=True)
        assert columns["t"].tolist() == ["a", "", "c"]
        assert columns["n"].tolist() == [1, 2, 3]
        assert column_names(tmp_path / f"t.{kind}") == ("x", "t", "n")
    (tmp_path / "t.csv").write_text("T;T\nx;n\n1;01\n")
    stated = CsvFormat(skip=1)
    assert read_columns(tmp_path / "t.csv", {"x": ()}, stated)["x"].tolist() == ["1"]
    assert column_names(tmp_path / "t.csv", stated) == ("x", "n")


def test_a_column_that_is_there_twice_is_refused_by_its_places(tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    for kind in ("parquet", "feather"):
        path = tmp_path / f"t.{kind}"
        if kind == "parquet":
            parquet.write_table(twice, path)
        else:
            with ipc.new_file(path, twice.schema) as file:
                file.write_table(twice)
        for read in (lambda path: file_table(str(path)), column_names, read_columns):
            with pytest.raises(InvalidDataError) as refused:
                read(path)
            assert refused.value.detail == f"data file {path} names columns twice: see places 1, 2 of its first line"


def test_cells_of_a_file_are_counted_by_its_metadata(tmp_path: Path) -> None:
    table = pa.table({
        "X": [1.0] * 10, "lists": [[1, 2]] * 5 + [None] * 5, "few": [[1]] + [None] * 9,
        "both": [{"a": 1, "b": 2}] * 10,
    })  # fmt: skip
    parquet.write_table(table, tmp_path / "t.parquet", row_group_size=4)
    for wanted, cells in (({"x"}, 10), ({"lists"}, 15), ({"few"}, 10), ({"both"}, 20), ({"x", "few"}, 20), ({"z"}, 0)):
        assert size_of(tmp_path / "t.parquet", wanted) == TableSize(10, cells)
    (tmp_path / "t.csv").write_text("a,b,c\n1,2,3\n4,5,6\n")
    assert size_of(tmp_path / "t.csv", {"A", "c", "z"}) == TableSize(2, 4)
    with pytest.raises(InvalidDataError, match=r"^data file .*none\.csv is missing$"):
        size_of(tmp_path / "none.csv", {"a"})


def test_tables_of_a_query_are_read_each_by_its_kind(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x;code\n1,5;01\n2;1\n")
    with closing(sqlite3.connect(tmp_path / "lab.sqlite")) as database, database:
        database.execute("CREATE TABLE labs (code TEXT, y INTEGER)")
        database.execute("INSERT INTO labs VALUES ('01', 7), ('1', 8)")
    tables: Any = {"t": f"{tmp_path}/t.csv", "labs": f"{tmp_path}/lab.sqlite::labs"}
    data = DataSource(source="SELECT x, code, y FROM t JOIN labs USING (code) ORDER BY x", tables=tables)
    with open_stream(data, {"code": ()}) as stream:
        assert stream.name == "data.source"
        assert rows_of(stream) == [{"x": 1.5, "code": "01", "y": 7}, {"x": 2.0, "code": "1", "y": 8}]
        assert stream.notes == ["read as: semicolons, decimal comma"]
    with open_stream(DataSource(source=f"{tmp_path}/lab.sqlite::labs")) as stream:
        assert rows_of(stream) == [{"code": "01", "y": 7}, {"code": "1", "y": 8}]
    with open_stream(DataSource(source=f"{tmp_path}/t.csv", csv=CsvFormat(decimal="comma")), as_texts=True) as stream:
        assert rows_of(stream) == [{"x": "1.5", "code": "01"}, {"x": "2", "code": "1"}]
    spilling = data.model_copy(update={"spill": Spill(folder=tmp_path, above_mb=64)})
    tmp_path.chmod(0o700)
    with open_stream(spilling, {"code": ()}) as stream:
        assert len(rows_of(stream)) == 2


def test_a_column_that_no_query_reads_is_left_out_and_told(tmp_path: Path) -> None:
    table = pa.table({
        "x": [1, 2], "half": pa.array(np.array([0.5, 1], np.float16)),
        "odd": pa.array([[1.0], [2.0]]).cast(pa.list_(pa.float16())),
    })  # fmt: skip
    parquet.write_table(table, tmp_path / "t.parquet")
    with open_stream(DataSource(source="FROM t", tables={"t": f"{tmp_path}/t.parquet"})) as stream:
        told = ["column 'odd' of t is of a type that a query cannot read: it is left out"]
        assert stream.notes == told
        assert rows_of(stream) == [{"x": 1, "half": 0.5}, {"x": 2, "half": 1.0}]
        assert stream.notes == told


# ── examples ─────────────────────────────────────────────────────────────────

STUDY = Study(
    name="s",
    features=(Feature(name="x", lower=0, upper=10), Category(name="w", values=("1", "02"))),
    label=Label(name="y", values=("no", "yes")),
)
ROWS = pa.table({"Y": ["no", "yes", "no"], "more": [1, 2, 3], "w": ["1", "02", "1"], "x": [0.0, 5.0, 10.0]})


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather", pytest.param("json", marks=pytest.mark.long)])
def test_examples_of_files_are_the_same_with_the_same_notes(tmp_path: Path, kind: str) -> None:
    WRITERS[kind](ROWS, tmp_path / f"1.{kind}")
    WRITERS[kind](ROWS.slice(1).rename_columns(["y", "more", "w", "X"]), tmp_path / f"2.{kind}")
    one = load_examples(tmp_path / f"1.{kind}", STUDY)
    assert one.notes == ("column 'Y' is read as 'y'",)
    assert one.shard.y.tolist() == [-1, 1, -1]
    assert np.sign(one.shard.X[:, :3]).tolist() == [[-1, 1, 0], [0, 0, 1], [1, 1, 0]]
    both = load_source(DataSource(source=f"{tmp_path}/*.{kind}"), STUDY)
    assert both.notes == ("column 'Y' is read as 'y'",)
    assert both.shard.y.tolist() == [-1, 1, -1, 1, -1]
    assert np.array_equal(both.shard.X, one.shard.X[[0, 1, 2, 1, 2]])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_first_of_several_files_with_a_fault_is_told_with_how_it_was_read(tmp_path: Path, kind: str) -> None:
    WRITERS[kind](ROWS, tmp_path / f"1.{kind}")
    WRITERS[kind](ROWS.set_column(3, "x", pa.array([0, 11, 2.5])), tmp_path / f"2.{kind}")
    for pattern, file in ((f"{tmp_path}/*.{kind}", f"{tmp_path}/2.{kind}"), (f"{tmp_path}/2.{kind}", "")):
        with pytest.raises(UnfitDataError) as refused:
            load_source(DataSource(source=pattern), STUDY)
        assert {name: dict(counts) for name, counts in refused.value.rows.items()} == {"x": {"beyond the bounds": 1}}
        assert (refused.value.file, refused.value.notes) == (file, ("column 'Y' is read as 'y'",))
        clipped = load_source(DataSource(source=pattern), STUDY, clip=True)
        assert clipped.clipped == {"x": 1 / clipped.shard.n_examples}


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_columns_that_are_absent_are_told_beside_any_others(tmp_path: Path, kind: str) -> None:
    for names, absent in ((["a", "b", "c", "d"], ["x", "w", "y"]), (["y", "b", "c", "x"], ["w"])):
        WRITERS[kind](ROWS.rename_columns(names), tmp_path / f"t.{kind}")
        for source in (
            DataSource(source=f"{tmp_path}/t.{kind}"),
            DataSource(source="FROM t", tables={"t": f"{tmp_path}/t.{kind}"}),
        ):
            with pytest.raises(UnfitDataError) as refused:
                load_source(source, STUDY)
            assert [name for name, counts in refused.value.rows.items() if "absent" in counts] == absent


def test_what_values_mean_is_said_of_every_kind_of_source(tmp_path: Path) -> None:
    values = {"y": {"n": "no", "j": "yes"}, "w": {"zwei": "02"}}
    (tmp_path / "t.csv").write_text("x;y;w\n1,5;n;1\n2;j;zwei\n")
    for source in ("{}/t.csv", "FROM t"):
        data = DataSource(
            source=source.format(tmp_path),
            tables={"t": f"{tmp_path}/t.csv"} if source == "FROM t" else {},
            values=values,
            csv=CsvFormat(decimal="comma"),
        )
        loaded = load_source(data, STUDY)
        assert loaded.shard.y.tolist() == [-1, 1]
        assert loaded.notes == ("read as: semicolons, decimal comma",)


def test_values_are_compared_as_they_are_spelt_in_a_query_too(tmp_path: Path) -> None:
    study = STUDY.model_copy(update={"features": (Category(name="w", values=("1.50", "NA")),)})
    (tmp_path / "t.csv").write_text("w,y\n1.50,no\nNA,yes\n")
    for source in ("{}/t.csv", "{}/*.csv", "FROM t"):
        tables: Any = {"t": f"{tmp_path}/t.csv"} if source == "FROM t" else {}
        shard = load_source(DataSource(source=source.format(tmp_path), tables=tables), study).shard
        assert (shard.X[:, :2] > 0).tolist() == [[True, False], [False, True]]


@pytest.mark.parametrize("number", ["1", "1,5"])
def test_values_stay_as_they_are_beside_numbers_with_signs(tmp_path: Path, number: str) -> None:
    study = STUDY.model_copy(update={"features": (STUDY.features[0], Category(name="w", values=("1,234", "NA")))})
    (tmp_path / "t.csv").write_text(f"x;w;y\n{number};1,234;no\n2;NA;yes\n2;-9;yes\n")
    with pytest.raises(UnfitDataError) as refused:
        load_source(DataSource(source=f"{tmp_path}/t.csv", csv=CsvFormat(missing=("-9",))), study)
    assert {name: dict(counts) for name, counts in refused.value.rows.items()} == {"w": {"missing": 1}}
    with pytest.raises(UnfitDataError) as refused:
        load_source(DataSource(source=f"{tmp_path}/t.csv"), study)
    assert {name: dict(counts) for name, counts in refused.value.rows.items()} == {"w": {"unknown category": 1}}


def test_files_of_several_kinds_are_refused_by_their_pattern(tmp_path: Path) -> None:
    WRITERS["csv"](ROWS, tmp_path / "t.csv")
    WRITERS["parquet"](ROWS, tmp_path / "t.parquet")
    for read in (file_table, lambda pattern: load_source(DataSource(source=pattern), STUDY)):
        with pytest.raises(InvalidDataError) as refused:
            read(f"{tmp_path}/*")
        assert refused.value.detail == f"data files {tmp_path}/*: they are of several kinds: csv, parquet"


def test_numbers_are_read_as_texts_where_one_is_none(tmp_path: Path) -> None:
    """With signs of their own, a missing one, or no number at all."""
    for text, told in (("1,5", None), ("1.234", "bounds"), ("NA", "missing"), ("x", "not numeric")):
        (tmp_path / "t.csv").write_text(f'x,y,w\n2,no,1\n"{text}",yes,02\n')
        if told is None:
            assert load_examples(tmp_path / "t.csv", STUDY).notes == ("read as: decimal comma",)
            continue
        loaded = load_examples(tmp_path / "t.csv", STUDY) if told == "bounds" else None
        assert loaded is None or loaded.notes == ()
        if loaded is None:
            with pytest.raises(InvalidDataError, match=f"column 'x': {told} in 1 row"):
                load_examples(tmp_path / "t.csv", STUDY)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_long_and_wide_tables_are_the_same_rows_in_any_blocks(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examples, "BLOCK_ROWS", 256)
    rng, n = np.random.default_rng(4), 5000
    columns: dict[str, Any] = {f"x{i}": rng.uniform(0, 1, n) for i in range(20)}
    whole = pa.table(columns | {"w": rng.choice(["a", "b"], n), "y": rng.choice(["no", "yes"], n)})
    study = Study(
        name="s",
        features=(*(Feature(name=f"x{i}", lower=0, upper=1) for i in range(20)), Category(name="w", values=("a", "b"))),
        label=Label(name="y", values=("no", "yes")),
    )
    WRITERS[kind](whole, tmp_path / f"t.{kind}")
    shard = load_examples(tmp_path / f"t.{kind}", study).shard
    assert shard.n_examples == n
    ratio = shard.X[:, 1] / np.where(shard.X[:, 2] == 0, 1, shard.X[:, 2])
    expected = (2 * columns["x1"] - 1) / (2 * columns["x2"] - 1)
    near = np.abs(2 * columns["x2"] - 1) > 0.1
    assert np.allclose(ratio[near], expected[near], atol=0.01)
    assert (shard.y > 0).tolist() == [value == "yes" for value in whole["y"].to_pylist()]
    assert (shard.X[:, 20] > 0).tolist() == [value == "a" for value in whole["w"].to_pylist()]


def test_a_column_of_a_type_that_cannot_be_read_is_named() -> None:
    batch = pa.record_batch({"x": pa.array([None, None]), "n": pa.array([1.0, 2.0]), "t": ["1", "2"]})
    block = block_of(batch, frozenset({"t"}))
    assert list(block) == ["x", "n", "t"]
    odd = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)], pa.binary(16)))
    with pytest.raises(InvalidDataError) as refused:
        block_of(pa.record_batch({"x": odd}), frozenset({"x"}))
    told = f"column 'x' is of type {odd.type}, which cannot be read: make a number or a text of it"
    assert refused.value.detail == told


# ── long texts ───────────────────────────────────────────────────────────────


def test_only_columns_of_long_texts_are_read_as_dictionaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "MOST_TEXT", 100_000)
    monkeypatch.setattr(parquet_files, "BLOCK_ROWS", 1000)
    n, path = 2000, tmp_path / "t.parquet"
    table = pa.table({
        "long": ["x" * 101] * n, "short": ["y" * 100] * n, "many": [f"{i:06}" for i in range(n)], "n": range(n),
        "bytes": [b"z" * 101] * n, "large": pa.array(["w" * 101] * n, pa.large_string()),
    })  # fmt: skip
    parquet.write_table(table, path, use_dictionary=["long", "short", "bytes", "large"], row_group_size=1500)
    with parquet_files.open_parquet(path, 2**14) as file:
        kinds = {field.name: pa.types.is_dictionary(field.type) for field in file.schema_arrow}
        assert kinds == {"long": True, "short": False, "many": False, "n": False, "bytes": True, "large": True}
        batch = next(file.iter_batches(10))
    monkeypatch.setattr(parquet_files, "MOST_TEXT", 10**9)
    with parquet_files.open_parquet(path, 2**14) as file:
        assert not any(pa.types.is_dictionary(field.type) for field in file.schema_arrow)
    assert parquet_files.as_texts("t", "long", batch.column("long")).to_pylist() == ["x" * 101] * 10


@pytest.mark.parametrize(
    ("texts", "codes", "is_large"),
    [(["x" * 60, "y"], [0, 1], False), (["x" * 60, "y"], [0, 0], True), (["x" * 50], [0, 0], False),
     (["x" * 51], [0, 0], True), (["x" * 60, None], [0, 1, None], False), ([], [None, None], False)],
)  # fmt: skip
def test_texts_that_would_take_too_much_memory_are_refused(
    texts: list[str | None], codes: list[int | None], monkeypatch: pytest.MonkeyPatch, *, is_large: bool
) -> None:
    monkeypatch.setattr(parquet_files, "MOST_TEXT", 100)
    column = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(texts, pa.string()))
    if not is_large:
        parquet_files.check_texts("t", "ward", column)
        whole = parquet_files.as_texts("t", "ward", column)
        assert (whole.type, whole.to_pylist()) == (pa.string(), column.to_pylist())
        return
    for check in (parquet_files.check_texts, parquet_files.as_texts):
        with pytest.raises(InvalidDataError) as refused:
            check("t", "ward" * 100, column)
        assert refused.value.detail == (
            f"t: column '{('ward' * 100)[:200]}...' has more than 0 MB of texts in 2 rows, the longest of "
            f"{len(texts[0] or '')} bytes: save the table without it"
        )


def test_other_columns_stay_as_they_are() -> None:
    for column in (pa.array([1, 2]), pa.array(["a"]), pa.array([1, 1]).dictionary_encode()):
        assert parquet_files.as_texts("t", "x", column) is column


# ── sparse features ──────────────────────────────────────────────────────────

SPARSE = Study.model_validate({
    "format": "parley-study-2", "name": "urls", "label": {"name": "bad", "values": ["-1", "1"]},
    "features": [{"name": "tokens", "columns": 9, "entries": 3, "bound": 2.0}],
})  # fmt: skip
LINES = "1 1:2 4:-1 # a comment\n\n-1\n# a comment\n+1 2:.5 x:1 3:y 9:\n 1:1 2:2\n"


def as_lists(entries: Any) -> list[list[tuple[float, float]]]:  # noqa: ANN401 -- of arrays
    ends = entries.starts.tolist()
    pairs = list(zip(entries.places.tolist(), entries.values.tolist(), strict=True))
    return [pairs[start:end] for start, end in pairwise(ends)]


def test_lines_of_libsvm_are_labels_and_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.SVM"
    path.write_text(LINES)
    for lines in (1, 2, 100):
        monkeypatch.setattr(sparse_examples, "_LINES", lines)
        n_rows, names, blocks = sparse_blocks(path, SPARSE)
        read = list(blocks)
        assert (n_rows, tuple(names)) == (4, ("index", "value", "bad"))
        assert len(read) == {1: 4, 2: 2, 100: 1}[lines]
        rows = [row for block in read for row in as_lists(block.entries)]
        assert str(rows) == str([
            [(1.0, 2.0), (4.0, -1.0)], [], [(2.0, 0.5), (float("nan"), 1.0), (3.0, float("nan")), (9.0, float("nan"))],
            [(1.0, 1.0), (2.0, 2.0)],
        ])  # fmt: skip
        assert [label for block in read for label in np.asarray(block.labels).tolist()] == [1.0, -1.0, 1.0, ""]
        assert all(not block.entries.missing.any() and not block.entries.unequal.any() for block in read)
    stream = libsvm_table(path, SPARSE)
    assert stream.name == f"data file {path}"
    numbers = pa.list_(pa.float64())
    assert stream.schema == pa.schema([("index", numbers), ("value", numbers), ("bad", pa.string())])
    assert [row["bad"] for row in rows_of(stream)] == ["1", "-1", "+1", ""]
    assert [row["index"] for row in rows_of(stream)][:2] == [[1.0, 4.0], []]
    assert [row["value"] for row in rows_of(stream)][3] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("t.csv", ""), ("t.svm.gz", ": unpack it"), ("t.zip", ": unpack it"), ("t", ""),
    ],
)  # fmt: skip
def test_a_file_that_holds_no_sparse_rows_is_refused_by_its_name(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(InvalidDataError) as refused:
        sparse_examples.check_kind(tmp_path / name)
    told = f"data file {tmp_path}/{name} must end in .parquet, .svm or .libsvm, as the features are sparse"
    assert refused.value.detail == told + reason
    for fine in ("t.PARQUET", "t.svm", "t.LIBSVM"):
        sparse_examples.check_kind(tmp_path / fine)


@pytest.mark.parametrize("kind", ["svm", "parquet"])
def test_sparse_rows_of_several_files_are_one_shard_and_a_fault_names_its_file(tmp_path: Path, kind: str) -> None:
    def write(name: str, index: list[list[int]], labels: list[int]) -> None:
        values = [[1.0] * len(places) for places in index]
        if kind == "svm":
            lines = [
                f"{label} " + " ".join(f"{place}:1" for place in row) for label, row in zip(labels, index, strict=True)
            ]
            (tmp_path / f"{name}.svm").write_text("\n".join(lines) + "\n")
        else:
            table = pa.table({"bad": labels, "index": index, "value": values, "more": labels})
            parquet.write_table(table, tmp_path / f"{name}.parquet")

    write("1", [[1], [2, 3]], [1, -1])
    write("2", [[4]], [1])
    loaded = load_source(DataSource(source=f"{tmp_path}/*.{kind}"), SPARSE)
    assert isinstance(loaded.shard, SparseShard)
    assert (loaded.shard.X[:, :9] > 0).tolist() == [[j in row for j in range(9)] for row in ([0], [1, 2], [3])]
    assert loaded.shard.y.tolist() == [1, -1, 1]
    write("3", [[10]], [1])
    for pattern, file in (("*", f"{tmp_path}/3.{kind}"), ("3", "")):
        with pytest.raises(UnfitDataError) as refused:
            load_source(DataSource(source=f"{tmp_path}/{pattern}.{kind}"), SPARSE)
        assert refused.value.file == file


def test_a_place_beyond_all_floats_is_out_of_range_and_no_broken_file(tmp_path: Path) -> None:
    table = pa.table({"index": [[2**53 + 1], [1]], "value": [[1.0], [1.0]], "bad": ["1", "-1"]})
    parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(UnfitDataError) as refused:
        load_examples(tmp_path / "t.parquet", SPARSE)
    assert {name: dict(counts) for name, counts in refused.value.rows.items()} == {"index": {"place out of range": 1}}


def test_lists_of_a_query_are_sparse_rows(tmp_path: Path) -> None:
    table = pa.table(
        {"id": [2, 1, 3], "index": [[1], [2, 3], []], "value": [[0.5], [1, 1], []], "bad": ["1", "-1", "1"]}
    )
    parquet.write_table(table, tmp_path / "t.parquet")
    tables: Any = {"t": f"{tmp_path}/t.parquet"}
    loaded = load_source(DataSource(source="SELECT * FROM t ORDER BY id", tables=tables), SPARSE)
    assert isinstance(loaded.shard, SparseShard)
    assert (loaded.shard.X[:, :9] > 0).tolist() == [[j in row for j in range(9)] for row in ([1, 2], [0], [])]
    assert loaded.shard.y.tolist() == [-1, 1, 1]
    with pytest.raises(UnfitDataError) as refused:
        load_source(DataSource(source="SELECT index, value FROM t", tables=tables), SPARSE)
    assert refused.value.rows["bad"] == {"absent": 1}
    with pytest.raises(InvalidDataError) as error:
        load_source(DataSource(source="SELECT bad, value, ['a'] AS index FROM t", tables=tables), SPARSE)
    assert error.value.detail == "column 'index' must hold lists of numbers"
