"""Tables that were refused, or that a query could not read, though nothing is wrong with them."""

from __future__ import annotations

import csv
import shutil
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow.parquet import write_table

from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.errors import InvalidDataError, InvalidInputError
from parley.common.files import databases
from parley.common.files.csv_files import CsvFile
from parley.common.files.examples import load_source
from parley.common.files.sources import DataSource, parse_csv_format
from parley.common.files.study_fit import fit_of_source, survey_table

STUDY = Study(
    name="s",
    missing="drop",
    features=(Feature(name="age", lower=17, upper=90),),
    label=Label(name="ill", values=("no", "yes")),
)
SECRET = "61.80339"


@pytest.mark.parametrize("end", [pytest.param("\n", marks=pytest.mark.slow), "\r\n"])
@pytest.mark.long
def test_quoted_line_ends_are_read_in_a_file_of_any_size(tmp_path: Path, end: str) -> None:
    """Blocks end anywhere: between CR and LF too, where pyarrow drops a byte (apache/arrow #51368)."""
    path, n = tmp_path / "notes.csv", 30_000
    notes = [f"seen on ward{end}{'stable' * (i % 7)}, no fever{end} {i}" for i in range(n)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator=end)
        writer.writerow(["age", "note", "ill"])
        writer.writerows([20 + i % 70, note, "yes" if i % 3 else "no"] for i, note in enumerate(notes))
    assert path.stat().st_size > 2**20
    for source in (
        DataSource(source=str(path)),
        DataSource(source=f"{tmp_path}/*.csv"),
        DataSource(source="SELECT age, ill FROM t", tables={"t": str(path)}),
    ):
        fit = fit_of_source(STUDY, source)
        assert (fit.fits, fit.n_rows) == (True, n)
    assert [column.name for column in survey_table(DataSource(source=str(path)))] == ["age", "note", "ill"]
    read = [cell for batch in CsvFile(path).batches({"note": pa.string()}) for cell in batch.column(0).to_pylist()]
    assert read == notes


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r", "mixed"])
def test_no_byte_is_lost_wherever_blocks_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    cells = [[str(i), "x\r\ny\rz\n" * (i % 5) + '"q"' * (i % 2) + "ü"] for i in range(40)]
    text = "a,b\n"
    for i, (number, note) in enumerate(cells):
        quoted = note.replace('"', '""')
        text += f'{number},"{quoted}"' + (("\n", "\r\n", "\r")[i % 3] if ends == "mixed" else ends)
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    for size in range(1, 90, 3):
        monkeypatch.setattr("parley.common.files.csv_files._BLOCK", size)
        batches = CsvFile(path).batches({"a": pa.string(), "b": pa.string()})
        assert [list(row.values()) for batch in batches for row in batch.to_pylist()] == cells, size


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (f'age,note,ill\n30,"a\n\nb",no\n\n40,x,yes,{SECRET}\n', "line 6 has 4 cells, and the line of names 3"),
        (f"age,ill\n30,no\n{SECRET}\n40,yes\n", "line 3 has 1 cell, and the line of names 2"),
        (f"Title\n\nage;ill\r\n30;no\r\n31;no\r\n{SECRET}\r\n", "line 6 has 1 cell, and the line of names 2"),
        (f'age,ill\n30,no\n31,"{SECRET}\n32,no\n', "a quoted cell in the row of line 3 does not end"),
        (f"age,ill\n30,no\n31,yes\nTotal,{SECRET}\n", "line 4, the last, begins as one of totals"),
    ],
)
@pytest.mark.parametrize("source", ["{}", "FROM t"])
def test_a_row_that_is_none_is_named_by_its_line(tmp_path: Path, content: str, line: str, source: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(content, newline="")
    data = DataSource(source=source.format(path), tables={"t": str(path)} if "FROM" in source else {})
    with pytest.raises(InvalidDataError) as refused:
        load_source(data, STUDY)
    assert line in refused.value.detail
    assert SECRET not in refused.value.detail


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("age;ill\n31.234;no\n42.500;yes\n", "in column 'age' a point may be the decimal sign"),
        ('age,ill\n"31,234",no\n', "in column 'age' a comma may be the decimal sign"),
        ("age;ill\n31,5;no\n42.25;yes\n", "a decimal point in column 'age', and a decimal comma in column 'age'"),
        ("age,note;ill\n31,5;no\n", "may stand between commas or semicolons"),
    ],
)
def test_what_two_ways_of_reading_fit_is_refused_until_it_is_said(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(content)
    with pytest.raises(InvalidDataError) as refused:
        load_source(DataSource(source=str(path)), STUDY)
    assert words in refused.value.detail
    assert "--csv" in refused.value.detail
    assert "31" not in refused.value.detail.replace(str(path), "")


def sqlite_file(path: Path, mode: str) -> Path:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"PRAGMA journal_mode = {mode}")
        database.execute("CREATE TABLE labs (age INTEGER, ill TEXT)")
        database.executemany(
            "INSERT INTO labs VALUES (?, ?)", [(30 + i % 50, "yes" if i % 3 else "no") for i in range(200)]
        )
    return path


