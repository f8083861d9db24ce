"""Which files hold tables and what their names say, to the letter: kinds, names, matches, and the errors for each."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from parley.common.errors import InvalidDataError, InvalidInputError
from parley.common.files import column_names, kinds
from parley.common.files.column_names import (
    check_header,
    check_same_columns,
    match_all_columns,
    match_columns,
    names_identifier,
    numbers_people,
    renaming_notes,
    similar_name,
)
from parley.common.files.sources import (
    CsvFormat,
    DataSource,
    PostgresTable,
    parse_csv_format,
    parse_source,
    split_inner_table,
)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(
            (f"t{ending}", "csv")
            for ending in (".csv", ".TSV", ".tab", ".txt", "", ".csv.gz", ".tsv.bz2", ".CSV.XZ", ".gz.csv")
        ),
        *((f"t{ending}", "parquet") for ending in (".parquet", ".pq")),
        *((f"t{ending}", "arrow") for ending in (".feather", ".arrow", ".ipc")),
        *((f"t{ending}", "json") for ending in (".json", ".jsonl", ".ndjson")),
        *((f"t{ending}", "sheet") for ending in (".xlsx", ".xls", ".ods")),
    ],
)
def test_the_name_of_a_file_tells_its_kind(tmp_path: Path, name: str, kind: str) -> None:
    assert kinds.table_kind(tmp_path / name) == kind
    (tmp_path / name).write_bytes(b"a,b\n1,2\n")
    assert kinds.table_kind(tmp_path / name) == kind
    assert kinds.common_kind("t", [tmp_path / name] * 2) == kind


@pytest.mark.parametrize("name", ["t", "t.txt"])
def test_where_a_name_tells_nothing_the_first_bytes_do(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for start, kind in ((b"PAR1", "parquet"), (b"ARROW1\0\0", "arrow"), (b"", "csv"), (b"a,PAR1", "csv")):
        path.write_bytes(start)
        assert kinds.table_kind(path) == kind
    path.write_bytes(b"SQLite format 3\0")
    with pytest.raises(InvalidDataError) as refused:
        kinds.table_kind(path)
    assert refused.value.detail == f"data file {path} is a database: say FILE::TABLE"
    (tmp_path / "t.csv").write_bytes(b"SQLite format 3\0")
    assert kinds.table_kind(tmp_path / "t.csv") == "csv"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("t.db", "of a database say FILE::TABLE"),
        ("t.zip", "unpack it"),
        ("t.csv.zip", "unpack it"),
        ("t.parquet.gz", "unpack it"),
        ("t.dta", "save the table as CSV or Parquet, such as by pandas: pandas.read_stata(FILE).to_parquet(...)"),
        ("folder", "of the files of a folder say FOLDER/*.csv"),
        ("folder.db", "of the files of a folder say FOLDER/*.csv"),
        ("folder.csv", "of the files of a folder say FOLDER/*.csv"),
    ],
)
def test_a_file_of_another_kind_is_refused_with_what_to_do(tmp_path: Path, name: str, remedy: str) -> None:
    if name.startswith("folder"):
        (tmp_path / name).mkdir()
    with pytest.raises(InvalidDataError) as refused:
        kinds.table_kind(tmp_path / name)
    ending = "of the files" if name == "folder" else remedy
    assert refused.value.detail == f"data file {tmp_path}/{name} must end in .csv or .parquet: {remedy}", ending


def test_a_file_of_an_unknown_kind_is_told_the_kinds_that_are_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidDataError) as refused:
        kinds.table_kind(tmp_path / "t.md")
    told = "must end in .csv, .tsv, .txt, .parquet, .feather, .json, .jsonl or .xlsx; of a database say FILE::TABLE"
    assert refused.value.detail == f"data file {tmp_path}/t.md {told}"


def test_files_of_several_kinds_are_no_table(tmp_path: Path) -> None:
    with pytest.raises(InvalidDataError) as refused:
        kinds.common_kind("t/*", [tmp_path / name for name in ("a.parquet", "b.csv", "c.csv")])
    assert refused.value.detail == "data files t/*: they are of several kinds: csv, parquet"


@pytest.mark.parametrize(
    ("name", "content", "error", "reason"),
    [
        ("t.csv", b"", ValueError(), ": it is empty"),
        ("t.parquet", b"x", ValueError(), ": it is no Parquet file, or a part of one"),
        ("t.PQ", b"x", ValueError(), ": it is no Parquet file, or a part of one"),
        ("t.feather", b"x", ValueError(), ": it is no Arrow file, or a part of one"),
        ("t.ARROW", b"x", ValueError(), ": it is no Arrow file, or a part of one"),
        ("t.ipc", b"x", ValueError(), ": it is no Arrow file, or a part of one"),
        ("t.svm", b"\x1f\x8bx", ValueError(), ": it is packed: unpack it"),
        ("t.svm", b"PK\x03\x04", ValueError(), ": it is packed: unpack it"),
        ("t.svm", b"a\0b", ValueError(), ": it is not UTF-8: save it as such"),
        ("t.svm", b"abc", UnicodeDecodeError("utf-8", b"", 0, 1, ""), ": it is not UTF-8: save it as such"),
        ("t.svm", b"abc", ValueError(), ""),
        ("t.svm", b"abc\n\0", ValueError(), ""),
        ("t.svm", b"abc", OSError(13, "a value"), ": Permission denied"),
        ("t.svm", b"abc", OSError("a value"), ""),
        ("t.parquet", b"\x1f\x8b", pa.ArrowInvalid("a value"), ": it is no Parquet file, or a part of one"),
    ],
)
def test_why_a_file_cannot_be_read_is_told_without_its_content(
    tmp_path: Path, name: str, content: bytes, error: Exception, reason: str
) -> None:
    (tmp_path / name).write_bytes(content)
    told = kinds.unreadable_error(tmp_path / name, error).detail
    assert told == f"data file {tmp_path}/{name} cannot be read{reason}"
    if not isinstance(error, ValueError) or isinstance(error, UnicodeDecodeError | pa.ArrowException):
        with pytest.raises(InvalidDataError) as refused, kinds.reading(tmp_path / name):
            raise error
        assert refused.value.detail == told


def test_a_file_that_is_not_there_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    assert kinds.unreadable_error(path, FileNotFoundError(2, "x")).detail == f"data file {path} is missing"
    assert kinds.unreadable_error(path, ValueError()).detail == f"data file {path} cannot be read"
    kinds.check_regular(path)
    kinds.check_regular(tmp_path)
    os.mkfifo(path)
    with pytest.raises(InvalidDataError) as refused:
        kinds.check_regular(path)
    assert refused.value.detail == f"data file {path} is no regular file: save its rows to one"


@pytest.mark.parametrize(
    ("content", "is_text"),
    [
        (b"1 1:2\n", True), (b"", True), (b"1 \0\n", False), (b"1\n\0", True), ("1 1:2\n".encode("utf-16"), True),
        (b"\x1f\x8b", False), (b"BZh9", False), (b"\x28\xb5\x2f\xfd", False),
    ],
)  # fmt: skip
def test_a_file_that_begins_as_no_text_does_is_refused(tmp_path: Path, content: bytes, *, is_text: bool) -> None:
    (tmp_path / "t.svm").write_bytes(content)
    if is_text:
        kinds.check_text(tmp_path / "t.svm")
    else:
        with pytest.raises(InvalidDataError, match=r"t\.svm cannot be read: it is (packed|not UTF-8)"):
            kinds.check_text(tmp_path / "t.svm")


def test_columns_that_are_named_twice_are_told_by_place_or_by_name(tmp_path: Path) -> None:
    kinds.check_names(tmp_path, ["a", "b"])
    kinds.check_columns("t", ["a", "b"])
    with pytest.raises(InvalidDataError) as refused:
        kinds.check_names(tmp_path / "t.csv", ["b", "a", "b", "a", "a"])
    assert (
        refused.value.detail == f"data file {tmp_path}/t.csv names columns twice: see places 2, 4, 5 of its first line"
    )
    with pytest.raises(InvalidDataError) as refused:
        kinds.check_columns("table t", [*"gfedcba", *"gfedcba", "n" * 300, "h"])
    assert refused.value.detail == "table t names columns twice: a, b, c, d, e"
    with pytest.raises(InvalidDataError) as refused:
        kinds.check_columns("table t", ["n" * 300] * 2)
    assert refused.value.detail == f"table t names columns twice: {'n' * 200}..."


# ── names of columns ─────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("names", "wanted", "meant"),
    [
        (["a", "b"], ["b", "a"], {"b": "b", "a": "a"}),
        (["A", "b "], ["b", "a"], {"b": "b ", "a": "A"}),
        (["A", "a"], ["a"], {"a": "a"}),
        (["A", " a"], ["a"], {}),
        (["A", "A"], ["a"], {"a": "A"}),
        (["A"], ["a", " a "], {}),
        (["A"], ["a", "a"], {"a": "A"}),
        (["A", "a"], ["a", "A "], {"a": "a", "A ": "A"}),
        (["ä"], ["a\u0308"], {"a\u0308": "ä"}),
        (["STRASSE"], ["straße"], {"straße": "STRASSE"}),
        ([], ["a"], {}),
    ],
)
def test_names_match_but_for_capitals_and_blanks_where_one_can_be_meant(
    names: list[str], wanted: list[str], meant: dict[str, str]
) -> None:
    assert list(match_columns(names, wanted).items()) == list(meant.items())
    assert match_columns(iter(names), iter(wanted)) == meant


def test_what_is_read_by_another_spelling_is_told() -> None:
    assert renaming_notes({"a": "a", "b": "B", "c": "C" + "c" * 300}) == [
        "column 'B' is read as 'b'",
        f"column 'C{'c' * 199}...' is read as 'c'",
    ]
    assert similar_name("ill", ["age", " Ill", "ILL"]) == " Ill"
    assert similar_name(" Ill", ["age", "ill"]) == "ill"
    assert similar_name("ill", ["age"]) is None


@pytest.mark.parametrize(
    ("names", "first_names", "reason"),
    [
        (["x", "y"], ["a", "b"], "data file b.csv has none of the columns of a.csv"),
        (["a"], ["a", "b"], "data file b.csv lacks column 'b', which a.csv has"),
        (["a", "b", "c"], ["a", "b"], "data file a.csv lacks column 'c', which b.csv has"),
        (["a", "c", "d"], ["a", "x", "y"], "data file b.csv lacks column 'x', which a.csv has"),
        (["a", "1.5", "2.5"], ["a", "b"], "data file b.csv has no line of names: its first line looks like values"),
        (["a", "b"], ["a", "1.5", "2.5"], "data file a.csv has no line of names: its first line looks like values"),
        (["a", "", "c"], ["a", "b"], "data file b.csv lacks column 'b', which a.csv has"),
    ],
)
def test_files_whose_columns_differ_are_refused_by_file_and_column(
    names: list[str], first_names: list[str], reason: str
) -> None:
    with pytest.raises(InvalidDataError) as refused:
        match_all_columns(Path("b.csv"), names, Path("a.csv"), first_names)
    assert refused.value.detail == reason


def test_files_of_the_same_columns_match() -> None:
    assert match_all_columns(Path("b"), ["B", "a"], Path("a"), ["a", "b"]) == {"a": "a", "b": "B"}
    check_same_columns(Path("b"), ["a"], Path("a"), ["a"])
    for meant, first, reason in (
        (["a"], ["a", "b"], "b lacks column 'b', which a"),
        (["a", "c"], ["a"], "a lacks column 'c', which b"),
    ):
        with pytest.raises(InvalidDataError) as refused:
            check_same_columns(Path("b"), meant, Path("a"), first)
        assert refused.value.detail == f"data file {reason} has"


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["a", "b"], ""),
        (["a", ""], "1 columns have no name, at place 2: name them, or save the table without them"),
        ([" "] * 7, "7 columns have no name, at place 1, 2, 3, 4, 5: name them, or save the table without them"),
        (["0", "1", "2"], ""),
        (["1", "2", "3"], ""),
        (["2", "3", "4"], "values"),
        (["a", "b", "1.5", *"cdefghi"], ""),
        (["a", "b", "1.5", "2.5", "3.5", *"cdefg"], ""),
        (["a", "b", "1.5", "2.5", "3.5", *"cdef"], "values"),
        (["a", "nan"], "values"),
    ],
)
def test_a_first_line_of_values_is_no_line_of_names(names: list[str], reason: str) -> None:
    if not reason:
        check_header("t.csv", names)
        return
    with pytest.raises(InvalidDataError) as refused:
        check_header("t.csv", names)
    assert refused.value.detail == (
        "data file t.csv has no line of names: its first line looks like values"
        if reason == "values"
        else f"data file t.csv: {reason}"
    )


@pytest.mark.parametrize(
    ("name", "identifies", "numbers"),
    [
        ("patient_id", True, True),
        ("PatientID", True, True),
        ("first name", True, False),
        ("zip", True, False),
        ("xuuid", True, False),
        ("my_userid", True, False),
        ("has_phone", False, False),
        ("phone_count", False, False),
        ("age", False, False),
        ("", False, False),
        ("id", True, False),
        ("ID_number", True, False),
        ("case_number", False, True),
        ("case", False, False),
        ("caseid", False, True),
        ("hospital_case_no", False, True),
        ("patient_case_no", False, False),
        ("patient", False, True),
        ("client_person", False, True),
        ("customer_type", False, False),
        ("Größe", False, False),
    ],
)
def test_names_tell_what_identifies_people(name: str, *, identifies: bool, numbers: bool) -> None:
    assert (names_identifier(name), numbers_people(name)) == (identifies, numbers)
    assert column_names._is_number(name) is False


# ── sources ──────────────────────────────────────────────────────────────────


SAY_TABLE = "and say --table NAME=env:VARIABLE::TABLE or NAME=file:PATH::TABLE"
OF_ASCII = "one of ASCII that is no letter, digit, blank or quote, and in no number"


def test_options_name_a_source_with_all_that_is_said() -> None:
    values = ["age:-9=", "ill:1=yes"]
    meanings = {"age": {"-9": ""}, "ill": {"1": "yes"}}
    csv = "separator=; decimal=, missing=-99,x skip=2 end=0 encoding=latin-1 thousands=space"
    stated = CsvFormat(
        separator="semicolon",
        decimal="comma",
        thousands="space",
        encoding="iso8859-1",
        missing=("-99", "x"),
        skip=2,
        end=0,
    )
    assert parse_source("t.csv", (), csv, values) == DataSource(source="t.csv", csv=stated, values=meanings)
    tables = ["a=x.csv", "b=env:DSN::clinic.t", "c=file:/x::y::t", "d=lab.sqlite::labs"]
    assert parse_source(" SELECT 1", tables, csv, values) == DataSource(
        source=" SELECT 1",
        tables={
            "a": "x.csv",
            "b": PostgresTable(postgres="env:DSN", table="clinic.t"),
            "c": PostgresTable(postgres="file:/x::y", table="t"),
            "d": "lab.sqlite::labs",
        },
        csv=stated,
        values=meanings,
    )
    assert parse_source("t.csv") == DataSource(source="t.csv")
    assert parse_source("from t") == DataSource(source="from t")
    assert stated.options() == (
        "separator=semicolon decimal=comma thousands=space encoding=iso8859-1 missing=-99,x skip=2 end=0"
    )
    assert CsvFormat().options() == ""
    assert CsvFormat(separator="\x1f").options() == r"separator=\x1f"
    assert CsvFormat(separator="^", skip=1).options() == "separator=^ skip=1"


@pytest.mark.parametrize(
    ("data", "tables", "reason"),
    [
        ("", [], "--data: name your table"),
        ("SELECT 1", ["a"], "--table: say NAME=WHERE, with a name of letters, digits and _ that begins with no digit"),
        ("SELECT 1", ["a=x", "b=y", "A=z"], "--table A: it is named twice; capitals make no other name"),
        ("SELECT 1", ["a="], "--table a: say where it is"),
        ("SELECT 1", ["a=env:B"], "--table a: a table in PostgreSQL is env:VARIABLE::TABLE or file:PATH::TABLE"),
        (
            "t.csv",
            ["a=x"],
            "--table: only a query has tables: --data must begin with SELECT, WITH or FROM, and a space",
        ),
        (
            "postgres://x",
            [],
            f"--data: others see what is typed: put the connection string into the environment or a file, {SAY_TABLE}",
        ),
    ],
)
def test_options_that_name_no_source_are_refused_in_these_words(data: str, tables: list[str], reason: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_source(data, tables)
    assert refused.value.detail == reason


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        (None, CsvFormat()),
        ("  ", CsvFormat()),
        ("separator=tab", CsvFormat(separator="tab")),
        (r"separator=\t", CsvFormat(separator="tab")),
        ("  separator=,   decimal=.  ", CsvFormat(separator="comma", decimal="point")),
        ("thousands=’", CsvFormat(thousands="apostrophe")),
        ("missing=,a,,b,", CsvFormat(missing=("a", "b"))),
        ("encoding=UTF8", CsvFormat(encoding="utf-8")),
    ],
)
def test_how_a_csv_file_is_written_can_be_said(text: str | None, stated: CsvFormat) -> None:
    assert parse_csv_format(text) == stated


@pytest.mark.parametrize("text", ["tab", "separator=tab separator=tab", "sep=tab", "separator=tab x", "=tab"])
def test_what_is_said_of_a_csv_file_has_known_keys_once(text: str) -> None:
    keys = "separator=, decimal=, thousands=, encoding=, missing=, skip=, end="
    with pytest.raises(InvalidInputError) as refused:
        parse_csv_format(text)
    assert refused.value.detail == (
        f'--csv: say {keys} each at most once, with blanks between, such as "separator=; decimal=,"'
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "separator=a",
            f"separator: say comma, semicolon, tab, pipe, or the character itself, such as ^ or \\x1f: {OF_ASCII}",
        ),
        ("encoding=rot13", "encoding: no encoding of this name: say utf-8, utf-16, windows-1252, latin-1 or the like"),
        (
            "encoding=no-such",
            "encoding: no encoding of this name: say utf-8, utf-16, windows-1252, latin-1 or the like",
        ),
        ("decimal=, thousands=,", "decimal and thousands must be different signs"),
    ],
)
def test_what_cannot_be_said_of_a_csv_file_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_csv_format(text)
    assert refused.value.detail.startswith("--csv: ")
    assert reason in refused.value.detail


def test_paths_of_a_source_begin_at_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/anna")
    assert DataSource(source="t.csv").within(tmp_path) == DataSource(source=f"{tmp_path}/t.csv")
    secret = PostgresTable(postgres="file:~/dsn", table="t")
    moved = DataSource(source="FROM a", tables={"a": "x.csv", "b": secret}).within(tmp_path)
    assert moved.source == "FROM a"
    assert moved.tables == {"a": f"{tmp_path}/x.csv", "b": PostgresTable(postgres="file:/home/anna/dsn", table="t")}
    assert split_inner_table("a::b.sqlite::c") == (Path("a::b.sqlite"), "c")
    assert [split_inner_table(text) for text in ("a.csv", "::t", "a.sqlite::", "a:b")] == [None] * 4


def test_an_sqlite_file_without_an_ending_is_no_csv(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "lab")) as database, database:
        database.execute("CREATE TABLE t (x)")
    with pytest.raises(InvalidDataError, match="is a database: say FILE::TABLE"):
        kinds.common_kind("lab", [tmp_path / "lab"])