def test_numbers_of_base_16_are_texts_by_file_and_query(tmp_path: Path) -> None:
    """By itself pyarrow would read them as whole numbers."""
    path = tmp_path / "t.csv"
    path.write_text("age,ill\n0x1F,no\n0X20,yes\n")
    for source in (
        DataSource(source=str(path)),
        DataSource(source="SELECT * FROM t", tables={"t": str(path)}),
    ):
        assert fit_of_source(STUDY, source).faults == {"age": {"not numeric": 2}}


def test_a_query_tells_how_a_table_was_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("age;pay;ill\n30;1'000;no\n31;2'000;yes\n")
    notes = [
        load_source(source, STUDY).notes
        for source in (
            DataSource(source=str(path)),
            DataSource(source="SELECT age, ill, pay FROM t", tables={"t": str(path)}),
        )
    ]
    assert notes[1] == ("read as: semicolons, thousands by apostrophe",)
    assert notes[0] == ("read as: semicolons",)  # which reads the study's columns alone


def test_a_separator_may_be_any_character_that_no_number_has(tmp_path: Path) -> None:
    assert parse_csv_format("separator=#").options() == "separator=#"
    assert parse_csv_format(r"separator=\x01").options() == r"separator=\x01"
    for wrong in ("a", "1", ".", '"', "-", "||", "ü"):
        with pytest.raises(InvalidInputError, match="or the character itself"):
            parse_csv_format(f"separator={wrong}")
    path = tmp_path / "t.csv"
    path.write_text("at\n12:30\n13:45\n")
    assert CsvFile(path).names == ("at",)  # a time is one cell


def test_a_database_in_wal_mode_is_read_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only folder: as root none is, so it is SQLite that is kept from opening what it would write."""
    path = sqlite_file(tmp_path / "lab.sqlite", "WAL")
    monkeypatch.setattr(databases, "_can_be_read", lambda _: False)
    data = DataSource(source=f"{path}::labs")
    assert load_source(data, STUDY).shard.n_examples == 200
    (tmp_path / "lab.sqlite-wal").write_bytes(b"")
    assert load_source(data, STUDY).shard.n_examples == 200
    (tmp_path / "lab.sqlite-wal").write_bytes(b"changes")
    with pytest.raises(
        InvalidDataError, match=r"a part of it is in lab\.sqlite-wal, which SQLite reads only in a folder"
    ):
        load_source(data, STUDY)


def test_a_database_in_wal_mode_cannot_be_read_where_its_files_cannot_be_made(tmp_path: Path) -> None:
    path = sqlite_file(tmp_path / "lab.sqlite", "WAL")
    (tmp_path / "lab.sqlite-shm").mkdir()  # so that SQLite cannot make it, as in a folder that is read-only
    assert load_source(DataSource(source=f"{path}::labs"), STUDY).shard.n_examples == 200
    shutil.rmtree(tmp_path / "lab.sqlite-shm")
    assert load_source(
        DataSource(source=f"{sqlite_file(tmp_path / 'b.sqlite', 'DELETE')}::labs"), STUDY
    ).shard.n_examples


ODD_COLUMNS: dict[str, Any] = {
    "half": pa.array(np.ones(2, np.float16)),
    "wide": pa.array([Decimal(1), Decimal(2)], pa.decimal256(50, 2)),
    "halves": pa.array([[1.0], [2.0]]).cast(pa.list_(pa.float16())),
}


@pytest.mark.parametrize("kind", ODD_COLUMNS)
@pytest.mark.parametrize("query", ["SELECT age, ill FROM t", "SELECT * FROM t", "SELECT odd, age, ill FROM t"])
def test_a_column_of_a_type_that_no_query_reads_is_no_hindrance(tmp_path: Path, kind: str, query: str) -> None:
    path = tmp_path / "t.parquet"
    write_table(pa.table({"age": [30, 80], "ill": ["no", "yes"], "odd": ODD_COLUMNS[kind]}), path)
    data = DataSource(source=query, tables={"t": str(path)})
    if kind == "halves" and "odd" in query:
        with pytest.raises(InvalidDataError, match="No query can read these columns, by their types: 'odd' of t"):
            load_source(data, STUDY)
        return
    assert load_source(data, STUDY).shard.n_examples == 2


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("age::VARCHAR::TIME AS odd", "column 'odd', of type TIME, cannot be read"),
        ("ill::INT AS odd", "column 'odd', of type INTEGER, cannot be read"),
        ("1::BIGNUM AS age", "column 'age' is of type"),
        ("INTERVAL 1 DAY AS age", "column 'age': not numeric in 2 rows"),
    ],
)
def test_a_column_that_a_query_cannot_give_is_named(tmp_path: Path, column: str, words: str) -> None:
    path = tmp_path / "t.parquet"
    write_table(pa.table({"age": [30, 80], "ill": ["no", "yes"]}), path)
    others = "ill" if column.endswith("AS age") else "age, ill"
    with pytest.raises(InvalidDataError) as refused:
        load_source(DataSource(source=f"SELECT {others}, {column} FROM t", tables={"t": str(path)}), STUDY)  # noqa: S608 -- our own
    assert words in refused.value.detail
    assert "30" not in refused.value.detail
